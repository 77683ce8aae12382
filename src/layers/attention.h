#pragma once
#include "layers/linear.h"
#include "layers/model_config.h"

namespace tessera::layers {

/// Causal self-attention over packed qkv [T, (N+2G)·K] -> [T, N·K]: rotary in place for Llama, then attention inside
/// each block of cu_seqlens; with a cache, over the cached tokens. `layer` names the dropout site and the cache.
Var self_attention(const ForwardContext& ctx, const ModelConfig& config, std::int64_t layer, const Var& qkv);

}  // namespace tessera::layers

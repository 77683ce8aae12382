#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "core/rounding.h"

namespace tessera::layers {

enum class Family : std::uint8_t {
    gpt2,  ///< learned positions, LayerNorm, GELU, biases (Radford et al. 2019)
    llama  ///< rotary positions, RMSNorm, SwiGLU, no biases, grouped K/V (Touvron et al. 2023)
};

/// The shape of a GPT. All sizes are those of the whole model.
struct ModelConfig {
    Family family = Family::gpt2;
    std::int64_t num_layers = 0;
    std::int64_t hidden_size = 0;
    std::int64_t num_attention_heads = 0;
    std::int64_t num_kv_heads = 0;
    std::int64_t ffn_hidden_size = 0;
    std::int64_t seq_length = 0;
    std::int64_t vocab_size = 0;
    bool tie_embeddings = true;
    double norm_eps = 1e-5;
    double hidden_dropout = 0;
    double attention_dropout = 0;
    double rope_theta = 10000;
    double init_std = 0.02;
    core::DType dtype = core::DType::f32;

    std::int64_t head_dim() const { return hidden_size / num_attention_heads; }
    /// Rounded up to a multiple of 128: padding takes no part in softmax, loss, sampling or a saved file.
    std::int64_t padded_vocab_size() const { return core::round_up(vocab_size, 128); }
};

/// Elements of all logical tensors (a tied head counted once).
std::int64_t parameter_count(const ModelConfig& config);

/// Model FLOPs of one forward and backward over T tokens in attention blocks of lengths L_i (causal half of attention,
/// no recomputation; Megatron-LM's count with the true vocabulary):
///   6·T·l·(h·(q + 2k) + q·h + m·h·f) + 6·l·q·Σ L_i² + 6·T·h·V,  q = N·K, k = G·K, m = 2 (GELU) or 3 (SwiGLU)
double training_flops(const ModelConfig& config, double tokens, double sum_squared_seqlens);

}  // namespace tessera::layers

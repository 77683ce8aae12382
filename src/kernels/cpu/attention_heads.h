#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "kernels/attention.h"

namespace tessera::kernels::cpu {

/// Raw operands of attention (kernels/attention.h).
struct AttentionHeads {
    core::DType dtype = core::DType::f32;
    HeadLayout heads{};
    float scale = 1;
    Dropout dropout{};
    std::int64_t seq_length = 0;
    std::int64_t tokens = 0;
    std::int64_t blocks = 0;  ///< attention blocks (sequences or documents)
    const std::int32_t* cu_seqlens = nullptr;
    std::int64_t max_seqlen = 0;
    const std::int64_t* sample = nullptr;
    const std::int32_t* offset = nullptr;
    const void* qkv = nullptr;
    void* out = nullptr;  ///< written by the forward, read by the backward
    float* lse = nullptr;
    const void* dout = nullptr;
    void* dqkv = nullptr;
    float* scratch = nullptr;  ///< threads · scratch_floats
    std::int64_t scratch_floats = 0;
};

/// Floats of scratch one thread needs for blocks of at most max_seqlen tokens, a multiple of 16.
std::int64_t attention_forward_scratch(std::int64_t max_seqlen, std::int64_t head_dim);
std::int64_t attention_backward_scratch(std::int64_t max_seqlen, std::int64_t head_dim);

void attention_heads_forward(const AttentionHeads& args);
void attention_heads_backward(const AttentionHeads& args);

struct CachedHeads {
    core::DType dtype = core::DType::f32;
    HeadLayout heads{};
    float scale = 1;
    std::int64_t past = 0;
    std::int64_t tokens = 0;
    const void* qkv = nullptr;
    void* k_cache = nullptr;
    void* v_cache = nullptr;
    void* out = nullptr;
};
void cached_heads(const CachedHeads& args);

struct RotaryHeads {
    core::DType dtype = core::DType::f32;
    HeadLayout heads{};
    RotaryDirection direction = RotaryDirection::forward;
    std::int64_t tokens = 0;
    const std::int32_t* position = nullptr;
    const float* cosines = nullptr;  ///< [positions, K/2]
    const float* sines = nullptr;
    void* qkv = nullptr;
};
void rotary_heads(const RotaryHeads& args);

}  // namespace tessera::kernels::cpu

#pragma once
#include "core/tensor.h"
#include "kernels/token_map.h"

namespace tessera::kernels {

class Backend;

/// Heads on this rank. Packed rows are [q: N·K | k: G·K | v: G·K]; query head n reads K/V head n / (N/G).
struct HeadLayout {
    std::int64_t num_heads = 1;     ///< N
    std::int64_t num_kv_heads = 1;  ///< G, divides N
    std::int64_t head_dim = 1;      ///< K, any positive number
    std::int64_t packed_width() const { return (num_heads + 2 * num_kv_heads) * head_dim; }
};

enum class RotaryDirection : std::uint8_t { forward, backward };

/// Rotate-half rotary embedding in place on the q and k heads of packed qkv [T, (N+2G)·K] (Su et al. 2021, in the
/// Hugging Face layout): with h = K/2 and angle_i = position·theta^(-2i/K),
///   a' = a·cos - b·sin, b' = b·cos + a·sin for a = x[i], b = x[h+i]. backward rotates by -angle. K must be even.
/// Angles in f64, cos and sin rounded to f32.
struct RotaryArgs {
    HeadLayout heads;
    double theta = 10000.0;
    RotaryDirection direction = RotaryDirection::forward;
    const TokenMap& tokens;
    core::Tensor& qkv;
};

/// Causal attention inside each block of tokens.cu_seqlens, in tiles with an online softmax; never an S×S matrix.
/// qkv [T, (N+2G)·K], out [T, N·K] of one floating dtype; lse [N, T] f32 = log Σ exp(scale·q·k), written if not null.
/// Dropout acts on the normalised probabilities (site and counters: token_map.h). Padding tokens (after the last
/// border) get out = 0. All arithmetic f32.
struct AttentionForwardArgs {
    HeadLayout heads;
    float scale = 1;
    const TokenMap& tokens;
    Dropout dropout;
    const core::Tensor& qkv;
    core::Tensor& out;
    core::Tensor* lse = nullptr;
};

/// dqkv [T, (N+2G)·K] is written whole (=; zero for padding tokens). out, lse are the forward's; dout [T, N·K].
/// dqkv may not alias any input. Sums over query heads of a K/V group have a fixed order.
struct AttentionBackwardArgs {
    HeadLayout heads;
    float scale = 1;
    const TokenMap& tokens;
    Dropout dropout;
    const core::Tensor& qkv;
    const core::Tensor& out;
    const core::Tensor& lse;
    const core::Tensor& dout;
    core::Tensor& dqkv;
};

/// Attention of T new tokens of ONE sequence over a cache, for generation. k_cache, v_cache [capacity, G·K] of qkv's
/// dtype hold `past` tokens; the keys and values of qkv [T, (N+2G)·K] (rotary already applied) are appended at rows
/// past .. past+T-1, and query i attends rows 0 .. past+i. out [T, N·K]. No dropout.
struct CachedAttentionArgs {
    HeadLayout heads;
    float scale = 1;
    std::int64_t past = 0;
    const core::Tensor& qkv;
    core::Tensor& k_cache;
    core::Tensor& v_cache;
    core::Tensor& out;
};

class AttentionKernels {
public:
    virtual ~AttentionKernels() = default;
    virtual void rotary(const RotaryArgs& args) = 0;
    virtual void attention_forward(const AttentionForwardArgs& args) = 0;
    virtual void attention_backward(const AttentionBackwardArgs& args) = 0;
    virtual void cached_attention(const CachedAttentionArgs& args) = 0;
};

/// Check, account, run. Throw ShapeError naming the operand and both numbers.
/// Model FLOPs: forward 2·N·K·ΣL² (two products, causal half), backward twice that; cached 4·N·K·Σ(past+i+1).
void rotary(Backend& backend, core::Stream& stream, const RotaryArgs& args);
void attention_forward(Backend& backend, core::Stream& stream, const AttentionForwardArgs& args);
void attention_backward(Backend& backend, core::Stream& stream, const AttentionBackwardArgs& args);
void cached_attention(Backend& backend, core::Stream& stream, const CachedAttentionArgs& args);

}  // namespace tessera::kernels

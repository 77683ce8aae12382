#include "kernels/attention.h"

#include <omp.h>

#include <cmath>
#include <vector>

#include "kernels/cpu/attention_heads.h"
#include "kernels/cpu/families.h"

namespace tessera::kernels::cpu {
namespace {

using core::DType;
using core::Tensor;

/// cos and sin of every position met so far, for one head_dim and theta.
class RotaryTable {
public:
    void prepare(std::int64_t positions, std::int64_t half, double theta) {
        if (half == half_ && theta == theta_ && positions <= positions_) return;
        half_ = half;
        theta_ = theta;
        positions_ = positions;
        cosines_.resize(static_cast<std::size_t>(positions * half));
        sines_.resize(static_cast<std::size_t>(positions * half));
        for (std::int64_t position = 0; position < positions; ++position) {
            for (std::int64_t i = 0; i < half; ++i) {
                const double exponent = -static_cast<double>(i) / static_cast<double>(half);
                const double angle = static_cast<double>(position) * std::pow(theta, exponent);
                cosines_[static_cast<std::size_t>(position * half + i)] = static_cast<float>(std::cos(angle));
                sines_[static_cast<std::size_t>(position * half + i)] = static_cast<float>(std::sin(angle));
            }
        }
    }
    const float* cosines() const { return cosines_.data(); }
    const float* sines() const { return sines_.data(); }

private:
    std::int64_t half_ = 0;
    std::int64_t positions_ = 0;
    double theta_ = 0;
    std::vector<float> cosines_;
    std::vector<float> sines_;
};

AttentionHeads common(const HeadLayout& heads, float scale, const Dropout& dropout, const TokenMap& tokens,
                      const Tensor& qkv) {
    AttentionHeads a;
    a.dtype = qkv.dtype();
    a.heads = heads;
    a.scale = scale;
    a.dropout = dropout;
    a.seq_length = tokens.seq_length;
    a.tokens = qkv.size(0);
    a.blocks = tokens.cu_seqlens.numel() - 1;
    a.cu_seqlens = tokens.cu_seqlens.data<std::int32_t>();
    a.max_seqlen = tokens.max_seqlen;
    a.sample = tokens.sample.data<std::int64_t>();
    a.offset = tokens.offset.data<std::int32_t>();
    a.qkv = qkv.bytes();
    return a;
}

/// Borders ascend from 0 to at most T and no block is longer than max_seqlen says.
void check_borders(const TokenMap& tokens, std::int64_t count) {
    const std::int32_t* borders = tokens.cu_seqlens.data<std::int32_t>();
    const std::int64_t blocks = tokens.cu_seqlens.numel() - 1;
    for (std::int64_t block = 0; block < blocks; ++block) {
        const std::int64_t length = borders[block + 1] - borders[block];
        if (borders[0] != 0 || length < 0 || length > tokens.max_seqlen || borders[block + 1] > count) {
            core::raise<core::ShapeError>(
                    "attention: block {} runs from token {} to {}, but blocks ascend from 0, hold at most {} tokens "
                    "and end by {}",
                    block, borders[block], borders[block + 1], tokens.max_seqlen, count);
        }
    }
}

class Attention final : public AttentionKernels {
public:
    explicit Attention(core::MemoryPool& pool) : pool_(pool) {}

    void rotary(const RotaryArgs& args) override {
        const std::int64_t count = args.qkv.size(0);
        const std::int32_t* position = args.tokens.position.data<std::int32_t>();
        std::int32_t largest = 0;
        for (std::int64_t token = 0; token < count; ++token) largest = std::max(largest, position[token]);
        table_.prepare(std::max<std::int64_t>(largest + 1, args.tokens.seq_length), args.heads.head_dim / 2,
                       args.theta);
        rotary_heads({.dtype = args.qkv.dtype(),
                      .heads = args.heads,
                      .direction = args.direction,
                      .tokens = count,
                      .position = position,
                      .cosines = table_.cosines(),
                      .sines = table_.sines(),
                      .qkv = args.qkv.bytes()});
    }

    void attention_forward(const AttentionForwardArgs& args) override {
        check_borders(args.tokens, args.qkv.size(0));
        AttentionHeads a = common(args.heads, args.scale, args.dropout, args.tokens, args.qkv);
        a.out = args.out.bytes();
        a.lse = args.lse ? args.lse->data<float>() : nullptr;
        const Tensor scratch = reserve(a, attention_forward_scratch(a.max_seqlen, a.heads.head_dim));
        attention_heads_forward(a);
    }

    void attention_backward(const AttentionBackwardArgs& args) override {
        check_borders(args.tokens, args.qkv.size(0));
        AttentionHeads a = common(args.heads, args.scale, args.dropout, args.tokens, args.qkv);
        a.out = args.out.bytes();
        a.lse = args.lse.data<float>();
        a.dout = args.dout.bytes();
        a.dqkv = args.dqkv.bytes();
        const Tensor scratch = reserve(a, attention_backward_scratch(a.max_seqlen, a.heads.head_dim));
        attention_heads_backward(a);
    }

    void cached_attention(const CachedAttentionArgs& args) override {
        cached_heads({.dtype = args.qkv.dtype(),
                      .heads = args.heads,
                      .scale = args.scale,
                      .past = args.past,
                      .tokens = args.qkv.size(0),
                      .qkv = args.qkv.bytes(),
                      .k_cache = args.k_cache.bytes(),
                      .v_cache = args.v_cache.bytes(),
                      .out = args.out.bytes()});
    }

private:
    Tensor reserve(AttentionHeads& a, std::int64_t floats) {
        a.scratch_floats = floats;
        Tensor scratch = Tensor::empty(pool_, {omp_get_max_threads(), a.scratch_floats}, DType::f32,
                                       core::MemoryCategory::workspace);
        a.scratch = scratch.data<float>();
        return scratch;
    }

    core::MemoryPool& pool_;
    RotaryTable table_;
};

}  // namespace

std::unique_ptr<AttentionKernels> make_attention(core::MemoryPool& pool) {
    return std::make_unique<Attention>(pool);
}

}  // namespace tessera::kernels::cpu

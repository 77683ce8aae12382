#include "kernels/attention.h"

#include "kernels/check.h"
#include "kernels/run_operation.h"

namespace tessera::kernels {
namespace {

using core::DType;
using core::Tensor;

void check_heads(const char* op, const HeadLayout& heads) {
    check_rule(op, heads.num_heads > 0 && heads.num_kv_heads > 0 && heads.head_dim > 0,
               "head counts and head_dim must be positive");
    check_rule(op, heads.num_heads % heads.num_kv_heads == 0, "num_kv_heads must divide num_heads");
}

void check_packed(const char* op, const HeadLayout& heads, const Tensor& qkv) {
    check_heads(op, heads);
    check_rank(op, "qkv", qkv, 2);
    check_floating(op, "qkv", qkv);
    check_shape(op, "qkv", qkv, {qkv.size(0), heads.packed_width()});
}

void check_tokens(const char* op, const TokenMap& tokens, std::int64_t count) {
    check_rank(op, "tokens.cu_seqlens", tokens.cu_seqlens, 1);
    check_dtype(op, "tokens.cu_seqlens", tokens.cu_seqlens, DType::i32);
    check_rule(op, tokens.cu_seqlens.numel() >= 1, "cu_seqlens needs at least its first border, 0");
    check_operand(op, "tokens.sample", tokens.sample, {count}, DType::i64);
    check_operand(op, "tokens.offset", tokens.offset, {count}, DType::i32);
}

/// Two products over the causal half: 2·N·K·ΣL².
double causal_flops(const HeadLayout& heads, const TokenMap& tokens) {
    return 2.0 * static_cast<double>(heads.num_heads * heads.head_dim) *
           static_cast<double>(tokens.sum_squared_seqlens);
}

}  // namespace

void rotary(Backend& backend, core::Stream& stream, const RotaryArgs& args) {
    constexpr const char* op = "rotary";
    check_packed(op, args.heads, args.qkv);
    check_rule(op, args.heads.head_dim % 2 == 0, "head_dim must be even: rotary turns pairs");
    check_operand(op, "tokens.position", args.tokens.position, {args.qkv.size(0)}, DType::i32);
    const std::int64_t turned = (args.heads.num_heads + args.heads.num_kv_heads) * args.heads.head_dim;
    run_operation(backend, stream, Op::rotary,
                  {.flops = 0,
                   .bytes = 2.0 * static_cast<double>(args.qkv.size(0) * turned * core::size_of(args.qkv.dtype()))},
                  [&] { backend.attention().rotary(args); });
}

void attention_forward(Backend& backend, core::Stream& stream, const AttentionForwardArgs& args) {
    constexpr const char* op = "attention_forward";
    check_packed(op, args.heads, args.qkv);
    const std::int64_t count = args.qkv.size(0);
    check_tokens(op, args.tokens, count);
    check_operand(op, "out", args.out, {count, args.heads.num_heads * args.heads.head_dim}, args.qkv.dtype());
    if (args.lse) check_operand(op, "lse", *args.lse, {args.heads.num_heads, count}, DType::f32);
    check_rule(op, args.dropout.probability >= 0 && args.dropout.probability < 1,
               "the dropout probability must be in [0, 1)");
    run_operation(
            backend, stream, Op::attention_forward,
            {.flops = causal_flops(args.heads, args.tokens),
             .bytes = static_cast<double>(args.qkv.nbytes() + args.out.nbytes() + (args.lse ? args.lse->nbytes() : 0))},
            [&] { backend.attention().attention_forward(args); });
}

void attention_backward(Backend& backend, core::Stream& stream, const AttentionBackwardArgs& args) {
    constexpr const char* op = "attention_backward";
    check_packed(op, args.heads, args.qkv);
    const std::int64_t count = args.qkv.size(0);
    check_tokens(op, args.tokens, count);
    const core::Shape shape{count, args.heads.num_heads * args.heads.head_dim};
    check_operand(op, "out", args.out, shape, args.qkv.dtype());
    check_operand(op, "dout", args.dout, shape, args.qkv.dtype());
    check_operand(op, "lse", args.lse, {args.heads.num_heads, count}, DType::f32);
    check_operand(op, "dqkv", args.dqkv, args.qkv.shape(), args.qkv.dtype());
    check_rule(op, !args.dqkv.overlaps(args.qkv) && !args.dqkv.overlaps(args.dout) && !args.dqkv.overlaps(args.out),
               "dqkv may not alias an input");
    run_operation(backend, stream, Op::attention_backward,
                  {.flops = 2.0 * causal_flops(args.heads, args.tokens),
                   .bytes = 2.0 * static_cast<double>(args.qkv.nbytes() + args.out.nbytes()) +
                            static_cast<double>(args.lse.nbytes())},
                  [&] { backend.attention().attention_backward(args); });
}

void cached_attention(Backend& backend, core::Stream& stream, const CachedAttentionArgs& args) {
    constexpr const char* op = "cached_attention";
    check_packed(op, args.heads, args.qkv);
    const std::int64_t count = args.qkv.size(0);
    check_rank(op, "k_cache", args.k_cache, 2);
    const std::int64_t capacity = args.k_cache.size(0);
    const core::Shape cache{capacity, args.heads.num_kv_heads * args.heads.head_dim};
    check_operand(op, "k_cache", args.k_cache, cache, args.qkv.dtype());
    check_operand(op, "v_cache", args.v_cache, cache, args.qkv.dtype());
    check_operand(op, "out", args.out, {count, args.heads.num_heads * args.heads.head_dim}, args.qkv.dtype());
    if (args.past < 0 || args.past + count > capacity) {
        core::raise<core::ShapeError>("{}: {} cached and {} new tokens do not fit a cache of {}", op, args.past, count,
                                      capacity);
    }
    const auto seen =
            static_cast<double>(count) * static_cast<double>(args.past) + static_cast<double>(count * (count + 1)) / 2;
    const auto row = static_cast<double>(args.heads.num_heads * args.heads.head_dim);
    run_operation(
            backend, stream, Op::cached_attention,
            {.flops = 4.0 * row * seen,
             .bytes = 2.0 * static_cast<double>((args.past + count) * cache[1] * core::size_of(args.qkv.dtype())) +
                      static_cast<double>(args.qkv.nbytes() + args.out.nbytes())},
            [&] { backend.attention().cached_attention(args); });
}

}  // namespace tessera::kernels

#include "kernels/embedding.h"

#include "kernels/check.h"
#include "kernels/run_operation.h"

namespace tessera::kernels {
namespace {

using core::DType;

void check_map(const char* op, const TokenMap& map, std::int64_t count) {
    check_operand(op, "map.sample", map.sample, {count}, DType::i64);
    check_operand(op, "map.offset", map.offset, {count}, DType::i32);
    check_operand(op, "map.position", map.position, {count}, DType::i32);
}

}  // namespace

void embedding_forward(Backend& backend, core::Stream& stream, const EmbeddingForwardArgs& args) {
    constexpr const char* op = "embedding_forward";
    check_rank(op, "tokens", args.tokens, 1);
    check_dtype(op, "tokens", args.tokens, DType::i32);
    check_rank(op, "word", args.word, 2);
    check_floating(op, "word", args.word);
    const std::int64_t count = args.tokens.size(0);
    const std::int64_t hidden = args.word.size(1);
    check_map(op, args.map, count);
    check_operand(op, "y", args.y, {count, hidden}, args.word.dtype());
    if (args.positions) {
        check_rank(op, "positions", *args.positions, 2);
        check_operand(op, "positions", *args.positions, {args.positions->size(0), hidden}, args.word.dtype());
    }
    check_rule(op, args.dropout.probability >= 0 && args.dropout.probability < 1,
               "the dropout probability must be in [0, 1)");
    const double rows = args.positions ? 3.0 : 2.0;
    run_operation(backend, stream, Op::embedding_forward,
                  {.flops = 0, .bytes = rows * static_cast<double>(args.y.nbytes())},
                  [&] { backend.embedding().embedding_forward(args); });
}

void embedding_backward(Backend& backend, core::Stream& stream, const EmbeddingBackwardArgs& args) {
    constexpr const char* op = "embedding_backward";
    check_rank(op, "tokens", args.tokens, 1);
    check_dtype(op, "tokens", args.tokens, DType::i32);
    check_rank(op, "dy", args.dy, 2);
    check_floating(op, "dy", args.dy);
    const std::int64_t count = args.tokens.size(0);
    const std::int64_t hidden = args.dy.size(1);
    check_map(op, args.map, count);
    check_shape(op, "dy", args.dy, {count, hidden});
    check_rank(op, "dword", args.dword, 2);
    check_operand(op, "dword", args.dword, {args.dword.size(0), hidden}, DType::f32);
    if (args.dpositions) {
        check_rank(op, "dpositions", *args.dpositions, 2);
        check_operand(op, "dpositions", *args.dpositions, {args.dpositions->size(0), hidden}, DType::f32);
    }
    const double element = args.dpositions ? 16.0 : 8.0;
    run_operation(backend, stream, Op::embedding_backward,
                  {.flops = 0,
                   .bytes = static_cast<double>(args.dy.nbytes()) + element * static_cast<double>(args.dy.numel())},
                  [&] { backend.embedding().embedding_backward(args); });
}

}  // namespace tessera::kernels

#include "kernels/loss.h"

#include "kernels/check.h"
#include "kernels/run_operation.h"

namespace tessera::kernels {
namespace {

using core::DType;
using core::Tensor;

void check_logits(const char* op, const Tensor& logits, const Tensor& targets, std::int64_t num_valid) {
    check_rank(op, "logits", logits, 2);
    check_floating(op, "logits", logits);
    check_operand(op, "targets", targets, {logits.size(0)}, DType::i32);
    check_rule(op, num_valid > 0 && num_valid <= logits.size(1), "num_valid must be in [1, columns of the logits]");
}

}  // namespace

void cross_entropy_statistics(Backend& backend, core::Stream& stream, const CrossEntropyStatisticsArgs& args) {
    constexpr const char* op = "cross_entropy_statistics";
    check_logits(op, args.logits, args.targets, args.num_valid);
    const core::Shape rows{args.logits.size(0)};
    check_operand(op, "maximum", args.maximum, rows, DType::f32);
    check_operand(op, "sum_exp", args.sum_exp, rows, DType::f32);
    check_operand(op, "target_logit", args.target_logit, rows, DType::f32);
    check_rule(op, args.vocab_begin >= 0 && args.vocab_begin + args.num_valid <= args.vocab_size,
               "the local columns must lie inside the vocabulary");
    run_operation(backend, stream, Op::cross_entropy_statistics,
                  {.flops = 0, .bytes = static_cast<double>(args.logits.nbytes())},
                  [&] { backend.loss().cross_entropy_statistics(args); });
}

void cross_entropy_finish(Backend& backend, core::Stream& stream, const CrossEntropyFinishArgs& args) {
    constexpr const char* op = "cross_entropy_finish";
    check_logits(op, args.logits, args.targets, args.num_valid);
    const core::Shape rows{args.logits.size(0)};
    check_operand(op, "maximum", args.maximum, rows, DType::f32);
    check_operand(op, "sum_exp", args.sum_exp, rows, DType::f32);
    check_operand(op, "target_logit", args.target_logit, rows, DType::f32);
    check_operand(op, "losses", args.losses, rows, DType::f32);
    const double passes = args.mode == CrossEntropyMode::losses_only ? 0.0 : 2.0;
    run_operation(backend, stream, Op::cross_entropy_finish,
                  {.flops = 0, .bytes = passes * static_cast<double>(args.logits.nbytes())},
                  [&] { backend.loss().cross_entropy_finish(args); });
}

}  // namespace tessera::kernels

#include "kernels/norm.h"

#include "kernels/check.h"
#include "kernels/run_operation.h"

namespace tessera::kernels {
namespace {

using core::DType;
using core::Shape;
using core::Tensor;

void check_optional(const char* op, const char* operand, const Tensor* tensor, const Shape& shape, DType dtype) {
    if (tensor) check_operand(op, operand, *tensor, shape, dtype);
}

void check_dropout(const char* op, const Dropout& dropout, const TokenMap& tokens, std::int64_t count) {
    check_rule(op, dropout.probability >= 0 && dropout.probability < 1, "the dropout probability must be in [0, 1)");
    if (dropout.probability == 0) return;
    check_operand(op, "tokens.sample", tokens.sample, {count}, DType::i64);
    check_operand(op, "tokens.offset", tokens.offset, {count}, DType::i32);
}

}  // namespace

void norm_forward(Backend& backend, core::Stream& stream, const NormForwardArgs& args) {
    constexpr const char* op = "norm_forward";
    check_rank(op, "x", args.x, 2);
    check_floating(op, "x", args.x);
    const DType dtype = args.x.dtype();
    const Shape row{args.x.size(1)};
    const Shape rows{args.x.size(0)};
    check_operand(op, "y", args.y, args.x.shape(), dtype);
    check_operand(op, "gamma", args.gamma, row, dtype);
    check_optional(op, "beta", args.beta, row, dtype);
    check_optional(op, "mean", args.mean, rows, DType::f32);
    check_optional(op, "rstd", args.rstd, rows, DType::f32);
    check_rule(op, args.kind == NormKind::layer || !args.beta, "an RMS norm has no beta");
    run_operation(
            backend, stream, Op::norm_forward,
            {.flops = 0, .bytes = operand_bytes({&args.x, &args.y, &args.gamma, args.beta, args.mean, args.rstd})},
            [&] { backend.norm().norm_forward(args); });
}

void norm_backward(Backend& backend, core::Stream& stream, const NormBackwardArgs& args) {
    constexpr const char* op = "norm_backward";
    check_rank(op, "x", args.x, 2);
    check_floating(op, "x", args.x);
    const DType dtype = args.x.dtype();
    const Shape row{args.x.size(1)};
    const Shape rows{args.x.size(0)};
    check_operand(op, "dy", args.dy, args.x.shape(), dtype);
    check_operand(op, "dx", args.dx, args.x.shape(), dtype);
    check_optional(op, "dresidual", args.dresidual, args.x.shape(), dtype);
    check_operand(op, "gamma", args.gamma, row, dtype);
    check_rule(op, (args.kind == NormKind::layer) == (args.mean != nullptr), "mean is given exactly for a layer norm");
    check_optional(op, "mean", args.mean, rows, DType::f32);
    check_operand(op, "rstd", args.rstd, rows, DType::f32);
    check_operand(op, "dgamma", args.dgamma, row, DType::f32);
    check_optional(op, "dbeta", args.dbeta, row, DType::f32);
    run_operation(
            backend, stream, Op::norm_backward,
            {.flops = 0,
             .bytes = operand_bytes({&args.x, &args.dy, args.dresidual, &args.dx, &args.gamma, args.mean, &args.rstd})},
            [&] { backend.norm().norm_backward(args); });
}

void bias_dropout_residual_norm_forward(Backend& backend, core::Stream& stream,
                                        const BiasDropoutResidualNormForwardArgs& args) {
    constexpr const char* op = "bias_dropout_residual_norm_forward";
    check_rank(op, "x", args.x, 2);
    check_floating(op, "x", args.x);
    const DType dtype = args.x.dtype();
    const Shape row{args.x.size(1)};
    const Shape rows{args.x.size(0)};
    check_optional(op, "bias", args.bias, row, dtype);
    check_operand(op, "residual", args.residual, args.x.shape(), dtype);
    check_operand(op, "residual_out", args.residual_out, args.x.shape(), dtype);
    check_dropout(op, args.dropout, args.tokens, args.x.size(0));
    check_rule(op, (args.gamma != nullptr) == (args.y != nullptr), "y is given exactly with a gamma");
    if (args.gamma) {
        check_operand(op, "gamma", *args.gamma, row, dtype);
        check_optional(op, "beta", args.beta, row, dtype);
        check_operand(op, "y", *args.y, args.x.shape(), dtype);
        check_rule(op, !args.y->overlaps(args.residual_out), "y may not alias residual_out");
        check_optional(op, "mean", args.mean, rows, DType::f32);
        check_optional(op, "rstd", args.rstd, rows, DType::f32);
    }
    run_operation(backend, stream, Op::bias_dropout_residual_norm_forward,
                  {.flops = 0,
                   .bytes = operand_bytes(
                           {&args.x, args.bias, &args.residual, &args.residual_out, args.y, args.mean, args.rstd})},
                  [&] { backend.norm().bias_dropout_residual_norm_forward(args); });
}

void bias_dropout_residual_norm_backward(Backend& backend, core::Stream& stream,
                                         const BiasDropoutResidualNormBackwardArgs& args) {
    constexpr const char* op = "bias_dropout_residual_norm_backward";
    check_rank(op, "dresidual", args.dresidual, 2);
    check_floating(op, "dresidual", args.dresidual);
    const DType dtype = args.dresidual.dtype();
    const Shape shape = args.dresidual.shape();
    const Shape row{shape[1]};
    const Shape rows{shape[0]};
    check_operand(op, "dx", args.dx, shape, dtype);
    check_optional(op, "dresidual_out", args.dresidual_out, shape, dtype);
    check_optional(op, "dbias", args.dbias, row, DType::f32);
    check_dropout(op, args.dropout, args.tokens, shape[0]);
    check_rule(op, (args.gamma != nullptr) == (args.dy != nullptr), "dy is given exactly with a gamma");
    check_rule(op, args.dy || args.dresidual_out, "a gradient is needed: dy, dresidual_out or both");
    if (args.gamma) {
        check_operand(op, "dy", *args.dy, shape, dtype);
        check_operand(op, "gamma", *args.gamma, row, dtype);
        check_rule(op, args.residual_out && args.rstd && args.dgamma,
                   "residual_out, rstd and dgamma are needed with a gamma");
        check_operand(op, "residual_out", *args.residual_out, shape, dtype);
        check_rule(op, (args.kind == NormKind::layer) == (args.mean != nullptr),
                   "mean is given exactly for a layer norm");
        check_optional(op, "mean", args.mean, rows, DType::f32);
        check_optional(op, "rstd", args.rstd, rows, DType::f32);
        check_optional(op, "dgamma", args.dgamma, row, DType::f32);
        check_optional(op, "dbeta", args.dbeta, row, DType::f32);
    }
    run_operation(backend, stream, Op::bias_dropout_residual_norm_backward,
                  {.flops = 0,
                   .bytes = operand_bytes({args.dy, args.dresidual_out, args.residual_out, &args.dresidual, &args.dx})},
                  [&] { backend.norm().bias_dropout_residual_norm_backward(args); });
}

}  // namespace tessera::kernels

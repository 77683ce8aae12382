#include "kernels/matmul.h"

#include "kernels/check.h"
#include "kernels/run_operation.h"

namespace tessera::kernels {
namespace {

using core::Tensor;

double flops(std::int64_t tokens, std::int64_t inputs, std::int64_t outputs, std::int64_t counted) {
    return 2.0 * static_cast<double>(tokens) * static_cast<double>(inputs) *
           static_cast<double>(counted > 0 ? counted : outputs);
}

}  // namespace

void linear_forward(Backend& backend, core::Stream& stream, const LinearForwardArgs& args) {
    constexpr const char* op = "linear_forward";
    check_rank(op, "x", args.x, 2);
    check_floating(op, "x", args.x);
    check_rank(op, "weight", args.weight, 2);
    const std::int64_t tokens = args.x.size(0);
    const std::int64_t inputs = args.x.size(1);
    const std::int64_t outputs = args.weight.size(0);
    check_operand(op, "weight", args.weight, {outputs, inputs}, args.x.dtype());
    const bool swiglu = args.epilogue == Epilogue::swiglu;
    check_rule(op, !swiglu || outputs % 2 == 0, "swiglu needs an even number of weight rows (gate|up)");
    check_operand(op, "y", args.y, {tokens, swiglu ? outputs / 2 : outputs}, args.x.dtype());
    const bool needs_bias = args.epilogue == Epilogue::bias || args.epilogue == Epilogue::bias_gelu;
    check_rule(op, needs_bias == (args.bias != nullptr), "bias is given exactly for the epilogues bias and bias_gelu");
    if (args.bias) check_operand(op, "bias", *args.bias, {outputs}, args.x.dtype());
    if (args.pre_activation)
        check_operand(op, "pre_activation", *args.pre_activation, {tokens, outputs}, args.x.dtype());
    check_rule(op, !args.y.overlaps(args.x), "y may not alias x");
    run_operation(backend, stream, Op::linear_forward,
                  {.flops = flops(tokens, inputs, outputs, args.counted_outputs),
                   .bytes = operand_bytes({&args.x, &args.weight, args.bias, &args.y, args.pre_activation})},
                  [&] { backend.matmul().linear_forward(args); });
}

void linear_dgrad(Backend& backend, core::Stream& stream, const LinearDgradArgs& args) {
    constexpr const char* op = "linear_dgrad";
    check_rank(op, "dy", args.dy, 2);
    check_floating(op, "dy", args.dy);
    check_rank(op, "weight", args.weight, 2);
    const std::int64_t tokens = args.dy.size(0);
    const std::int64_t outputs = args.dy.size(1);
    const std::int64_t inputs = args.weight.size(1);
    check_operand(op, "weight", args.weight, {outputs, inputs}, args.dy.dtype());
    const std::int64_t width = args.epilogue == Epilogue::swiglu ? 2 * inputs : inputs;
    check_operand(op, "dx", args.dx, {tokens, width}, args.dy.dtype());
    const bool activates = args.epilogue == Epilogue::bias_gelu || args.epilogue == Epilogue::swiglu;
    check_rule(op, args.epilogue != Epilogue::bias, "the epilogue bias has no input gradient of its own; use none");
    check_rule(op, activates == (args.pre_activation != nullptr),
               "pre_activation is given exactly for bias_gelu and swiglu");
    if (args.pre_activation)
        check_operand(op, "pre_activation", *args.pre_activation, {tokens, width}, args.dy.dtype());
    check_rule(op, !(activates && args.accumulate), "accumulate needs the epilogue none");
    check_rule(op, !args.dx.overlaps(args.dy), "dx may not alias dy");
    run_operation(backend, stream, Op::linear_dgrad,
                  {.flops = flops(tokens, inputs, outputs, args.counted_outputs),
                   .bytes = operand_bytes({&args.dy, &args.weight, args.pre_activation, &args.dx})},
                  [&] { backend.matmul().linear_dgrad(args); });
}

void linear_wgrad(Backend& backend, core::Stream& stream, const LinearWgradArgs& args) {
    constexpr const char* op = "linear_wgrad";
    check_rank(op, "x", args.x, 2);
    check_floating(op, "x", args.x);
    check_rank(op, "dy", args.dy, 2);
    const std::int64_t tokens = args.x.size(0);
    const std::int64_t inputs = args.x.size(1);
    const std::int64_t outputs = args.dy.size(1);
    check_operand(op, "dy", args.dy, {tokens, outputs}, args.x.dtype());
    check_operand(op, "dweight", args.dweight, {outputs, inputs}, core::DType::f32);
    if (args.dbias) check_operand(op, "dbias", *args.dbias, {outputs}, core::DType::f32);
    run_operation(backend, stream, Op::linear_wgrad,
                  {.flops = flops(tokens, inputs, outputs, args.counted_outputs),
                   .bytes = operand_bytes({&args.x, &args.dy, &args.dweight, &args.dweight})},
                  [&] { backend.matmul().linear_wgrad(args); });
}

}  // namespace tessera::kernels

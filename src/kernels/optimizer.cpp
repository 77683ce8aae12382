#include "kernels/optimizer.h"

#include "kernels/check.h"
#include "kernels/run_operation.h"

namespace tessera::kernels {

using core::DType;

void adamw(Backend& backend, core::Stream& stream, const AdamWArgs& args) {
    constexpr const char* op = "adamw";
    check_rank(op, "main_param", args.main_param, 1);
    const core::Shape shape = args.main_param.shape();
    check_operand(op, "main_param", args.main_param, shape, DType::f32);
    check_operand(op, "main_grad", args.main_grad, shape, DType::f32);
    check_operand(op, "exp_avg", args.exp_avg, shape, DType::f32);
    check_operand(op, "exp_avg_sq", args.exp_avg_sq, shape, DType::f32);
    if (args.model_param) {
        check_floating(op, "model_param", *args.model_param);
        check_shape(op, "model_param", *args.model_param, shape);
    }
    check_rule(op, args.step >= 1, "step counts from 1");
    const double element = (args.after == GradientAfterStep::zero ? 32.0 : 28.0) +
                           (args.model_param ? static_cast<double>(core::size_of(args.model_param->dtype())) : 0.0);
    run_operation(backend, stream, Op::adamw, {.flops = 0, .bytes = element * static_cast<double>(shape.numel())},
                  [&] { backend.optimizer().adamw(args); });
}

}  // namespace tessera::kernels

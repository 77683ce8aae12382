#include "kernels/optimizer.h"

#include <cmath>

#include "kernels/cpu/families.h"
#include "kernels/cpu/flat.h"

namespace tessera::kernels::cpu {
namespace {

class Optimizer final : public OptimizerKernels {
public:
    void adamw(const AdamWArgs& args) override {
        const auto step = static_cast<double>(args.step);
        flat_adamw({.main_param = args.main_param.data<float>(),
                    .main_grad = args.main_grad.data<float>(),
                    .exp_avg = args.exp_avg.data<float>(),
                    .exp_avg_sq = args.exp_avg_sq.data<float>(),
                    .model_param = args.model_param ? args.model_param->bytes() : nullptr,
                    .model_dtype = args.model_param ? args.model_param->dtype() : core::DType::f32,
                    .count = args.main_param.numel(),
                    .grad_scale = static_cast<float>(args.grad_scale),
                    .beta1 = static_cast<float>(args.beta1),
                    .beta2 = static_cast<float>(args.beta2),
                    .rest1 = static_cast<float>(1.0 - args.beta1),
                    .rest2 = static_cast<float>(1.0 - args.beta2),
                    .keep = static_cast<float>(1.0 - args.lr * args.weight_decay),
                    .step_size = static_cast<float>(args.lr / (1.0 - std::pow(args.beta1, step))),
                    .inverse_root = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(args.beta2, step))),
                    .eps = static_cast<float>(args.eps),
                    .after = args.after});
    }
};

}  // namespace

std::unique_ptr<OptimizerKernels> make_optimizer() {
    return std::make_unique<Optimizer>();
}

}  // namespace tessera::kernels::cpu

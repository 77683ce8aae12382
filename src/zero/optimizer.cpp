#include "zero/optimizer.h"

#include <cmath>

namespace tessera::zero {

using core::Tensor;

void Optimizer::give_up(StepOutcome& outcome) {
    outcome.updated = false;
    outcome.non_finite = find_non_finite(backend_, stream_, parameters_);
    for (FlatUnit& flat : parameters_.units()) flat.main_grad.fill_zero();
}

StepOutcome Optimizer::skip(double loss_scale) {
    StepOutcome outcome;
    outcome.grad_norm = parameters_.gradient_norm() / loss_scale;
    give_up(outcome);
    return outcome;
}

StepOutcome Optimizer::step(double lr, double loss_scale) {
    StepOutcome outcome;
    outcome.grad_norm = parameters_.gradient_norm() / loss_scale;
    if (!std::isfinite(outcome.grad_norm)) {
        give_up(outcome);
        return outcome;
    }
    if (settings_.clip_grad_norm > 0) {
        outcome.clip_factor = std::min(1.0, settings_.clip_grad_norm / (outcome.grad_norm + 1e-6));
    }
    ++updates_;
    for (FlatUnit& flat : parameters_.units()) {
        for (const FlatUnit::Range& range : flat.ranges) {
            Tensor main_param = flat.main_param.range(range.begin, range.end);
            Tensor main_grad = flat.main_grad.range(range.begin, range.end);
            Tensor exp_avg = flat.exp_avg.range(range.begin, range.end);
            Tensor exp_avg_sq = flat.exp_avg_sq.range(range.begin, range.end);
            Tensor model_param = flat.values.range(range.begin, range.end);
            kernels::adamw(backend_, stream_,
                           {.main_param = main_param,
                            .main_grad = main_grad,
                            .exp_avg = exp_avg,
                            .exp_avg_sq = exp_avg_sq,
                            .model_param = flat.values.dtype() == core::DType::f32 ? nullptr : &model_param,
                            .lr = lr,
                            .beta1 = settings_.beta1,
                            .beta2 = settings_.beta2,
                            .eps = settings_.eps,
                            .weight_decay = range.decay == layers::WeightDecay::apply ? settings_.weight_decay : 0.0,
                            .grad_scale = outcome.clip_factor / loss_scale,
                            .step = updates_,
                            .after = kernels::GradientAfterStep::zero});
        }
    }
    return outcome;
}

}  // namespace tessera::zero

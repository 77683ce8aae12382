#include "train/non_finite_guard.h"

#include <cmath>

#include "core/error.h"
#include "train/log_line.h"

namespace tessera::train {

NonFiniteGuard::NonFiniteGuard(const Config& config)
    : settings_(config.run),
      dynamic_loss_scale_(config.precision.dtype == core::DType::f16 && config.precision.loss_scale.dynamic) {}

void NonFiniteGuard::restore(std::int64_t nan_steps, std::int64_t in_a_row) {
    nan_steps_ = nan_steps;
    in_a_row_ = in_a_row;
}

void NonFiniteGuard::account(const StepResult& result, const GuardedStep& step) {
    const bool finite = std::isfinite(result.loss) && std::isfinite(result.grad_norm);
    const bool left_to_the_scale = dynamic_loss_scale_ && !result.scale_exhausted;
    if (!std::isfinite(result.loss) || (!finite && !left_to_the_scale)) ++nan_steps_;
    if (finite || left_to_the_scale) {
        in_a_row_ = 0;
        return;
    }
    ++in_a_row_;
    if (settings_.non_finite == NonFinitePolicy::stop || in_a_row_ > settings_.max_non_finite) stop(result, step);
}

void NonFiniteGuard::stop(const StepResult& result, const GuardedStep& step) const {
    const std::string last = step.saved_step >= 0
                                     ? fmt::format("the last checkpoint, of step {}, is intact", step.saved_step)
                                     : std::string("no checkpoint was written yet");
    const std::string numbers = fmt::format("step {}: loss {} and gradient norm {} are not finite", step.step,
                                            without_sign_of_nan(result.loss), without_sign_of_nan(result.grad_norm));
    const std::string place = fmt::format("{}, with samples {} to {}", zero::describe(result.non_finite),
                                          step.first_sample, step.first_sample + step.num_samples - 1);
    if (result.scale_exhausted) {
        core::raise<core::RunError>(
                "{}, although the loss scale is at its floor of {}: weights or activations are out of the range of "
                "f16; {}; stopped before the update ({}); lower optimizer.lr, or train with precision.dtype = \"bf16\"",
                numbers, result.loss_scale, place, last);
    }
    if (settings_.non_finite == NonFinitePolicy::skip) {
        core::raise<core::RunError>(
                "{}: {}; the {} steps before were skipped for the same, as many as run.max_non_finite allows; stopped "
                "before the update ({}); lower optimizer.lr or look at the data",
                numbers, place, in_a_row_ - 1, last);
    }
    core::raise<core::RunError>(
            "{}: {}; stopped before the update ({}); lower optimizer.lr, look at these samples, or pass over them with "
            "run.non_finite = \"skip\"",
            numbers, place, last);
}

}  // namespace tessera::train

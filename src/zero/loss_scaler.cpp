#include "zero/loss_scaler.h"

#include <algorithm>

#include "core/error.h"

namespace tessera::zero {

LossScaler::LossScaler(const LossScalerSettings& settings) : settings_(settings) {
    state_ = {.scale = settings.initial, .clean_steps = 0, .hysteresis_left = settings.hysteresis};
}

void LossScaler::update(bool found_inf) {
    if (!settings_.dynamic) return;
    if (!found_inf) {
        if (++state_.clean_steps >= settings_.window) {
            state_.scale *= 2;
            state_.clean_steps = 0;
            state_.hysteresis_left = settings_.hysteresis;
        }
        return;
    }
    state_.clean_steps = 0;
    state_.hysteresis_left = std::max<std::int64_t>(state_.hysteresis_left - 1, 0);
    if (state_.hysteresis_left > 0) return;
    if (state_.scale <= settings_.minimum) {
        core::raise<core::RunError>(
                "gradients overflow although the loss scale is at its floor of {}: the weights or activations "
                "themselves "
                "are out of range; lower optimizer.lr, or train with precision.dtype = \"bf16\"",
                settings_.minimum);
    }
    state_.scale = std::max(state_.scale / 2, settings_.minimum);
}

}  // namespace tessera::zero

#include "zero/loss_scaler.h"

#include <algorithm>

namespace tessera::zero {

LossScaler::LossScaler(const LossScalerSettings& settings) : settings_(settings) {
    state_ = {.scale = settings.initial, .clean_steps = 0, .hysteresis_left = settings.hysteresis};
}

ScaleChange LossScaler::update(bool found_inf) {
    if (!settings_.dynamic) return ScaleChange::kept;
    if (!found_inf) {
        if (++state_.clean_steps < settings_.window) return ScaleChange::kept;
        state_.scale *= 2;
        state_.clean_steps = 0;
        state_.hysteresis_left = settings_.hysteresis;
        return ScaleChange::doubled;
    }
    state_.clean_steps = 0;
    state_.hysteresis_left = std::max<std::int64_t>(state_.hysteresis_left - 1, 0);
    if (state_.hysteresis_left > 0) return ScaleChange::kept;
    if (state_.scale <= settings_.minimum) return ScaleChange::exhausted;
    state_.scale = std::max(state_.scale / 2, settings_.minimum);
    return ScaleChange::halved;
}

}  // namespace tessera::zero

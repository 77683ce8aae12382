#pragma once
#include <cstdint>

namespace tessera::zero {

struct LossScalerSettings {
    bool dynamic = false;  ///< false: the scale stays at `initial`
    double initial = 1;
    double minimum = 1;
    std::int64_t window = 1000;   ///< clean steps before the scale doubles
    std::int64_t hysteresis = 2;  ///< overflows before it halves; refilled when it grows
};

/// The loss scale of fp16 training: ×2 after `window` clean steps, ×0.5 once `hysteresis` overflows have been seen.
class LossScaler {
public:
    struct State {
        double scale = 1;
        std::int64_t clean_steps = 0;
        std::int64_t hysteresis_left = 0;
    };

    explicit LossScaler(const LossScalerSettings& settings);
    double scale() const { return state_.scale; }
    /// Accounts one step. Throws RunError if the scale would fall below its minimum: the model's numbers, not the
    /// scale, are then at fault.
    void update(bool found_inf);

    const State& state() const { return state_; }
    void restore(const State& state) { state_ = state; }

private:
    LossScalerSettings settings_;
    State state_;
};

}  // namespace tessera::zero

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

/// What an accounted step did to the scale; exhausted: an overflow at the minimum, where the model's numbers and not
/// the scale are at fault.
enum class ScaleChange : std::uint8_t { kept, doubled, halved, exhausted };

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
    /// Accounts one step. The scale never falls below its minimum.
    ScaleChange update(bool found_inf);

    const State& state() const { return state_; }
    void restore(const State& state) { state_ = state; }

private:
    LossScalerSettings settings_;
    State state_;
};

}  // namespace tessera::zero

#pragma once
#include <cstdint>

#include "train/config.h"
#include "train/engine.h"

namespace tessera::train {

/// Where a step stands, for messages.
struct GuardedStep {
    std::int64_t step = 0;          ///< 1-based
    std::int64_t first_sample = 0;  ///< position in the order of the run's samples
    std::int64_t num_samples = 0;
    std::int64_t saved_step = -1;  ///< of the last checkpoint; -1: none
};

/// Decides about steps whose loss or gradient norm is NaN or infinite. Their update has been left out (Engine). An
/// overflow of f16 is the dynamic loss scale's to mend until the scale is at its floor; every other such step ends the
/// run under run.non_finite = "stop" and is passed over under "skip", at most run.max_non_finite in a row.
class NonFiniteGuard {
public:
    explicit NonFiniteGuard(const Config& config);

    /// Accounts one step. Throws RunError: step, numbers, the first tensor that is not finite, the range of samples,
    /// and which checkpoint is intact.
    void account(const StepResult& result, const GuardedStep& step);

    /// Steps so far whose loss was not finite, or whose gradient norm was not and no loss scale was to blame.
    std::int64_t nan_steps() const { return nan_steps_; }
    /// Such steps since the last that was not one.
    std::int64_t in_a_row() const { return in_a_row_; }
    void restore(std::int64_t nan_steps, std::int64_t in_a_row);

private:
    [[noreturn]] void stop(const StepResult& result, const GuardedStep& step) const;

    RunConfig settings_;
    bool dynamic_loss_scale_;
    std::int64_t nan_steps_ = 0;
    std::int64_t in_a_row_ = 0;
};

}  // namespace tessera::train

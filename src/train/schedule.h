#pragma once
#include <cstdint>

#include "train/config.h"

namespace tessera::train {

/// Where a step stands on its schedule, in the schedule's unit: updates or tokens.
struct SchedulePosition {
    std::int64_t at = 0;     ///< what was done before the step
    std::int64_t width = 1;  ///< what the step adds: one update, or its tokens
};

/// In updates (skipped steps are none) or, for a schedule in tokens, in consumed tokens (those of skipped steps count).
SchedulePosition schedule_position(const ScheduleConfig& schedule, std::int64_t updates, std::int64_t consumed_tokens,
                                   std::int64_t step_tokens);

/// Learning rate of a step at t = position.at of width w. With W = warmup_steps and D = decay_steps, or warmup_tokens
/// and decay_tokens (resolved), and r = (t - W) / (D - W):
///   t < W          min(lr, lr (t + w) / W)
///   constant       lr
///   linear         min_lr + (lr - min_lr) (1 - r)
///   cosine         min_lr + (lr - min_lr) (1 + cos(pi r)) / 2       (Loshchilov, Hutter 2017, eq. 5)
///   wsd            lr up to S = D - ceil(decay_fraction D), then min_lr + (lr - min_lr) (1 - (t - S) / (D - S))
///   inverse_sqrt   max(min_lr, lr sqrt(max(w, W)) / sqrt(t + w))
/// linear, cosine and wsd stay at min_lr from t = D on. S is never before W. A pure function: nothing to save. With a
/// constant batch a schedule in tokens is the one in steps.
double learning_rate(const ScheduleConfig& schedule, const OptimizerConfig& optimizer, SchedulePosition position);

}  // namespace tessera::train

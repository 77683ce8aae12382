#pragma once
#include <cstdint>

#include "train/config.h"

namespace tessera::train {

/// Learning rate of update t (0-based: the first update is 0). Skipped steps are not updates. With W = warmup_steps,
/// D = decay_steps (0: total_steps), r = (t - W) / (D - W):
///   t < W          lr (t + 1) / W
///   constant       lr
///   linear         min_lr + (lr - min_lr) (1 - r)
///   cosine         min_lr + (lr - min_lr) (1 + cos(pi r)) / 2       (Loshchilov, Hutter 2017, eq. 5)
///   wsd            lr up to S = D - ceil(decay_fraction D), then min_lr + (lr - min_lr) (1 - (t - S) / (D - S))
///   inverse_sqrt   max(min_lr, lr sqrt(max(1, W)) / sqrt(t + 1))
/// linear, cosine and wsd stay at min_lr from t = D on. S is never before W. A pure function: nothing to save.
double learning_rate(const ScheduleConfig& schedule, const OptimizerConfig& optimizer, std::int64_t total_steps,
                     std::int64_t update);

}  // namespace tessera::train

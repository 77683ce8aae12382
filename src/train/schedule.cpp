#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tessera::train {
namespace {

/// 0 at `begin`, 1 from `end` on.
double progress(std::int64_t update, std::int64_t begin, std::int64_t end) {
    if (update >= end) return 1.0;
    return static_cast<double>(update - begin) / static_cast<double>(end - begin);
}

}  // namespace

double learning_rate(const ScheduleConfig& schedule, const OptimizerConfig& optimizer, std::int64_t total_steps,
                     std::int64_t update) {
    const std::int64_t warmup = schedule.warmup_steps;
    const std::int64_t decay = schedule.decay_steps > 0 ? schedule.decay_steps : total_steps;
    const double span = optimizer.lr - optimizer.min_lr;
    if (update < warmup) return optimizer.lr * static_cast<double>(update + 1) / static_cast<double>(warmup);
    switch (schedule.style) {
        case ScheduleStyle::constant:
            return optimizer.lr;
        case ScheduleStyle::linear:
            return optimizer.min_lr + span * (1.0 - progress(update, warmup, decay));
        case ScheduleStyle::cosine:
            return optimizer.min_lr + 0.5 * span * (1.0 + std::cos(std::numbers::pi * progress(update, warmup, decay)));
        case ScheduleStyle::wsd: {
            const auto falling =
                    static_cast<std::int64_t>(std::ceil(schedule.decay_fraction * static_cast<double>(decay)));
            const std::int64_t start = std::max(warmup, decay - falling);
            if (update < start) return optimizer.lr;
            return optimizer.min_lr + span * (1.0 - progress(update, start, decay));
        }
        case ScheduleStyle::inverse_sqrt: {
            const double scale = std::sqrt(static_cast<double>(std::max<std::int64_t>(1, warmup)));
            return std::max(optimizer.min_lr, optimizer.lr * scale / std::sqrt(static_cast<double>(update + 1)));
        }
    }
    return optimizer.lr;
}

}  // namespace tessera::train

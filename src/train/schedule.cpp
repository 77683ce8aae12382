#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tessera::train {
namespace {

/// 0 at `begin`, 1 from `end` on.
double progress(std::int64_t at, std::int64_t begin, std::int64_t end) {
    if (at >= end) return 1.0;
    return static_cast<double>(at - begin) / static_cast<double>(end - begin);
}

}  // namespace

SchedulePosition schedule_position(const ScheduleConfig& schedule, std::int64_t updates, std::int64_t consumed_tokens,
                                   std::int64_t step_tokens) {
    if (schedule.in_tokens()) return {.at = consumed_tokens, .width = step_tokens};
    return {.at = updates, .width = 1};
}

double learning_rate(const ScheduleConfig& schedule, const OptimizerConfig& optimizer, SchedulePosition position) {
    const std::int64_t warmup = schedule.in_tokens() ? schedule.warmup_tokens : schedule.warmup_steps;
    const std::int64_t decay = schedule.in_tokens() ? schedule.decay_tokens : schedule.decay_steps;
    const auto [at, width] = position;
    const double span = optimizer.lr - optimizer.min_lr;
    if (at < warmup) {
        const std::int64_t reached = std::min(at + width, warmup);
        return optimizer.lr * static_cast<double>(reached) / static_cast<double>(warmup);
    }
    switch (schedule.style) {
        case ScheduleStyle::constant:
            return optimizer.lr;
        case ScheduleStyle::linear:
            return optimizer.min_lr + span * (1.0 - progress(at, warmup, decay));
        case ScheduleStyle::cosine:
            return optimizer.min_lr + 0.5 * span * (1.0 + std::cos(std::numbers::pi * progress(at, warmup, decay)));
        case ScheduleStyle::wsd: {
            const auto falling =
                    static_cast<std::int64_t>(std::ceil(schedule.decay_fraction * static_cast<double>(decay)));
            const std::int64_t start = std::max(warmup, decay - falling);
            if (at < start) return optimizer.lr;
            return optimizer.min_lr + span * (1.0 - progress(at, start, decay));
        }
        case ScheduleStyle::inverse_sqrt: {
            const double scale = std::sqrt(static_cast<double>(std::max(width, warmup)));
            return std::max(optimizer.min_lr, optimizer.lr * scale / std::sqrt(static_cast<double>(at + width)));
        }
    }
    return optimizer.lr;
}

}  // namespace tessera::train

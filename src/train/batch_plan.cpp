#include "train/batch_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/rounding.h"

namespace tessera::train {

BatchPlan::BatchPlan(const BatchConfig& batch)
    : start_(batch.global_batch_size), increment_(0), samples_(0), levels_(0) {
    const BatchRampup& rampup = batch.rampup;
    if (!rampup.given()) return;
    start_ = rampup.start;
    increment_ = rampup.increment;
    samples_ = rampup.samples;
    levels_ = std::max<std::int64_t>(0, batch.global_batch_size - rampup.start) / std::max<std::int64_t>(1, increment_);
}

std::int64_t BatchPlan::threshold(std::int64_t level) const {
    // ceil(level samples / levels) without the product, which may not fit.
    return level * (samples_ / levels_) + core::ceil_div(level * (samples_ % levels_), levels_);
}

std::int64_t BatchPlan::level_at(std::int64_t consumed) const {
    if (consumed >= samples_) return levels_;
    std::int64_t reached = 0;
    std::int64_t not_reached = levels_;
    while (not_reached - reached > 1) {
        const std::int64_t middle = reached + (not_reached - reached) / 2;
        (threshold(middle) <= consumed ? reached : not_reached) = middle;
    }
    return reached;
}

std::int64_t BatchPlan::size_at(std::int64_t consumed) const {
    return start_ + increment_ * level_at(consumed);
}

std::int64_t BatchPlan::samples_after(std::int64_t consumed, std::int64_t steps) const {
    while (steps > 0) {
        const std::int64_t level = level_at(consumed);
        const std::int64_t size = start_ + increment_ * level;
        if (level == levels_) return consumed + steps * size;
        const std::int64_t at_this_size = std::min(steps, core::ceil_div(threshold(level + 1) - consumed, size));
        consumed += at_this_size * size;
        steps -= at_this_size;
    }
    return consumed;
}

std::int64_t BatchPlan::steps_until(std::int64_t consumed, std::int64_t samples) const {
    std::int64_t steps = 0;
    while (consumed < samples) {
        const std::int64_t level = level_at(consumed);
        const std::int64_t size = start_ + increment_ * level;
        const std::int64_t end = level == levels_ ? samples : std::min(samples, threshold(level + 1));
        const std::int64_t at_this_size = core::ceil_div(end - consumed, size);
        consumed += at_this_size * size;
        steps += at_this_size;
    }
    return steps;
}

std::string describe_batches(const Config& config) {
    const BatchConfig& batch = config.batch;
    const std::int64_t tokens = batch.global_batch_size * config.model.seq_length;
    if (!batch.rampup.given()) return fmt::format("{} samples ({} tokens)", batch.global_batch_size, tokens);
    return fmt::format("{} to {} samples ({} tokens), growing by {} over the first {} samples", batch.rampup.start,
                       batch.global_batch_size, tokens, batch.rampup.increment, batch.rampup.samples);
}

}  // namespace tessera::train

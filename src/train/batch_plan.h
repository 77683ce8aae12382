#pragma once
#include <cstdint>
#include <string>

#include "train/config.h"

namespace tessera::train {

/// How many samples each step of a run takes: a function of the config and of the samples consumed before, so that a
/// run resumed anywhere goes on as it would have.
///   constant   global_batch_size
///   rampup     start + k increment after c consumed samples, k = floor(c n / samples), n = (global_batch_size - start)
///              / increment, while c < samples, then global_batch_size   (Megatron-LM's --rampup-batch-size)
class BatchPlan {
public:
    explicit BatchPlan(const BatchConfig& batch);

    /// Samples of the step that begins after `consumed` samples.
    std::int64_t size_at(std::int64_t consumed) const;
    /// Samples consumed `steps` steps later.
    std::int64_t samples_after(std::int64_t consumed, std::int64_t steps) const;
    /// Steps from `consumed` on until at least `samples` samples have been consumed in all; 0 if they have.
    std::int64_t steps_until(std::int64_t consumed, std::int64_t samples) const;

private:
    /// The first count of consumed samples at which the batch has grown `level` times.
    std::int64_t threshold(std::int64_t level) const;
    std::int64_t level_at(std::int64_t consumed) const;

    std::int64_t start_;
    std::int64_t increment_;
    std::int64_t samples_;  ///< 0: constant
    std::int64_t levels_;
};

/// For people: "6 samples (114 tokens)", or from which to which size over how many samples.
std::string describe_batches(const Config& config);

}  // namespace tessera::train

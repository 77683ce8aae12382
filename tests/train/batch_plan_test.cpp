#include "train/batch_plan.h"

#include <gmock/gmock.h>

#include <vector>

namespace tessera::train {
namespace {

using testing::ElementsAre;

BatchConfig ramp(std::int64_t start, std::int64_t increment, std::int64_t samples, std::int64_t global) {
    return {.global_batch_size = global,
            .micro_batch_size = 1,
            .rampup = {.start = start, .increment = increment, .samples = samples}};
}

std::vector<std::int64_t> sizes(const BatchConfig& batch, std::int64_t steps) {
    const BatchPlan plan(batch);
    std::vector<std::int64_t> result;
    for (std::int64_t step = 0, consumed = 0; step < steps; ++step) {
        result.push_back(plan.size_at(consumed));
        consumed += result.back();
    }
    return result;
}

TEST(BatchPlan, WithoutARampEveryStepIsTheSame) {
    const BatchPlan plan({.global_batch_size = 6, .micro_batch_size = 6, .rampup = {}});
    EXPECT_EQ(plan.size_at(0), 6);
    EXPECT_EQ(plan.size_at(1000), 6);
    EXPECT_EQ(plan.samples_after(12, 3), 30);
    EXPECT_EQ(plan.steps_until(12, 30), 3);
    EXPECT_EQ(plan.steps_until(12, 31), 4);
    EXPECT_EQ(plan.steps_until(31, 31), 0);
}

TEST(BatchPlan, GrowsEvenlyOverTheSamples) {
    // From 2 by 2 to 8 over 30 samples: each size holds for 10 of them, and a step that crosses a border keeps its
    // size.
    EXPECT_THAT(sizes(ramp(2, 2, 30, 8), 12), ElementsAre(2, 2, 2, 2, 2, 4, 4, 4, 6, 6, 8, 8));
    // Sizes are passed over if the ramp is short.
    EXPECT_THAT(sizes(ramp(1, 1, 3, 10), 5), ElementsAre(1, 4, 10, 10, 10));
    // 10 samples over 6 sizes: the borders are 1.67, 3.33, 5, 6.67, 8.33 and 10.
    EXPECT_THAT(sizes(ramp(1, 1, 10, 7), 6), ElementsAre(1, 1, 2, 3, 5, 7));
}

TEST(BatchPlan, StepsAndSamplesAgreeWithGoingStepByStep) {
    for (const BatchConfig& batch : {ramp(2, 2, 30, 8), ramp(1, 1, 3, 10), ramp(1, 3, 100, 13), ramp(4, 4, 1, 64)}) {
        const BatchPlan plan(batch);
        for (std::int64_t first = 0; first < 40; ++first) {
            std::int64_t consumed = first;
            for (std::int64_t steps = 0; steps < 40; ++steps) {
                EXPECT_EQ(plan.samples_after(first, steps), consumed);
                const std::int64_t next = consumed + plan.size_at(consumed);
                EXPECT_EQ(plan.steps_until(first, consumed), steps);
                EXPECT_EQ(plan.steps_until(first, consumed + 1), steps + 1);
                EXPECT_EQ(plan.steps_until(first, next), steps + 1);
                consumed = next;
            }
        }
    }
}

TEST(BatchPlan, LargeNumbersFit) {
    constexpr std::int64_t kSamples = std::int64_t{1} << 52;
    const BatchPlan plan(ramp(1, 1, kSamples, 1 << 30));
    EXPECT_EQ(plan.size_at(0), 1);
    EXPECT_EQ(plan.size_at(kSamples / 2), 1 + ((std::int64_t{1} << 30) - 1) / 2);
    EXPECT_EQ(plan.size_at(kSamples - 1), (1 << 30) - 1);
    EXPECT_EQ(plan.size_at(kSamples), 1 << 30);
}

TEST(BatchPlan, TheLengthOfARunCountsItsBatches) {
    Config config;
    config.model.seq_length = 16;
    config.batch = ramp(2, 2, 30, 8);
    config.run.train_steps = 12;
    EXPECT_EQ(total_steps(config), 12);
    EXPECT_EQ(total_tokens(config), (5 * 2 + 3 * 4 + 2 * 6 + 2 * 8) * 16);
    config.run.train_steps = 0;
    config.run.train_tokens = 34 * 16;
    EXPECT_EQ(total_steps(config), 10);
    config.run.train_tokens = 34 * 16 + 1;
    EXPECT_EQ(total_steps(config), 11);
    EXPECT_EQ(total_tokens(config), 42 * 16);
    // What was consumed before, by whatever batches, counts.
    EXPECT_EQ(total_steps(config, 100, 27), 100 + 2);
    EXPECT_EQ(total_steps(config, 100, 35), 100);
}

}  // namespace
}  // namespace tessera::train

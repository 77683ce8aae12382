#include "train/schedule.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numbers>
#include <vector>

namespace tessera::train {
namespace {

using testing::ElementsAre;

OptimizerConfig rates(double lr, double min_lr) {
    OptimizerConfig optimizer;
    optimizer.lr = lr;
    optimizer.min_lr = min_lr;
    return optimizer;
}

std::vector<double> table(const ScheduleConfig& schedule, const OptimizerConfig& optimizer, std::int64_t steps) {
    std::vector<double> result;
    for (std::int64_t t = 0; t < steps; ++t) result.push_back(learning_rate(schedule, optimizer, steps, t));
    return result;
}

MATCHER_P(Near, value, "") {
    return std::abs(arg - value) < 1e-15;
}

TEST(Schedule, CK07_LinearWithWarmupByHand) {
    const ScheduleConfig schedule{.style = ScheduleStyle::linear, .warmup_steps = 3, .decay_steps = 0};
    EXPECT_THAT(table(schedule, rates(0.7, 0.0), 10),
                ElementsAre(Near(0.7 / 3), Near(1.4 / 3), Near(0.7), Near(0.7), Near(0.6), Near(0.5), Near(0.4),
                            Near(0.3), Near(0.2), Near(0.1)));
}

TEST(Schedule, CosineByFormula) {
    const ScheduleConfig schedule{.style = ScheduleStyle::cosine, .warmup_steps = 2, .decay_steps = 10};
    const OptimizerConfig optimizer = rates(1e-3, 1e-4);
    EXPECT_DOUBLE_EQ(learning_rate(schedule, optimizer, 20, 0), 0.5e-3);
    EXPECT_DOUBLE_EQ(learning_rate(schedule, optimizer, 20, 1), 1e-3);
    EXPECT_DOUBLE_EQ(learning_rate(schedule, optimizer, 20, 2), 1e-3);
    EXPECT_DOUBLE_EQ(learning_rate(schedule, optimizer, 20, 6), 5.5e-4);
    EXPECT_DOUBLE_EQ(learning_rate(schedule, optimizer, 20, 9),
                     1e-4 + 4.5e-4 * (1 + std::cos(std::numbers::pi * 7 / 8)));
    EXPECT_DOUBLE_EQ(learning_rate(schedule, optimizer, 20, 10), 1e-4);
    EXPECT_DOUBLE_EQ(learning_rate(schedule, optimizer, 20, 19), 1e-4);
}

TEST(Schedule, WsdIsFlatThenFalls) {
    const ScheduleConfig schedule{
            .style = ScheduleStyle::wsd, .warmup_steps = 1, .decay_steps = 10, .decay_fraction = 0.4};
    EXPECT_THAT(table(schedule, rates(1.0, 0.2), 12),
                ElementsAre(Near(1.0), Near(1.0), Near(1.0), Near(1.0), Near(1.0), Near(1.0), Near(1.0), Near(0.8),
                            Near(0.6), Near(0.4), Near(0.2), Near(0.2)));
    const ScheduleConfig all{.style = ScheduleStyle::wsd, .warmup_steps = 5, .decay_steps = 10, .decay_fraction = 1.0};
    EXPECT_DOUBLE_EQ(learning_rate(all, rates(1.0, 0.0), 10, 5), 1.0);
    EXPECT_DOUBLE_EQ(learning_rate(all, rates(1.0, 0.0), 10, 6), 0.8);
}

TEST(Schedule, InverseSqrtIsContinuousAtTheEndOfWarmup) {
    const ScheduleConfig schedule{.style = ScheduleStyle::inverse_sqrt, .warmup_steps = 4};
    const OptimizerConfig optimizer = rates(1.0, 0.3);
    EXPECT_DOUBLE_EQ(learning_rate(schedule, optimizer, 100, 3), 1.0);
    EXPECT_DOUBLE_EQ(learning_rate(schedule, optimizer, 100, 4), 2.0 / std::sqrt(5.0));
    EXPECT_DOUBLE_EQ(learning_rate(schedule, optimizer, 100, 15), 0.5);
    EXPECT_DOUBLE_EQ(learning_rate(schedule, optimizer, 100, 99), 0.3);
    EXPECT_DOUBLE_EQ(learning_rate({.style = ScheduleStyle::inverse_sqrt}, optimizer, 100, 0), 1.0);
}

TEST(Schedule, ConstantAndEdges) {
    EXPECT_THAT(table({.style = ScheduleStyle::constant, .warmup_steps = 2}, rates(1.0, 0.5), 4),
                ElementsAre(Near(0.5), Near(1.0), Near(1.0), Near(1.0)));
    for (const ScheduleStyle style : {ScheduleStyle::linear, ScheduleStyle::cosine, ScheduleStyle::wsd}) {
        EXPECT_DOUBLE_EQ(learning_rate({.style = style}, rates(1.0, 0.5), 1, 0), 1.0);
        // A warmup longer than the run: finite, rising.
        EXPECT_DOUBLE_EQ(learning_rate({.style = style, .warmup_steps = 100}, rates(1.0, 0.5), 5, 4), 0.05);
        EXPECT_DOUBLE_EQ(learning_rate({.style = style, .warmup_steps = 5}, rates(1.0, 0.5), 5, 5), 0.5);
        EXPECT_DOUBLE_EQ(learning_rate({.style = style}, rates(0.0, 0.0), 5, 3), 0.0);
    }
}

}  // namespace
}  // namespace tessera::train

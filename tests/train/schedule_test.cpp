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

double rate(const ScheduleConfig& schedule, const OptimizerConfig& optimizer, std::int64_t update) {
    return learning_rate(schedule, optimizer, {.at = update});
}

std::vector<double> table(const ScheduleConfig& schedule, const OptimizerConfig& optimizer, std::int64_t steps) {
    std::vector<double> result;
    for (std::int64_t t = 0; t < steps; ++t) result.push_back(rate(schedule, optimizer, t));
    return result;
}

MATCHER_P(Near, value, "") {
    return std::abs(arg - value) < 1e-15;
}

TEST(Schedule, CK07_LinearWithWarmupByHand) {
    const ScheduleConfig schedule{.style = ScheduleStyle::linear, .warmup_steps = 3, .decay_steps = 10};
    EXPECT_THAT(table(schedule, rates(0.7, 0.0), 10),
                ElementsAre(Near(0.7 / 3), Near(1.4 / 3), Near(0.7), Near(0.7), Near(0.6), Near(0.5), Near(0.4),
                            Near(0.3), Near(0.2), Near(0.1)));
}

TEST(Schedule, CosineByFormula) {
    const ScheduleConfig schedule{.style = ScheduleStyle::cosine, .warmup_steps = 2, .decay_steps = 10};
    const OptimizerConfig optimizer = rates(1e-3, 1e-4);
    EXPECT_DOUBLE_EQ(rate(schedule, optimizer, 0), 0.5e-3);
    EXPECT_DOUBLE_EQ(rate(schedule, optimizer, 1), 1e-3);
    EXPECT_DOUBLE_EQ(rate(schedule, optimizer, 2), 1e-3);
    EXPECT_DOUBLE_EQ(rate(schedule, optimizer, 6), 5.5e-4);
    EXPECT_DOUBLE_EQ(rate(schedule, optimizer, 9), 1e-4 + 4.5e-4 * (1 + std::cos(std::numbers::pi * 7 / 8)));
    EXPECT_DOUBLE_EQ(rate(schedule, optimizer, 10), 1e-4);
    EXPECT_DOUBLE_EQ(rate(schedule, optimizer, 19), 1e-4);
}

TEST(Schedule, WsdIsFlatThenFalls) {
    const ScheduleConfig schedule{
            .style = ScheduleStyle::wsd, .warmup_steps = 1, .decay_steps = 10, .decay_fraction = 0.4};
    EXPECT_THAT(table(schedule, rates(1.0, 0.2), 12),
                ElementsAre(Near(1.0), Near(1.0), Near(1.0), Near(1.0), Near(1.0), Near(1.0), Near(1.0), Near(0.8),
                            Near(0.6), Near(0.4), Near(0.2), Near(0.2)));
    const ScheduleConfig all{.style = ScheduleStyle::wsd, .warmup_steps = 5, .decay_steps = 10, .decay_fraction = 1.0};
    EXPECT_DOUBLE_EQ(rate(all, rates(1.0, 0.0), 5), 1.0);
    EXPECT_DOUBLE_EQ(rate(all, rates(1.0, 0.0), 6), 0.8);
}

TEST(Schedule, InverseSqrtIsContinuousAtTheEndOfWarmup) {
    const ScheduleConfig schedule{.style = ScheduleStyle::inverse_sqrt, .warmup_steps = 4};
    const OptimizerConfig optimizer = rates(1.0, 0.3);
    EXPECT_DOUBLE_EQ(rate(schedule, optimizer, 3), 1.0);
    EXPECT_DOUBLE_EQ(rate(schedule, optimizer, 4), 2.0 / std::sqrt(5.0));
    EXPECT_DOUBLE_EQ(rate(schedule, optimizer, 15), 0.5);
    EXPECT_DOUBLE_EQ(rate(schedule, optimizer, 99), 0.3);
    EXPECT_DOUBLE_EQ(rate({.style = ScheduleStyle::inverse_sqrt}, optimizer, 0), 1.0);
}

TEST(Schedule, ConstantAndEdges) {
    EXPECT_THAT(table({.style = ScheduleStyle::constant, .warmup_steps = 2}, rates(1.0, 0.5), 4),
                ElementsAre(Near(0.5), Near(1.0), Near(1.0), Near(1.0)));
    for (const ScheduleStyle style : {ScheduleStyle::linear, ScheduleStyle::cosine, ScheduleStyle::wsd}) {
        EXPECT_DOUBLE_EQ(rate({.style = style, .decay_steps = 1}, rates(1.0, 0.5), 0), 1.0);
        // A warmup longer than the run: finite, rising.
        EXPECT_DOUBLE_EQ(rate({.style = style, .warmup_steps = 100, .decay_steps = 5}, rates(1.0, 0.5), 4), 0.05);
        EXPECT_DOUBLE_EQ(rate({.style = style, .warmup_steps = 5, .decay_steps = 5}, rates(1.0, 0.5), 5), 0.5);
        EXPECT_DOUBLE_EQ(rate({.style = style, .decay_steps = 5}, rates(0.0, 0.0), 3), 0.0);
    }
}

TEST(Schedule, TokensAreStepsWithAConstantBatch) {
    constexpr std::int64_t kTokens = 6 * 19;
    const OptimizerConfig optimizer = rates(3e-3, 1e-4);
    for (const ScheduleStyle style : {ScheduleStyle::constant, ScheduleStyle::linear, ScheduleStyle::cosine,
                                      ScheduleStyle::wsd, ScheduleStyle::inverse_sqrt}) {
        const ScheduleConfig steps{.style = style, .warmup_steps = 4, .decay_steps = 20, .decay_fraction = 0.5};
        const ScheduleConfig tokens{
                .style = style, .warmup_tokens = 4 * kTokens, .decay_tokens = 20 * kTokens, .decay_fraction = 0.5};
        EXPECT_FALSE(steps.in_tokens());
        EXPECT_TRUE(tokens.in_tokens());
        for (std::int64_t t = 0; t < 30; ++t) {
            const double in_steps = learning_rate(steps, optimizer, schedule_position(steps, t, t * kTokens, kTokens));
            const double in_tokens =
                    learning_rate(tokens, optimizer, schedule_position(tokens, t, t * kTokens, kTokens));
            EXPECT_NEAR(in_tokens / in_steps, 1, 1e-15) << name_of(style) << " step " << t;
        }
    }
}

TEST(Schedule, InTokensTheBatchSizeChangesNothing_CK_11) {
    const OptimizerConfig optimizer = rates(1.0, 0.0);
    const ScheduleConfig schedule{.style = ScheduleStyle::linear, .warmup_tokens = 100, .decay_tokens = 1100};
    for (const std::int64_t at : {100, 200, 600, 1099, 1100, 5000}) {
        const double wanted = at >= 1100 ? 0.0 : 1.0 - static_cast<double>(at - 100) / 1000.0;
        for (const std::int64_t width : {10, 64}) {
            // Updates that were skipped make no difference: tokens are counted.
            EXPECT_DOUBLE_EQ(learning_rate(schedule, optimizer, schedule_position(schedule, 3, at, width)), wanted);
        }
    }
    // The warmup counts the step's own tokens and never goes beyond the peak.
    EXPECT_DOUBLE_EQ(learning_rate(schedule, optimizer, {.at = 0, .width = 20}), 0.2);
    EXPECT_DOUBLE_EQ(learning_rate(schedule, optimizer, {.at = 40, .width = 20}), 0.6);
    EXPECT_DOUBLE_EQ(learning_rate(schedule, optimizer, {.at = 90, .width = 20}), 1.0);
}

}  // namespace
}  // namespace tessera::train

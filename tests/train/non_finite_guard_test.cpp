#include "train/non_finite_guard.h"

#include <gmock/gmock.h>

#include <limits>

#include "core/error.h"
#include "temporary_folder.h"

namespace tessera::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Config config_of(core::DType dtype, NonFinitePolicy policy, std::int64_t limit = 2) {
    Config config;
    config.precision.dtype = dtype;
    config.run.non_finite = policy;
    config.run.max_non_finite = limit;
    return config;
}

StepResult result_of(double loss, double grad_norm) {
    StepResult result;
    result.loss = loss;
    result.grad_norm = grad_norm;
    return result;
}

const GuardedStep kStep{.step = 7, .first_sample = 24, .num_samples = 4, .saved_step = 5};

std::string refusal(NonFiniteGuard& guard, const StepResult& result, const GuardedStep& step = kStep) {
    return message_of<core::RunError>([&] { guard.account(result, step); });
}

TEST(NonFiniteGuard, StopsAndNamesEverything_NU_02) {
    NonFiniteGuard guard(config_of(core::DType::bf16, NonFinitePolicy::stop));
    EXPECT_EQ(refusal(guard, result_of(3, 1)), "");
    EXPECT_EQ(guard.nan_steps(), 0);
    StepResult result = result_of(-kNan, kInfinity);
    result.non_finite = zero::NonFiniteTensor{.name = "layers.1.x", .part = zero::NonFinitePart::value, .others = 0};
    EXPECT_THAT(refusal(guard, result),
                AllOf(HasSubstr("step 7: loss nan and gradient norm inf are not finite"),
                      HasSubstr("the value of layers.1.x is not finite, with samples 24 to 27"),
                      HasSubstr("stopped before the update (the last checkpoint, of step 5, is intact)"),
                      HasSubstr("run.non_finite = \"skip\"")));
    // Either of the two is enough.
    EXPECT_THAT(refusal(guard, result_of(3, kNan)), HasSubstr("loss 3 and gradient norm nan"));
    EXPECT_THAT(refusal(guard, result_of(kInfinity, 1), {.step = 1, .num_samples = 1}),
                AllOf(HasSubstr("samples 0 to 0"), HasSubstr("no checkpoint was written yet")));
}

TEST(NonFiniteGuard, SkipsSoManyInARow_NU_02) {
    NonFiniteGuard guard(config_of(core::DType::f32, NonFinitePolicy::skip));
    for (int round = 0; round < 3; ++round) {
        EXPECT_EQ(refusal(guard, result_of(kNan, kNan)), "");
        EXPECT_EQ(refusal(guard, result_of(3, kInfinity)), "");
        EXPECT_EQ(guard.in_a_row(), 2);
        EXPECT_EQ(refusal(guard, result_of(3, 1)), "");
        EXPECT_EQ(guard.in_a_row(), 0);
    }
    EXPECT_EQ(guard.nan_steps(), 6);
    // What was counted before a restart goes on.
    NonFiniteGuard restarted(config_of(core::DType::f32, NonFinitePolicy::skip));
    restarted.restore(6, 1);
    EXPECT_EQ(refusal(restarted, result_of(kNan, kNan)), "");
    EXPECT_THAT(refusal(restarted, result_of(kNan, kNan)),
                AllOf(HasSubstr("step 7: "), HasSubstr("the 2 steps before"), HasSubstr("run.max_non_finite")));
    EXPECT_EQ(restarted.nan_steps(), 8);
}

TEST(NonFiniteGuard, OverflowsOfF16AreTheLossScales_NU_01) {
    for (const NonFinitePolicy policy : {NonFinitePolicy::stop, NonFinitePolicy::skip}) {
        NonFiniteGuard guard(config_of(core::DType::f16, policy));
        for (int i = 0; i < 20; ++i) EXPECT_EQ(refusal(guard, result_of(3, kInfinity)), "");
        EXPECT_EQ(guard.nan_steps(), 0) << "a scale that was too high is no fault";
        for (int i = 0; i < 20; ++i) EXPECT_EQ(refusal(guard, result_of(kNan, kInfinity)), "");
        EXPECT_EQ(guard.nan_steps(), 20);
        StepResult exhausted = result_of(3, kInfinity);
        exhausted.scale_exhausted = true;
        exhausted.non_finite =
                zero::NonFiniteTensor{.name = "layers.0.y", .part = zero::NonFinitePart::gradient, .others = 4};
        if (policy == NonFinitePolicy::skip) {
            EXPECT_EQ(refusal(guard, exhausted), "");
            EXPECT_EQ(refusal(guard, exhausted), "");
        }
        EXPECT_THAT(refusal(guard, exhausted),
                    AllOf(HasSubstr("the loss scale is at its floor of 1"),
                          HasSubstr("the gradient of layers.0.y is not finite (and of 4 more)"),
                          HasSubstr("samples 24 to 27"), HasSubstr("bf16")));
    }
    // A fixed scale mends nothing.
    Config fixed = config_of(core::DType::f16, NonFinitePolicy::stop);
    fixed.precision.loss_scale = {.dynamic = false, .value = 128};
    NonFiniteGuard guard(fixed);
    EXPECT_THAT(refusal(guard, result_of(3, kInfinity)), HasSubstr("step 7"));
}

}  // namespace
}  // namespace tessera::train

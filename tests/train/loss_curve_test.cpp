#include "train/loss_curve.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "core/error.h"
#include "temporary_folder.h"

namespace tessera::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::size_t count_of(const std::string& text, const std::string& part) {
    std::size_t count = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
    return count;
}

LossCurve example(std::int64_t steps) {
    LossCurve curve;
    curve.title = "quickstart <&> \"7M\"";
    for (std::int64_t step = 1; step <= steps; ++step) {
        const double noise = 0.08 * std::sin(static_cast<double>(step * step) * 0.7);
        const double loss = 2.6 + 6.4 * std::exp(-static_cast<double>(step) / 60.0) +
                            1.2 * std::exp(-static_cast<double>(step) / 900.0) + noise;
        curve.training.push_back({static_cast<double>(step), loss});
        if (step % 200 == 0) curve.validation.push_back({static_cast<double>(step), loss + 0.1 - noise});
    }
    curve.references = {{"gzip -9 (2.6 bits per byte)", 3.4}};
    return curve;
}

TEST(LossCurve, HasTitleLegendTicksAndPoints) {
    const std::string svg = loss_curve_svg(example(2400));
    EXPECT_THAT(svg, AllOf(testing::StartsWith("<svg xmlns"), testing::EndsWith("</svg>\n"),
                           HasSubstr("quickstart &lt;&amp;&gt; &quot;7M&quot;"), HasSubstr("training, last "),
                           HasSubstr("validation, last "), HasSubstr("gzip -9"), HasSubstr(">500<"),
                           HasSubstr("loss (nats per token)"), Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
    EXPECT_EQ(count_of(svg, "<circle"), 12U + 1U);
    EXPECT_LT(svg.size(), 120000U);
}

TEST(LossCurve, SmallAndOddInputsDraw) {
    for (const std::int64_t steps : {0, 1, 2, 3, 79, 81}) {
        const std::string svg = loss_curve_svg(example(steps));
        EXPECT_THAT(svg, AllOf(testing::EndsWith("</svg>\n"), Not(HasSubstr("nan")), Not(HasSubstr("inf")))) << steps;
    }
    LossCurve odd;
    odd.training = {{1, 2.0},
                    {2, std::numeric_limits<double>::quiet_NaN()},
                    {3, std::numeric_limits<double>::infinity()},
                    {4, 2.0}};
    odd.references = {{"none", std::numeric_limits<double>::quiet_NaN()}};
    EXPECT_THAT(loss_curve_svg(odd), AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
    LossCurve only_validation;
    only_validation.validation = {{10, 3.0}, {20, 2.0}};
    EXPECT_THAT(loss_curve_svg(only_validation), HasSubstr("validation, last 2"));
}

TEST(LossCurve, LongRunsStaySmall) {
    EXPECT_LT(loss_curve_svg(example(200000)).size(), 400000U);
}

TEST(LossCurve, FromMetricsToAFile) {
    TemporaryFolder folder;
    MetricsHistory history;
    StepMetrics step;
    step.step = 3;
    step.loss = 1.5;
    history.steps.push_back(step);
    history.evaluations.push_back(
            {.step = 3, .consumed_samples = 0, .tokens = 0, .loss = 1.25, .perplexity = 0, .bits_per_byte = {}});
    const LossCurve curve = loss_curve_of(history, "t");
    ASSERT_EQ(curve.training.size(), 1U);
    EXPECT_EQ(curve.training[0].step, 3);
    ASSERT_EQ(curve.validation.size(), 1U);
    EXPECT_EQ(curve.validation[0].loss, 1.25);
    write_loss_curve(folder.path("loss.svg"), curve);
    EXPECT_EQ(read_bytes(folder.path("loss.svg")), loss_curve_svg(curve));
    EXPECT_THAT(message_of<core::EnvironmentError>([&] { write_loss_curve(folder.path("no/loss.svg"), curve); }),
                HasSubstr("no/loss.svg"));
}

}  // namespace
}  // namespace tessera::train

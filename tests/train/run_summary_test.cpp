#include "train/run_summary.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

namespace tessera::train {
namespace {

using testing::HasSubstr;
using testing::Not;

EvaluationMetrics evaluation(std::int64_t step, double loss) {
    return {.step = step, .loss = loss, .perplexity = std::exp(loss), .bits_per_byte = loss / 2};
}

/// 100 steps of 50 tokens; 10 s in steps, 20 s of evaluation, 30 s of saving, 2 s of other things.
RunSummary example() {
    RunSummary summary;
    summary.steps = 100;
    summary.last_step = 100;
    summary.total_steps = 100;
    summary.tokens = 5000;
    summary.wall_seconds = 62;
    summary.seconds = 10;
    summary.data_wait_seconds = 0.5;
    summary.evaluation_seconds = 20;
    summary.saving_seconds = 30;
    summary.model_flops = 4e11;
    summary.ceiling = {.flops_s = 8e10, .dtype = core::DType::f32, .size = 1024};
    summary.last_loss = 2.25;
    summary.validation = evaluation(100, 2.5);
    summary.best_validation = evaluation(80, 2.4);
    summary.profile.memory.peak_bytes = 3 << 20;
    summary.profile.peak_resident_bytes = 9 << 20;
    summary.profile.steps = 100;
    summary.profile.seconds = 10;
    summary.loss_curve = "RUN/loss.svg";
    summary.checkpoint = "RUN/checkpoints/step_00000100";
    summary.tensorboard = "RUN/tensorboard";
    return summary;
}

TEST(RunSummary, RatesAreOfTheTimeInSteps_LO_03) {
    const std::string text = summary_text(example());
    EXPECT_THAT(text, HasSubstr("finished at step 100 of 100: trained 100 steps, 5000 tokens; last loss 2.2500\n"));
    // Were evaluation or saving in it, the rate would be 81 tokens/s.
    EXPECT_THAT(text, HasSubstr("in steps     500 tokens/s, 40.0 model GFLOP/s, waiting for data 5.0 %\n"));
    EXPECT_THAT(text, HasSubstr("time         62.0 s: steps 10.0 s (16.1 %), evaluation 20.0 s, saving 30.0 s, "
                                "other 2.0 s\n"));
    EXPECT_THAT(text, HasSubstr("utilisation  50.0 % of 80.0 GFLOP/s, the best matrix product now (f32, 1024 x "
                                "1024)\n"));
}

TEST(RunSummary, SaysWhereEverythingIs) {
    const std::string text = summary_text(example());
    EXPECT_THAT(text, HasSubstr("validation   loss 2.5000, perplexity 12.18, bits per byte 1.2500, at step 100\n"));
    EXPECT_THAT(text, HasSubstr("best         loss 2.4000, perplexity 11.02, bits per byte 1.2000, at step 80\n"));
    EXPECT_THAT(text, HasSubstr("peak memory  3.0 MiB of tensors, 9.0 MiB resident\n"));
    EXPECT_THAT(text, HasSubstr("loss curve   RUN/loss.svg\n"));
    EXPECT_THAT(text, HasSubstr("checkpoint   RUN/checkpoints/step_00000100\n"));
    EXPECT_THAT(text, HasSubstr("TensorBoard  RUN/tensorboard\n"));
    EXPECT_THAT(text, Not(HasSubstr("skipped")));
}

TEST(RunSummary, LeavesOutWhatThereIsNot) {
    RunSummary summary = example();
    summary.ceiling = {};
    summary.validation.reset();
    summary.best_validation.reset();
    summary.loss_curve.clear();
    summary.tensorboard.clear();
    summary.skipped_steps = 4;
    const std::string text = summary_text(summary);
    for (const char* absent : {"utilisation", "validation", "best", "loss curve", "TensorBoard"}) {
        EXPECT_THAT(text, Not(HasSubstr(absent)));
    }
    EXPECT_THAT(text, HasSubstr("skipped      4 steps\n"));
}

TEST(RunSummary, TheLastEvaluationMayBeTheBest) {
    RunSummary summary = example();
    summary.best_validation = summary.validation;
    const std::string text = summary_text(summary);
    EXPECT_THAT(text, HasSubstr("at step 100 (the best)\n"));
    EXPECT_THAT(text, Not(HasSubstr("best  ")));
}

TEST(RunSummary, AnInterruptedRunSaysSo) {
    RunSummary summary = example();
    summary.total_steps = 400;
    EXPECT_THAT(summary_text(summary), HasSubstr("stopped after step 100 of 400: trained 100 steps, "));
    summary.steps = 0;
    EXPECT_EQ(summary_text(summary), "stopped after step 100 of 400: nothing was trained\n");
    summary.total_steps = 100;
    EXPECT_THAT(summary_text(summary), HasSubstr("nothing was trained: the run is at its last step; "));
    EXPECT_EQ(profile_text(summary), "");
}

TEST(RunSummary, TheProfileEndsWithTheWholeRun) {
    const std::string text = profile_text(example());
    EXPECT_THAT(text, HasSubstr("\nsteps                                      10.00   16.1%\n"));
    EXPECT_THAT(text, HasSubstr("\nevaluation                                 20.00   32.3%\n"));
    EXPECT_THAT(text, HasSubstr("\nsaving                                     30.00   48.4%\n"));
    EXPECT_THAT(text, HasSubstr("\nother: starting, logging, drawing           2.00    3.2%\n"));
    EXPECT_THAT(text, HasSubstr("\nwhole run                                  62.00  100.0%\n"));
}

TEST(RunSummary, TheBestEvaluationHasTheLeastLoss) {
    MetricsHistory history;
    EXPECT_FALSE(best_evaluation(history).has_value());
    history.evaluations = {evaluation(1, std::numeric_limits<double>::quiet_NaN()), evaluation(2, 3), evaluation(3, 2),
                           evaluation(4, 2), evaluation(5, 2.5)};
    ASSERT_TRUE(best_evaluation(history).has_value());
    EXPECT_EQ(best_evaluation(history)->step, 3);
}

}  // namespace
}  // namespace tessera::train

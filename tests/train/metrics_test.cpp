#include "train/metrics.h"

#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "core/error.h"
#include "temporary_folder.h"

namespace tessera::train {
namespace {

using testing::HasSubstr;

StepMetrics step_at(std::int64_t step) {
    StepMetrics metrics;
    metrics.step = step;
    metrics.total_steps = 20;
    metrics.consumed_samples = 4 * step;
    metrics.consumed_tokens = 64 * step;
    metrics.global_batch_size = 4;
    metrics.loss = 1.0 / (3.0 + static_cast<double>(step));
    metrics.grad_norm = 0.1;
    metrics.learning_rate = 1e-3 / 7.0;
    metrics.loss_scale = 65536;
    metrics.skipped = step == 2;
    metrics.skipped_steps = 1;
    metrics.nan_steps = 0;
    metrics.elapsed_ms = 12.5;
    metrics.tokens_per_s = 5120;
    metrics.tflops = 0.01;
    metrics.evaluation_ms = 3;
    metrics.checkpoint_ms = 4;
    return metrics;
}

EvaluationMetrics evaluation_at(std::int64_t step) {
    return {.step = step,
            .consumed_samples = 4 * step,
            .tokens = 100,
            .loss = 2.5,
            .perplexity = std::exp(2.5),
            .bits_per_byte = 1.25,
            .elapsed_ms = 7};
}

std::vector<std::int64_t> steps_of(const MetricsHistory& history) {
    std::vector<std::int64_t> steps;
    for (const StepMetrics& metrics : history.steps) steps.push_back(metrics.step);
    return steps;
}

TEST(Metrics, EveryFieldReadsBackToTheSameBits) {
    TemporaryFolder folder;
    const std::string path = folder.path("metrics.jsonl");
    {
        MetricsWriter writer(path, 0);
        writer.write(step_at(1));
        writer.write(evaluation_at(1));
        StepMetrics bad = step_at(2);
        bad.loss = std::numeric_limits<double>::quiet_NaN();
        bad.grad_norm = std::numeric_limits<double>::infinity();
        writer.write(bad);
        EvaluationMetrics plain = evaluation_at(2);
        plain.bits_per_byte.reset();
        writer.write(plain);
    }
    const MetricsHistory history = read_metrics(path);
    ASSERT_EQ(history.steps.size(), 2U);
    ASSERT_EQ(history.evaluations.size(), 2U);
    EXPECT_EQ(to_json(history.steps[0]), to_json(step_at(1)));
    EXPECT_EQ(history.steps[0].loss, 0.25);
    EXPECT_EQ(history.steps[0].learning_rate, 1e-3 / 7.0);
    EXPECT_TRUE(history.steps[1].skipped);
    EXPECT_TRUE(std::isnan(history.steps[1].loss));
    EXPECT_EQ(to_json(history.evaluations[0]), to_json(evaluation_at(1)));
    EXPECT_FALSE(history.evaluations[1].bits_per_byte.has_value());
    EXPECT_THAT(to_json(step_at(3)), HasSubstr("\"step\":3,"));
    EXPECT_EQ(to_json(step_at(3)).find('\n'), std::string::npos);
}

TEST(Metrics, ResumeDropsLaterRecordsAndTheCutLine) {
    TemporaryFolder folder;
    const std::string path = folder.path("metrics.jsonl");
    {
        MetricsWriter writer(path, 0);
        for (std::int64_t step = 1; step <= 7; ++step) writer.write(step_at(step));
        writer.write(evaluation_at(5));
        writer.write(evaluation_at(6));
    }
    const std::string whole = read_bytes(path);
    write_bytes(path, whole + "{\"step\":8,\"to");
    EXPECT_EQ(read_metrics(path).steps.size(), 7U);
    {
        MetricsWriter writer(path, 5);
        EXPECT_THAT(steps_of(read_metrics(path)), testing::ElementsAre(1, 2, 3, 4, 5));
        EXPECT_EQ(read_metrics(path).evaluations.size(), 1U);
        writer.write(step_at(6));
    }
    EXPECT_THAT(steps_of(read_metrics(path)), testing::ElementsAre(1, 2, 3, 4, 5, 6));
    EXPECT_EQ(read_bytes(path).find("to\n"), std::string::npos);
}

TEST(Metrics, AnyCutOfTheLastLineIsTolerated) {
    TemporaryFolder folder;
    const std::string path = folder.path("metrics.jsonl");
    const std::string first = to_json(step_at(1)) + "\n";
    const std::string second = to_json(step_at(2)) + "\n";
    for (const std::size_t cut :
         {std::size_t{0}, std::size_t{1}, second.size() / 2, second.size() - 2, second.size() - 1}) {
        write_bytes(path, first + second.substr(0, cut));
        MetricsWriter writer(path, 1);
        writer.write(step_at(2));
        EXPECT_EQ(read_bytes(path), first + second) << cut;
    }
}

TEST(Metrics, StartingAnewKeepsTheOldRecord) {
    TemporaryFolder folder;
    const std::string path = folder.path("metrics.jsonl");
    for (std::int64_t run = 1; run <= 3; ++run) {
        MetricsWriter writer(path, 0);
        writer.write(step_at(run));
    }
    EXPECT_THAT(steps_of(read_metrics(path)), testing::ElementsAre(3));
    EXPECT_THAT(steps_of(read_metrics(folder.path("metrics.previous-1.jsonl"))), testing::ElementsAre(1));
    EXPECT_THAT(steps_of(read_metrics(folder.path("metrics.previous-2.jsonl"))), testing::ElementsAre(2));
}

TEST(Metrics, DamageInTheMiddleNamesTheLine) {
    TemporaryFolder folder;
    const std::string path = folder.path("metrics.jsonl");
    write_bytes(path, to_json(step_at(1)) + "\nnot json\n" + to_json(step_at(3)) + "\n");
    EXPECT_THAT(message_of<core::DataError>([&] { read_metrics(path); }),
                HasSubstr("metrics.jsonl:2: this line is not a record"));
    EXPECT_THAT(message_of<core::DataError>([&] { MetricsWriter writer(path, 2); }), HasSubstr("metrics.jsonl:2:"));
    EXPECT_THAT(
            message_of<core::EnvironmentError>([&] { MetricsWriter writer(folder.path("absent/metrics.jsonl"), 0); }),
            HasSubstr("absent/metrics.jsonl"));
}

}  // namespace
}  // namespace tessera::train

#include "train/log_line.h"

#include <gmock/gmock.h>

#include <regex>

namespace tessera::train {
namespace {

StepMetrics example() {
    StepMetrics metrics;
    metrics.step = 12;
    metrics.total_steps = 1000;
    metrics.consumed_samples = 768;
    metrics.elapsed_ms = 1234.56;
    metrics.tflops = 123.45;
    metrics.learning_rate = 1.5e-4;
    metrics.global_batch_size = 64;
    metrics.loss = 9.1234567;
    metrics.loss_scale = 65536;
    metrics.grad_norm = 1.23456;
    metrics.skipped_steps = 2;
    return metrics;
}

TEST(LogLine, ExactForm) {
    EXPECT_EQ(
            log_line(example()),
            " iteration       12/    1000 | consumed samples:          768 | elapsed time per iteration (ms): 1234.6 |"
            " throughput per GPU (TFLOP/s/GPU): 123.5 | learning rate: 1.500000E-04 | global batch size:    64 |"
            " lm loss: 9.123457E+00 | loss scale: 65536.0 | grad norm: 1.235 | number of skipped iterations:   2 |"
            " number of nan iterations:   0 |");
}

TEST(LogLine, TimestampStandsInBrackets) {
    EXPECT_EQ(log_line(example(), "2026-08-22 15:22:22.123456").substr(0, 41),
              " [2026-08-22 15:22:22.123456] iteration  ");
    EXPECT_TRUE(std::regex_match(timestamp_now(), std::regex(R"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6})")));
}

TEST(LogLine, WhatPeopleParseItWithMatches) {
    const std::regex pattern(
            R"(iteration\s+(\d+)/\s*(\d+) \| consumed samples:\s+(\d+) \| elapsed time per iteration \(ms\): )"
            R"(([\d.]+) \| throughput per GPU \(TFLOP/s/GPU\): ([\d.]+) \| learning rate: ([\d.E+-]+) \| )"
            R"(global batch size:\s+(\d+) \| lm loss: ([\d.E+-]+) \| loss scale: ([\d.]+) \| grad norm: ([\d.]+) \|)");
    StepMetrics laptop = example();
    laptop.tflops = 0.0427;
    const std::string line = log_line(laptop);
    std::smatch match;
    ASSERT_TRUE(std::regex_search(line, match, pattern));
    EXPECT_EQ(match[1], "12");
    EXPECT_EQ(match[5], "0.043");
    EXPECT_DOUBLE_EQ(std::stod(match[8]), 9.123457);
}

TEST(LogLine, Evaluation) {
    EvaluationMetrics metrics{
            .step = 5, .consumed_samples = 20, .tokens = 10, .loss = 2.0, .perplexity = 7.389056, .bits_per_byte = {}};
    EXPECT_EQ(log_line(metrics),
              " validation loss at iteration 5 | consumed samples:           20 | lm loss value: 2.000000E+00 |"
              " lm loss PPL: 7.389056E+00 |");
    metrics.bits_per_byte = 1.23456;
    EXPECT_THAT(log_line(metrics), testing::EndsWith(" bits per byte: 1.2346 |"));
}

}  // namespace
}  // namespace tessera::train

#include "train/log_line.h"

#include <gmock/gmock.h>

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
    EXPECT_THAT(timestamp_now(),
                testing::MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}[.][0-9]{6}"));
}

TEST(LogLine, WhatPeopleParseItWithMatches) {
    StepMetrics laptop = example();
    laptop.tflops = 0.0427;
    EXPECT_THAT(log_line(laptop),
                testing::ContainsRegex(
                        "iteration +12/ *1000 [|] consumed samples: +[0-9]+ [|] elapsed time per iteration [(]ms[)]: "
                        "[0-9.]+ [|] throughput per GPU [(]TFLOP/s/GPU[)]: 0[.]043 [|] learning rate: [0-9.E+-]+ [|] "
                        "global batch size: +[0-9]+ [|] lm loss: 9[.]123457E[+]00 [|] loss scale: [0-9.]+ [|] "
                        "grad norm: [0-9.]+ [|]"));
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

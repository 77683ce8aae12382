#pragma once
#include <string>
#include <string_view>

#include "train/metrics.h"

namespace tessera::train {

/// The line a step prints to a log, in the form Megatron-LM's users parse:
/// ` [TIMESTAMP] iteration       12/    1000 | consumed samples:          768 | elapsed time per iteration (ms): … |
/// throughput per GPU (TFLOP/s/GPU): … | learning rate: … | global batch size: … | lm loss: … | loss scale: … |
/// grad norm: … | number of skipped iterations: … | number of nan iterations: … |`
/// The throughput has three decimals below 10 TFLOP/s, so that a laptop does not read 0.0. An empty timestamp is left
/// out with its brackets.
std::string log_line(const StepMetrics& metrics, std::string_view timestamp = {});

/// ` validation loss at iteration 12 | consumed samples: … | lm loss value: … | lm loss PPL: … | bits per byte: … |`
std::string log_line(const EvaluationMetrics& metrics);

/// NaN has a sign that says nothing; printed, "-nan" would be one more word to parse.
double without_sign_of_nan(double value);

/// Local time, "2026-08-22 15:22:22.123456".
std::string timestamp_now();

}  // namespace tessera::train

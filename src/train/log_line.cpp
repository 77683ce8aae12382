#include "train/log_line.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <ctime>
#include <limits>

namespace tessera::train {

double without_sign_of_nan(double value) {
    return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
}

std::string log_line(const StepMetrics& metrics, std::string_view timestamp) {
    std::string line = timestamp.empty() ? std::string(" ") : fmt::format(" [{}] ", timestamp);
    const int decimals = metrics.tflops < 10 ? 3 : 1;
    line += fmt::format("iteration {:8d}/{:8d} | consumed samples: {:12d} | elapsed time per iteration (ms): {:.1f} |",
                        metrics.step, metrics.total_steps, metrics.consumed_samples, metrics.elapsed_ms);
    line += fmt::format(
            " throughput per GPU (TFLOP/s/GPU): {:.{}f} | learning rate: {:.6E} | global batch size: {:5d} |",
            metrics.tflops, decimals, metrics.learning_rate, metrics.global_batch_size);
    line += fmt::format(" lm loss: {:.6E} | loss scale: {:.1f} | grad norm: {:.3f} |",
                        without_sign_of_nan(metrics.loss), metrics.loss_scale, without_sign_of_nan(metrics.grad_norm));
    line += fmt::format(" number of skipped iterations: {:3d} | number of nan iterations: {:3d} |",
                        metrics.skipped_steps, metrics.nan_steps);
    return line;
}

std::string log_line(const EvaluationMetrics& metrics) {
    std::string line =
            fmt::format(" validation loss at iteration {} | consumed samples: {:12d} | lm loss value: {:.6E} |",
                        metrics.step, metrics.consumed_samples, without_sign_of_nan(metrics.loss));
    line += fmt::format(" lm loss PPL: {:.6E} |", without_sign_of_nan(metrics.perplexity));
    if (metrics.bits_per_byte) {
        line += fmt::format(" bits per byte: {:.4f} |", without_sign_of_nan(*metrics.bits_per_byte));
    }
    return line;
}

std::string timestamp_now() {
    const auto now = std::chrono::system_clock::now();
    const auto since_epoch = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count();
    const auto seconds = static_cast<std::time_t>(since_epoch / 1000000);
    std::tm local{};
    localtime_r(&seconds, &local);
    return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:06}", local.tm_year + 1900, local.tm_mon + 1,
                       local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec, since_epoch % 1000000);
}

}  // namespace tessera::train

#include "train/run_report.h"

#include <unistd.h>

#include <cstdio>

#include "core/log.h"
#include "train/log_line.h"

namespace tessera::train {

std::string tensorboard_folder(const Config& config) {
    return config.log.tensorboard_directory.empty() ? config.run.directory + "/tensorboard"
                                                    : config.log.tensorboard_directory;
}

RunReport::RunReport(const Config& config, const std::string& run_directory, std::int64_t resumed_step,
                     std::int64_t total_steps)
    : writer_(run_directory + "/metrics.jsonl", resumed_step),
      style_(resolve_progress(config.log.progress, STDERR_FILENO)),
      interval_(config.log.interval) {
    if (config.log.tensorboard) tensorboard_.emplace(tensorboard_folder(config), resumed_step);
    if (style_ == ProgressStyle::bar) bar_ = std::make_unique<ProgressBar>(STDERR_FILENO, resumed_step, total_steps);
}

RunReport::~RunReport() = default;

void RunReport::step(StepMetrics metrics) {
    writer_.write(metrics);
    if (tensorboard_) tensorboard_->write(metrics);
    ++steps_since_line_;
    ms_since_line_ += metrics.elapsed_ms;
    tflop_ms_since_line_ += metrics.tflops * metrics.elapsed_ms;
    if (bar_) {
        bar_->update(metrics);
    } else if (style_ == ProgressStyle::lines &&
               (metrics.step % interval_ == 0 || metrics.step == metrics.total_steps)) {
        std::fprintf(stdout, "%s\n", log_line(over_interval(metrics), timestamp_now()).c_str());
        std::fflush(stdout);
    }
}

StepMetrics RunReport::over_interval(StepMetrics metrics) {
    metrics.elapsed_ms = ms_since_line_ / static_cast<double>(steps_since_line_);
    metrics.tflops = tflop_ms_since_line_ / ms_since_line_;
    steps_since_line_ = 0;
    ms_since_line_ = 0;
    tflop_ms_since_line_ = 0;
    return metrics;
}

void RunReport::evaluation(const EvaluationMetrics& metrics) {
    writer_.write(metrics);
    if (tensorboard_) tensorboard_->write(metrics);
    if (bar_) {
        bar_->message(log_line(metrics));
    } else if (style_ == ProgressStyle::lines) {
        std::fprintf(stdout, "%s\n", log_line(metrics).c_str());
        std::fflush(stdout);
    }
}

void RunReport::message(const std::string& text) {
    if (bar_) {
        bar_->log(core::LogLevel::info, text);
    } else {
        core::log_info(text);
    }
}

void RunReport::warning(const std::string& text) {
    if (bar_) {
        bar_->log(core::LogLevel::warning, text);
    } else {
        core::log_warning(text);
    }
}

void RunReport::finish() {
    if (bar_) bar_->finish();
}

}  // namespace tessera::train

#pragma once
#include <memory>
#include <optional>
#include <string>

#include "train/config.h"
#include "train/metrics.h"
#include "train/progress.h"
#include "train/tensorboard_writer.h"

namespace tessera::train {

/// Where the event files of a run go: log.tensorboard_directory, or RUN/tensorboard.
std::string tensorboard_folder(const Config& config);

/// Where a run's numbers go: metrics.jsonl always, TensorBoard's event files unless log.tensorboard is off, and to
/// people a progress bar on a terminal or the field's log line.
class RunReport {
public:
    RunReport(const Config& config, const std::string& run_directory, std::int64_t resumed_step,
              std::int64_t total_steps);
    ~RunReport();

    void step(StepMetrics metrics);
    void evaluation(const EvaluationMetrics& metrics);
    /// A line for people, above a bar if there is one.
    void message(const std::string& text);
    void warning(const std::string& text);
    void finish();

private:
    /// The step's record as a log line shows it: time and throughput are those of the steps since the line before.
    StepMetrics over_interval(StepMetrics metrics);

    MetricsWriter writer_;
    std::optional<TensorBoardWriter> tensorboard_;
    ProgressStyle style_;
    std::int64_t interval_;
    std::int64_t steps_since_line_ = 0;
    double ms_since_line_ = 0;
    double tflop_ms_since_line_ = 0;
    std::unique_ptr<ProgressBar> bar_;
};

}  // namespace tessera::train

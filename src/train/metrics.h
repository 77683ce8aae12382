#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/append_file.h"

namespace tessera::train {

/// What one optimizer step reports. Counters are totals since the beginning of the run, this step included.
struct StepMetrics {
    std::int64_t step = 0;  ///< 1-based: steps done
    std::int64_t total_steps = 0;
    std::int64_t total_samples = 0;  ///< consumed at the end; for the time left, not written; 0: unknown
    std::int64_t consumed_samples = 0;
    std::int64_t consumed_tokens = 0;
    std::int64_t global_batch_size = 0;
    double loss = 0;       ///< nats per token over the global batch
    double grad_norm = 0;  ///< before clipping
    double learning_rate = 0;
    double loss_scale = 1;
    bool skipped = false;  ///< the update was skipped because of an overflow
    std::int64_t skipped_steps = 0;
    std::int64_t nan_steps = 0;
    double elapsed_ms = 0;     ///< per step; without evaluation and saving
    double tokens_per_s = 0;   ///< tokens of the step / elapsed
    double tflops = 0;         ///< model TFLOP/s per device: causal half of attention, without recomputation
    double evaluation_ms = 0;  ///< spent on evaluation since the last record
    double checkpoint_ms = 0;  ///< spent on saving since the last record
};

struct EvaluationMetrics {
    std::int64_t step = 0;
    std::int64_t consumed_samples = 0;
    std::int64_t tokens = 0;  ///< loss-carrying tokens evaluated
    double loss = 0;          ///< nats per token
    double perplexity = 0;    ///< exp(loss)
    std::optional<double> bits_per_byte;
    double elapsed_ms = 0;
};

struct MetricsHistory {
    std::vector<StepMetrics> steps;
    std::vector<EvaluationMetrics> evaluations;
};

/// One line of JSON, without the line end. Numbers are the shortest text that reads back to the same bits; a
/// non-finite number is null.
std::string to_json(const StepMetrics& metrics);
std::string to_json(const EvaluationMetrics& metrics);

/// Appends to metrics.jsonl, one record a line, each written by one call so that a kill leaves at most the last line
/// cut short.
class MetricsWriter {
public:
    /// resumed_step  the step training continues after. Records beyond it (of steps done again) and a cut last line are
    ///               dropped, so that the file stays one clean record of the run. At 0, an older file with records is
    ///               kept under the name metrics.previous-N.jsonl.
    /// Throws EnvironmentError if the file cannot be written, DataError if a line before the last is not a record.
    MetricsWriter(std::string path, std::int64_t resumed_step);

    void write(const StepMetrics& metrics);
    void write(const EvaluationMetrics& metrics);
    const std::string& path() const { return file_.path(); }

private:
    AppendFile file_;
};

/// Reads metrics.jsonl; a last line cut by a crash is ignored.
/// Throws DataError with file and line for anything else that is not a record.
MetricsHistory read_metrics(const std::string& path);

}  // namespace tessera::train

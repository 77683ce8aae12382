#pragma once
#include <cstdint>
#include <string>

#include "train/append_file.h"
#include "train/metrics.h"

namespace tessera::train {

/// A run's scalars for TensorBoard, under the tags that Megatron-LM's users look for: `lm loss`, `learning-rate`,
/// `grad-norm`, `loss-scale`, `batch-size`, `throughput` (model TFLOP/s per device), `iteration-time` (s),
/// `tokens-per-second`; of an evaluation `lm loss validation`, `lm loss validation ppl`,
/// `lm loss validation bits per byte`. The points' step is the number of steps done.
class TensorBoardWriter {
public:
    /// Opens a new file events.out.tfevents.TIMESTAMP.HOST.PID.N in `folder` (made if it is not there), whose name
    /// comes after those of the files already there. It begins with a session start, by which a reader forgets the
    /// points of older files beyond `resumed_step`.
    /// Throws EnvironmentError if the folder or the file cannot be made.
    TensorBoardWriter(const std::string& folder, std::int64_t resumed_step);

    void write(const StepMetrics& metrics);
    void write(const EvaluationMetrics& metrics);
    const std::string& path() const { return file_.path(); }

private:
    AppendFile file_;
};

}  // namespace tessera::train

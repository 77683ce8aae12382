#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "core/error.h"
#include "train/matmul_ceiling.h"
#include "train/metrics.h"
#include "train/profile_table.h"

namespace tessera::train {

/// What a run has to say when it ends, whether it was finished or interrupted. Times, steps and tokens are of this
/// process; steps that an earlier one did are not among them.
struct RunSummary {
    std::int64_t steps = 0;
    std::int64_t last_step = 0;  ///< steps done since the beginning of the run
    std::int64_t total_steps = 0;
    std::int64_t tokens = 0;
    double wall_seconds = 0;       ///< of the whole run: steps, evaluation, saving and what surrounds them
    double seconds = 0;            ///< in steps: without evaluation and saving
    double data_wait_seconds = 0;  ///< of those, waiting for the reader
    double evaluation_seconds = 0;
    double saving_seconds = 0;
    double model_flops = 0;  ///< of all steps: causal half of attention, without recomputation
    MatmulCeiling ceiling;
    double last_loss = 0;
    std::optional<EvaluationMetrics> validation;       ///< the last one
    std::optional<EvaluationMetrics> best_validation;  ///< of the whole run: the least loss
    std::int64_t skipped_steps = 0;                    ///< of the whole run
    Profile profile;                                   ///< with the memory that the summary names
    std::string loss_curve;                            ///< path of the SVG, empty if none was written
    std::string checkpoint;                            ///< the last checkpoint written
    std::string tensorboard;                           ///< folder of the event files, empty if none were written
    core::ExitCode exit_code = core::ExitCode::success;
};

/// Runs with less time in steps than this are not worth measuring the machine for.
inline constexpr double kSecondsWorthACeiling = 5;

/// The summary for people, a line for each thing. All rates are of the time in steps, without evaluation and saving.
std::string summary_text(const RunSummary& summary);

/// The tables of --profile: operations, memory, and where the run's wall time went. Empty if no step was done.
std::string profile_text(const RunSummary& summary);

/// The evaluation with the least loss; the first of equals. Losses that are not finite are passed over.
std::optional<EvaluationMetrics> best_evaluation(const MetricsHistory& history);

}  // namespace tessera::train

#pragma once
#include <memory>

#include "train/checkpoint_files.h"
#include "train/config.h"
#include "train/engine.h"
#include "train/non_finite_guard.h"
#include "train/run_data.h"
#include "train/run_report.h"
#include "train/run_summary.h"
#include "train/stop_request.h"

namespace tessera::train {

/// One training run from a config: opens the data, resumes or starts, trains, evaluates, saves, reports.
class TrainingRun {
public:
    /// Opens and checks what the run reads: data, model, resume point. Writes nothing.
    explicit TrainingRun(Config config);

    /// What will happen, a line each, for people: model, data, memory, where things go.
    std::vector<std::string> describe() const;
    /// Trains to the end, or to the step during which a stop was requested or the time of run.exit_minutes, counted
    /// from the constructor, was over; a checkpoint is written in each case. Throws RunError as NonFiniteGuard; the
    /// last checkpoint is left as it was.
    RunSummary run(const StopRequest& stop);

private:
    void resume();
    void prepare_folders();
    void train_one_step(RunReport& report);
    void evaluate(RunReport& report);
    void save(RunReport& report);
    CheckpointState checkpoint_state() const;
    bool evaluates_after(std::int64_t step) const;
    void finish(RunReport& report, bool stopped);
    void summarise();

    double started_s_;
    Config config_;
    RunData data_;
    std::unique_ptr<Engine> engine_;
    NonFiniteGuard guard_;
    std::int64_t total_steps_ = 0;
    std::int64_t total_samples_ = 0;  ///< consumed at the end
    std::int64_t step_ = 0;
    std::int64_t consumed_samples_ = 0;
    std::int64_t skipped_steps_ = 0;
    std::int64_t resumed_step_ = 0;
    std::int64_t saved_step_ = -1;
    double evaluation_ms_ = 0;
    double checkpoint_ms_ = 0;
    std::string start_description_;
    std::string started_from_;  ///< the checkpoint resumed from, or of the weights; empty: none
    RunSummary summary_;
};

}  // namespace tessera::train

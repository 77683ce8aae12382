#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/batch_reader.h"
#include "data/dataset.h"
#include "train/checkpoint_files.h"
#include "train/config.h"

namespace tessera::train {

/// The data of a run: shuffled training samples read ahead by a thread, and validation samples in order.
struct RunData {
    std::unique_ptr<data::TokenDataset> training;
    std::unique_ptr<data::TokenDataset> validation;  ///< null: none configured
    std::unique_ptr<data::BatchReader> reader;
    std::vector<std::string> blend_changes;  ///< since the checkpoint that the run goes on from
};

/// Opens and checks every shard and the tokenizer; sets config.model.vocab_size if it was not given.
/// Throws DataError or ConfigError naming the file and the numbers that disagree.
RunData open_run_data(Config& config);

/// The blend's state for a checkpoint, and the way back: each source goes on after the samples it has given, although
/// data.train may have changed since. A checkpoint without that state is of the blend that is configured now.
/// take_up_blend throws CheckpointError if the state cannot be read.
void keep_blend(const RunData& data, CheckpointState& state);
void take_up_blend(RunData& data, const CheckpointState& state);

/// Lines for people: sources, samples, epochs, shares, and what changed in the blend.
std::vector<std::string> describe_run_data(const RunData& data, const Config& config, std::int64_t steps_left,
                                           std::int64_t consumed_samples);

/// Starts the reader at a position of the run; its batches have the sizes of BatchPlan.
void start_reading(RunData& data, const Config& config, std::int64_t consumed_samples);
data::Batch next_batch(RunData& data);

/// Calls visit for each validation batch: the same samples in the same order each time.
void for_each_validation_batch(const RunData& data, const Config& config,
                               const std::function<void(const data::Batch&)>& visit);

/// nats per token -> bits per byte of the validation text; nothing if the shards do not say how many bytes they hold.
std::optional<double> validation_bits_per_byte(const RunData& data, double nats_per_token);

/// Copies the tokenizer's model into the run's folder, so that the run can be generated from wherever it goes.
void keep_tokenizer(const Config& config);

}  // namespace tessera::train

#pragma once
#include <optional>
#include <string>

#include "train/checkpoint_files.h"
#include "train/config.h"

namespace tessera::train {

/// What a run begins with.
struct StartPoint {
    std::optional<CheckpointReader> checkpoint;  ///< nothing: initial parameters
    LoadParts load = LoadParts::all;             ///< weights_only: a fresh start with these parameters
    std::string description;                     ///< a line for people
};

/// checkpoint.resume decides; where it finds nothing, checkpoint.weights names the parameters of a fresh start. Reads
/// and verifies what it returns, weights without needing the optimizer's files.
/// Throws CheckpointError as find_checkpoint.
StartPoint find_start(const Config& config);

}  // namespace tessera::train

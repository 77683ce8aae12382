#pragma once
#include <string>

#include "train/checkpoint_files.h"
#include "train/engine.h"

namespace tessera::train {

/// The engine's logical tensors as slices: "model/NAME" (f32 main parameters), "optimizer/exp_avg/NAME",
/// "optimizer/exp_avg_sq/NAME". Pointers into the engine's memory.
std::vector<TensorSlice> logical_slices(Engine& engine);

/// Fills the counters that the engine owns: updates and loss scale.
void describe_engine(Engine& engine, CheckpointState& state);

/// Reads a checkpoint's tensors into the engine, each slice from wherever it lies, and restores updates and loss scale.
/// Throws CheckpointError listing every missing, extra or differently shaped tensor.
void load_engine(Engine& engine, const CheckpointReader& reader, LoadParts parts);

}  // namespace tessera::train

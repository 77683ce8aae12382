#pragma once
#include "train/config.h"
#include "train/engine.h"

namespace tessera::train {

/// The engine that a config describes. model.vocab_size must be known (resolve_vocabulary).
EngineSettings engine_settings(const Config& config);

}  // namespace tessera::train

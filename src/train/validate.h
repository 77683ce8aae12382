#pragma once
#include <string>
#include <vector>

#include "train/config.h"

namespace tessera::train {

/// Every pair of settings that contradict each other, one line each, with both numbers, the place where each was set
/// and what would do. Empty if the config can run. Expects derived defaults to be filled in (resolve_defaults).
std::vector<std::string> find_contradictions(const Config& config);

/// Throws one ConfigError naming everything find_contradictions found.
void validate(const Config& config);

}  // namespace tessera::train

#pragma once
#include <vector>

#include "common/completion.h"
#include "train/config_choices.h"

namespace tessera::apps {

/// The config keys as overrides to complete. For programs that are linked with src/train.
inline std::vector<CompletedKey> completed_config_keys() {
    std::vector<CompletedKey> keys;
    for (const train::ConfigChoices& choice : train::config_choices()) {
        keys.push_back({.name = choice.name,
                        .description = choice.meaning,
                        .values = choice.values,
                        .is_path = choice.is_path});
    }
    return keys;
}

}  // namespace tessera::apps

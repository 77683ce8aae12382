#pragma once
#include <string>
#include <vector>

namespace tessera::train {

/// A config key for a shell's completion.
struct ConfigChoices {
    std::string name;  ///< "model.family"
    std::string meaning;
    std::vector<std::string> values;  ///< every allowed value where there are only a few, else empty
    bool is_path = false;
};

/// Every key in the order of the reference.
std::vector<ConfigChoices> config_choices();

}  // namespace tessera::train

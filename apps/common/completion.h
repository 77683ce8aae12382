#pragma once
#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace tessera::apps {

/// An override --section.key=value that a program takes beside its options.
struct CompletedKey {
    std::string name;  ///< "model.family"
    std::string description;
    std::vector<std::string> values;  ///< empty: any
    bool is_path = false;
};

inline const std::vector<std::string> kShells = {"bash", "zsh", "fish"};

/// A script that teaches a shell the program's subcommands, options and values, taken from the parser itself. `keys`
/// are offered wherever the parser takes arguments it does not know. `shell` is one of kShells.
std::string completion_script(const CLI::App& app, const std::vector<CompletedKey>& keys, const std::string& shell);

}  // namespace tessera::apps

#pragma once
#include <string>

namespace CLI {
class App;
}  // namespace CLI

namespace tessera::apps {

inline constexpr std::size_t kScreenColumns = 80;

/// The text of --help: description, usage, a line or two for each positional, option and subcommand, the footer. No
/// line is longer than 80 characters unless the footer has one. `command`: the program's name, or that of the
/// subcommand after it.
std::string help_text(const CLI::App& app, const std::string& command);

}  // namespace tessera::apps

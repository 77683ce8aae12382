#pragma once
#include <functional>
#include <string>
#include <vector>

#include "common/completion.h"

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace tessera::apps {

/// Runs a program's body and turns what it throws into one line on stderr and an exit code (docs/design.md section 5).
/// `name` begins the line.
int run_program(const std::string& name, const std::function<int()>& body);

/// Ends the process as the signal's default action does, from whichever thread.
[[noreturn]] void die_of_signal(int signal);

/// What to do when CLI11 ends the parsing: --help and --version are printed to stdout and give 0; a mistake is thrown
/// on as a UsageError of one line.
int end_of_parsing(const CLI::App& app, const CLI::ParseError& end);

/// What every program has: its name, --version, --completion, and --help that fits a screen. To be called before
/// subcommands are added. `keys`: the overrides it takes.
void set_up_program(CLI::App& app, const std::string& name, std::vector<CompletedKey> keys = {});

}  // namespace tessera::apps

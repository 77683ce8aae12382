#pragma once
#include <CLI/CLI.hpp>

namespace tessera::apps {

/// Each adds one subcommand to `app`; its callback does the work when the command line was parsed.
void add_tokenizer_command(CLI::App& app);
void add_tokenize_command(CLI::App& app);
void add_inspect_command(CLI::App& app);
void add_verify_command(CLI::App& app);

}  // namespace tessera::apps

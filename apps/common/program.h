#pragma once
#include <functional>
#include <string>

namespace tessera::apps {

/// Runs a program's body and turns what it throws into one line on stderr and an exit code (docs/design.md section 5).
/// `name` begins the line.
int run_program(const std::string& name, const std::function<int()>& body);

/// "Name VERSION" for --version.
std::string version_line(const std::string& name);

}  // namespace tessera::apps

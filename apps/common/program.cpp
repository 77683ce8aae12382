#include "common/program.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "core/error.h"

namespace tessera::apps {

int run_program(const std::string& name, const std::function<int()>& body) {
    try {
        return body();
    } catch (const core::Error& error) {
        std::fprintf(stderr, "%s: error: %s\n", name.c_str(), error.what());
        return static_cast<int>(error.exit_code());
    } catch (const std::bad_alloc&) {
        std::fprintf(stderr, "%s: error: out of memory\n", name.c_str());
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: error: %s\n", name.c_str(), error.what());
    }
    return static_cast<int>(core::ExitCode::run_failure);
}

int end_of_parsing(const CLI::App& app, const CLI::ParseError& end) {
    if (end.get_exit_code() == 0) return app.exit(end);
    std::string message = end.what();
    std::replace(message.begin(), message.end(), '\n', ' ');
    core::raise<core::UsageError>("{} (--help lists the options)", message);
}

std::string version_line(const std::string& name) {
    return name + " (Tessera) " + TESSERA_VERSION;
}

}  // namespace tessera::apps

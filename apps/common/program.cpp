#include "common/program.h"

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

std::string version_line(const std::string& name) {
    return name + " (Tessera) " + TESSERA_VERSION;
}

}  // namespace tessera::apps

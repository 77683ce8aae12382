#include "core/error.h"

#include <cstdio>
#include <cstdlib>

namespace tessera::core {
namespace {

std::string one_line(std::string_view text) {
    std::string line(text);
    for (char& c : line) {
        const auto code = static_cast<unsigned char>(c);
        if (code < 0x20 || code == 0x7f) c = ' ';
    }
    return line;
}

}  // namespace

Error::Error(std::string_view what) : std::runtime_error(one_line(what)) {}

void invariant_failed(const char* expression, const char* file, int line) {
    std::fprintf(stderr, "internal error: '%s' does not hold at %s:%d; please report it\n", expression, file, line);
    std::abort();
}

}  // namespace tessera::core

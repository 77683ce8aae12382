#include "core/error.h"

#include <cstdio>
#include <cstdlib>

namespace tessera::core {

void invariant_failed(const char* expression, const char* file, int line) {
    std::fprintf(stderr, "internal error: '%s' does not hold at %s:%d; please report it\n", expression, file, line);
    std::abort();
}

}  // namespace tessera::core

// Two threads of a parallel loop write one number: the thread sanitizer must say so, else its silence means nothing.
#include <cstdio>

#include "core/parallel.h"

int main() {
    std::int64_t sum = 0;
    tessera::core::parallel_ranges(2, 2, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t k = begin; k < end; ++k) sum += k;
    });
    std::printf("%lld\n", static_cast<long long>(sum));
    return 0;
}

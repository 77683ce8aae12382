#pragma once
#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace tessera::kernels::cpu {

/// Work below this many elementary steps stays on the calling thread: waking the others would cost more.
inline constexpr std::int64_t kParallelThreshold = 16384;

/// Calls body(begin, end) over [0, count) cut into one contiguous range a thread. `work` is the number of elementary
/// steps of one item. The body must not throw.
template <typename Body>
void parallel_for(std::int64_t count, std::int64_t work, const Body& body) {
    const int threads = static_cast<int>(std::min<std::int64_t>(omp_get_max_threads(), count));
    if (threads <= 1 || count * work < kParallelThreshold || omp_in_parallel()) {
        if (count > 0) body(std::int64_t{0}, count);
        return;
    }
#pragma omp parallel num_threads(threads)
    {
        const std::int64_t team = omp_get_num_threads();
        const std::int64_t thread = omp_get_thread_num();
        const std::int64_t begin = count * thread / team;
        const std::int64_t end = count * (thread + 1) / team;
        if (begin < end) body(begin, end);
    }
}

/// As parallel_for, one item at a time, handed to whichever thread is free: for items of unequal size. The result must
/// not depend on who does which.
template <typename Body>
void parallel_items(std::int64_t count, std::int64_t work, const Body& body) {
    if (omp_get_max_threads() <= 1 || count <= 1 || count * work < kParallelThreshold || omp_in_parallel()) {
        for (std::int64_t item = 0; item < count; ++item) body(item);
        return;
    }
#pragma omp parallel for schedule(dynamic, 1)
    for (std::int64_t item = 0; item < count; ++item) body(item);
}

}  // namespace tessera::kernels::cpu

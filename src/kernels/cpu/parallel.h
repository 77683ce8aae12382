#pragma once
#include <algorithm>
#include <cstdint>

#include "core/parallel.h"

namespace tessera::kernels::cpu {

/// Work below this many elementary steps stays on the calling thread: waking the others would cost more.
inline constexpr std::int64_t kParallelThreshold = 16384;

/// Calls body(begin, end) over [0, count) cut into one contiguous range a thread. `work` is the number of elementary
/// steps of one item. The body must not throw.
template <typename Body>
void parallel_for(std::int64_t count, std::int64_t work, const Body& body) {
    const int threads = static_cast<int>(std::min<std::int64_t>(core::max_threads(), count));
    if (threads <= 1 || count * work < kParallelThreshold || core::in_parallel()) {
        if (count > 0) body(std::int64_t{0}, count);
        return;
    }
    core::parallel_ranges(count, threads, body);
}

/// As parallel_for, one item at a time, handed to whichever thread is free: for items of unequal size. The result must
/// not depend on who does which.
template <typename Body>
void parallel_items(std::int64_t count, std::int64_t work, const Body& body) {
    if (core::max_threads() <= 1 || count <= 1 || count * work < kParallelThreshold || core::in_parallel()) {
        for (std::int64_t item = 0; item < count; ++item) body(item);
        return;
    }
    core::parallel_items(count, 1, core::max_threads(), body);
}

}  // namespace tessera::kernels::cpu

#pragma once
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#ifdef TESSERA_STD_THREADS
#include <thread>
#include <vector>
#endif

namespace tessera::core {

#ifdef TESSERA_STD_THREADS

/// Under the thread sanitizer, which cannot see into OpenMP's library and would take its barriers for missing ones, a
/// loop's threads are made for it and joined after it.
class ThreadPlace {
public:
    explicit ThreadPlace(int index) : before_(current()) { current() = index; }
    ~ThreadPlace() { current() = before_; }
    ThreadPlace(const ThreadPlace&) = delete;
    ThreadPlace& operator=(const ThreadPlace&) = delete;

    /// -1 outside of every parallel loop.
    static int& current() {
        thread_local int index = -1;
        return index;
    }

private:
    int before_;
};

inline bool in_parallel() {
    return ThreadPlace::current() >= 0;
}
inline int thread_index() {
    return std::max(ThreadPlace::current(), 0);
}
template <typename Body>
void on_threads(int threads, const Body& body) {
    const auto run = [&](int index) {
        const ThreadPlace place(index);
        body(index, threads);
    };
    std::vector<std::thread> others;
    for (int index = 1; index < threads; ++index) others.emplace_back(run, index);
    run(0);
    for (std::thread& other : others) other.join();
}

#else

/// Whether the caller is inside a parallel loop; one inside another would gain nothing.
inline bool in_parallel() {
    return omp_in_parallel() != 0;
}
/// The place of the calling thread in its loop, from 0; 0 outside of a loop.
inline int thread_index() {
    return omp_get_thread_num();
}
/// Calls body(index, number of threads) once on each of at most `threads` threads, this one among them, and waits for
/// all. The body must not throw.
template <typename Body>
void on_threads(int threads, const Body& body) {
#pragma omp parallel num_threads(threads)
    body(omp_get_thread_num(), omp_get_num_threads());
}

#endif

/// The threads a loop gets if nobody says otherwise (omp_set_num_threads).
inline int max_threads() {
    return omp_get_max_threads();
}

/// Calls body(begin, end) over [0, count) cut into one contiguous range a thread. The body must not throw.
template <typename Body>
void parallel_ranges(std::int64_t count, int threads, const Body& body) {
    on_threads(threads, [&](std::int64_t index, std::int64_t team) {
        const std::int64_t begin = count * index / team;
        const std::int64_t end = count * (index + 1) / team;
        if (begin < end) body(begin, end);
    });
}

/// Calls body(item) for each item of [0, count), `grain` of them at a time handed to whichever thread is free. The
/// body must not throw.
template <typename Body>
void parallel_items(std::int64_t count, std::int64_t grain, int threads, const Body& body) {
    std::atomic<std::int64_t> next{0};
    on_threads(threads, [&](int, int) {
        for (std::int64_t begin = next.fetch_add(grain); begin < count; begin = next.fetch_add(grain)) {
            const std::int64_t end = std::min(begin + grain, count);
            for (std::int64_t item = begin; item < end; ++item) body(item);
        }
    });
}

}  // namespace tessera::core

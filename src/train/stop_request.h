#pragma once
#include <atomic>

namespace tessera::train {

/// Set by another thread when a signal came (SIGTERM, SIGUSR1, SIGINT): finish the step, save, exit with
/// ExitCode::stopped_after_save.
class StopRequest {
public:
    void request(int signal) { signal_.store(signal, std::memory_order_relaxed); }
    bool requested() const { return signal_.load(std::memory_order_relaxed) != 0; }
    int signal() const { return signal_.load(std::memory_order_relaxed); }

private:
    static_assert(std::atomic<int>::is_always_lock_free);
    std::atomic<int> signal_{0};
};

}  // namespace tessera::train

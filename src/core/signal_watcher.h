#pragma once
#include <signal.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace tessera::core {

/// Takes asynchronous signals on a thread of its own and never on one that computes.
///
/// While it lives, `signals` are blocked in the thread that made it and in every thread started from that one
/// afterwards, so it must be made before any other thread of the process (a loader's, OpenMP's). A waiting thread
/// receives them and calls `on_signal(signal)` there: an ordinary function, free to lock and to allocate.
///
/// A handler installed with sigaction() will not do: oneDNN's generated sgemm kernels keep their packed operand where
/// the stack pointer points, in a heap block, and the kernel writes a handler's frame (3 KiB with AVX-512) below the
/// stack pointer of the thread it interrupts: over the neighbouring heap blocks.
///
/// @throws EnvironmentError where no thread can be started.
class SignalWatcher {
public:
    SignalWatcher(const std::vector<int>& signals, std::function<void(int)> on_signal);
    /// Stops watching; the signals do again what they did before.
    ~SignalWatcher();
    SignalWatcher(const SignalWatcher&) = delete;
    SignalWatcher& operator=(const SignalWatcher&) = delete;

private:
    void watch();

    sigset_t signals_{};
    sigset_t before_{};
    int wake_;
    std::function<void(int)> on_signal_;
    std::atomic<bool> stopping_{false};
    std::thread thread_;
};

}  // namespace tessera::core

#include "core/signal_watcher.h"

#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace tessera::core {

SignalWatcher::SignalWatcher(const std::vector<int>& signals, std::function<void(int)> on_signal)
    : wake_(signals.at(0)), on_signal_(std::move(on_signal)) {
    sigemptyset(&signals_);
    for (const int signal : signals) sigaddset(&signals_, signal);
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
    try {
        thread_ = std::thread([this] { watch(); });
    } catch (const std::system_error& error) {
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
        raise<EnvironmentError>("cannot start the thread that waits for signals: {}", error.what());
    }
}

SignalWatcher::~SignalWatcher() {
    stopping_.store(true);
    pthread_kill(thread_.native_handle(), wake_);
    thread_.join();
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void SignalWatcher::watch() {
    while (true) {
        siginfo_t info{};
        const int signal = sigwaitinfo(&signals_, &info);
        if (signal < 0) continue;                                 // EINTR: a debugger stopped and resumed the process.
        if (stopping_.load() && info.si_pid == getpid()) return;  // The destructor's own.
        on_signal_(signal);
    }
}

}  // namespace tessera::core

#include "core/signal_watcher.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>

namespace tessera::core {
namespace {

std::atomic<int> handled = 0;

void wait_for_count(const std::atomic<int>& count, int wanted) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (count.load() < wanted && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    EXPECT_EQ(count.load(), wanted);
}

TEST(SignalWatcher, TakesTheSignalFromEveryThread) {
    ::signal(SIGUSR2, [](int) { handled.fetch_add(1); });
    std::atomic<int> seen = 0;
    {
        const SignalWatcher watcher({SIGUSR2, SIGHUP}, [&](int signal) { seen.fetch_add(signal); });
        std::thread([] {
            sigset_t blocked;
            pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
            EXPECT_TRUE(sigismember(&blocked, SIGUSR2) == 1 && sigismember(&blocked, SIGHUP) == 1);
        }).join();
        kill(getpid(), SIGUSR2);
        wait_for_count(seen, SIGUSR2);
        kill(getpid(), SIGHUP);
        wait_for_count(seen, SIGUSR2 + SIGHUP);
        EXPECT_EQ(handled.load(), 0);
    }
    // Afterwards the handler is back.
    kill(getpid(), SIGUSR2);
    wait_for_count(handled, 1);
    EXPECT_EQ(seen.load(), SIGUSR2 + SIGHUP);
    ::signal(SIGUSR2, SIG_DFL);
}

}  // namespace
}  // namespace tessera::core

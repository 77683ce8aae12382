#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "common/program.h"
#include "core/signal_watcher.h"

namespace tessera::apps {
namespace {

TEST(DieOfSignal, TheDefaultActionEndsTheProcess_CK_17) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
            {
                const core::SignalWatcher watcher({SIGTERM}, [](int signal) { die_of_signal(signal); });
                kill(getpid(), SIGTERM);
                sleep(20);
                std::exit(0);
            },
            testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace tessera::apps

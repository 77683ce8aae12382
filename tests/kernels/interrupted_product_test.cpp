#include <gtest/gtest.h>
#include <omp.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "core/signal_watcher.h"
#include "kernels/cpu/gemm.h"

namespace tessera::kernels::cpu {
namespace {

/// y (64, 256) = x (64, 1024) W^T, a product whose generated kernel moves the stack pointer into a heap block.
class Product {
public:
    Product() {
        for (std::size_t i = 0; i < a_.size(); ++i) a_[i] = static_cast<float>(i % 17) * 0.25F - 2.0F;
        for (std::size_t i = 0; i < b_.size(); ++i) b_[i] = static_cast<float>(i % 13) * 0.125F - 0.75F;
    }
    std::vector<float> run() const {
        std::vector<float> c(static_cast<std::size_t>(kRows * kColumns), 0.0F);
        GemmArgs args{};
        args.b_transpose = Transpose::yes;
        args.m = kRows;
        args.n = kColumns;
        args.k = kDepth;
        args.a = a_.data();
        args.lda = kDepth;
        args.b = b_.data();
        args.ldb = kDepth;
        args.c = c.data();
        args.ldc = kColumns;
        gemm(args);
        return c;
    }

private:
    static constexpr std::int64_t kRows = 64;
    static constexpr std::int64_t kColumns = 256;
    static constexpr std::int64_t kDepth = 1024;
    std::vector<float> a_ = std::vector<float>(static_cast<std::size_t>(kRows * kDepth));
    std::vector<float> b_ = std::vector<float>(static_cast<std::size_t>(kColumns * kDepth));
};

/// Multiplies for a second under a storm of signals and exits with 0 if every product had the same bits.
[[noreturn]] void multiply_in_a_storm() {
    std::atomic<int> seen = 0;
    const core::SignalWatcher watcher({SIGUSR1}, [&](int) { seen.fetch_add(1); });
    std::atomic<bool> done = false;
    std::thread storm([&done] {
        while (!done.load()) {
            kill(getpid(), SIGUSR1);
            std::this_thread::sleep_for(std::chrono::microseconds(20));
        }
    });
    omp_set_num_threads(2);
    const Product product;
    const std::vector<float> expected = product.run();
    bool same = true;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (std::chrono::steady_clock::now() < end) same = same && product.run() == expected;
    done.store(true);
    storm.join();
    std::exit(same && seen.load() > 100 ? 0 : 1);
}

TEST(InterruptedProduct, ASignalNeverReachesAThreadThatMultiplies_CK_17) {
    // In a process of its own: here other tests may have started OpenMP's threads.
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(multiply_in_a_storm(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tessera::kernels::cpu

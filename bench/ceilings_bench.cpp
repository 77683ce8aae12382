// What this machine can do at best: the yardsticks of the other benchmarks, measured in the same run.
#include <benchmark/benchmark.h>
#include <dnnl.h>
#include <hwy/aligned_allocator.h>
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstdint>
#include <memory>

namespace tessera::bench {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

enum class Stores : std::int64_t { ordinary, streaming };

/// a = b + 3c over three arrays of 64 MiB: STREAM's triad. Bytes count each array once.
void triad(benchmark::State& state) {
    constexpr std::int64_t kCount = std::int64_t{1} << 24;
    const hn::ScalableTag<float> d;
    const auto step = static_cast<std::int64_t>(hn::Lanes(d));
    const auto memory = hwy::MakeUniqueAlignedArray<float>(3 * kCount);
    float* a = memory.get();
    float* b = a + kCount;
    float* c = b + kCount;
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < kCount; ++i) {
        a[i] = 0;
        b[i] = 1;
        c[i] = 2;
    }
    const bool streams = static_cast<Stores>(state.range(0)) == Stores::streaming;
    for (auto _ : state) {
#pragma omp parallel
        {
            const auto three = hn::Set(d, 3.0F);
#pragma omp for schedule(static)
            for (std::int64_t block = 0; block < kCount / 4096; ++block) {
                for (std::int64_t i = block * 4096; i < (block + 1) * 4096; i += step) {
                    const auto v = hn::MulAdd(three, hn::Load(d, c + i), hn::Load(d, b + i));
                    if (streams) {
                        hn::Stream(v, d, a + i);
                    } else {
                        hn::Store(v, d, a + i);
                    }
                }
            }
            hwy::FlushStream();
        }
        benchmark::ClobberMemory();
    }
    state.counters["GB/s"] = benchmark::Counter(3.0 * 4 * kCount / 1e9, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(triad)->ArgName("streaming")->Arg(0)->Arg(1)->UseRealTime();

/// Square and long products of oneDNN.
void sgemm(benchmark::State& state) {
    const std::int64_t m = state.range(0);
    const std::int64_t n = state.range(1);
    const std::int64_t k = state.range(2);
    const auto a = std::make_unique<float[]>(static_cast<std::size_t>(m * k));
    const auto b = std::make_unique<float[]>(static_cast<std::size_t>(k * n));
    const auto c = std::make_unique<float[]>(static_cast<std::size_t>(m * n));
    for (auto _ : state) {
        const dnnl_status_t status = dnnl_sgemm('N', 'N', m, n, k, 1.0F, a.get(), k, b.get(), n, 0.0F, c.get(), n);
        if (status != dnnl_success) state.SkipWithError("dnnl_sgemm failed");
        benchmark::ClobberMemory();
    }
    state.counters["GFLOP/s"] =
            benchmark::Counter(2e-9 * static_cast<double>(m * n * k), benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(sgemm)->Args({1024, 768, 3072})->Args({1024, 1024, 1024})->Args({1536, 1536, 1536})->UseRealTime();

}  // namespace
}  // namespace tessera::bench

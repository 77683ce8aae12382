// What the benchmarks of operations share: GPT-2 124M's sizes, tensors, and rates from the account of work.
#pragma once
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "kernels/backend.h"

namespace tessera::bench {

using core::DType;
using core::Tensor;

// GPT-2 124M with a micro-batch of 4 samples of 256 tokens.
inline constexpr std::int64_t kTokens = 1024;
inline constexpr std::int64_t kHidden = 768;
inline constexpr std::int64_t kFfn = 3072;
inline constexpr std::int64_t kVocab = 50257;
inline constexpr std::int64_t kPaddedVocab = 50304;
inline constexpr std::int64_t kPositions = 1024;
inline constexpr kernels::HeadLayout kHeads{.num_heads = 12, .num_kv_heads = 12, .head_dim = 64};

class Bench {
public:
    Bench() : pool_(core::DeviceType::cpu), stream_(core::DeviceType::cpu, core::StreamKind::compute) {
        backend_ = kernels::make_cpu_backend(pool_);
    }
    kernels::Backend& backend() { return *backend_; }
    core::Stream& stream() { return stream_; }

    /// Values in [-1, 1], different from one another.
    Tensor tensor(const core::Shape& shape, DType dtype) {
        Tensor wide = Tensor::empty(pool_, shape, DType::f32, core::MemoryCategory::buffers);
        for (std::int64_t i = 0; i < wide.numel(); ++i) {
            state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
            wide.data<float>()[i] = static_cast<float>(static_cast<std::int32_t>(state_ >> 32)) * 0x1p-31F;
        }
        if (dtype == DType::f32) return wide;
        Tensor narrow = Tensor::empty(pool_, shape, dtype, core::MemoryCategory::buffers);
        kernels::cast(*backend_, stream_, wide, narrow);
        return narrow;
    }
    template <typename T>
    Tensor of(const std::vector<T>& contents) {
        Tensor tensor = Tensor::empty(pool_, {static_cast<std::int64_t>(contents.size())}, core::DTypeOf<T>::value,
                                      core::MemoryCategory::buffers);
        tensor.copy_from_host(contents.data());
        return tensor;
    }
    Tensor token_ids(std::int64_t vocab) {
        std::vector<std::int32_t> ids;
        for (std::int64_t i = 0; i < kTokens; ++i) ids.push_back(static_cast<std::int32_t>(i * 7919 % vocab));
        return of(ids);
    }
    /// kTokens tokens in samples of `length`.
    kernels::TokenMap token_map(std::int64_t length) {
        std::vector<std::int64_t> sample;
        std::vector<std::int32_t> offset;
        std::vector<std::int32_t> borders;
        for (std::int64_t i = 0; i < kTokens; ++i) {
            sample.push_back(i / length);
            offset.push_back(static_cast<std::int32_t>(i % length));
        }
        for (std::int64_t i = 0; i <= kTokens; i += length) borders.push_back(static_cast<std::int32_t>(i));
        kernels::TokenMap map;
        map.sample = of(sample);
        map.offset = of(offset);
        map.position = of(offset);
        map.cu_seqlens = of(borders);
        map.max_seqlen = length;
        map.seq_length = length;
        map.sum_squared_seqlens = kTokens * length;
        return map;
    }

    /// Runs the loop and reports the rates of what the account saw: GFLOP/s of model FLOPs, GB/s of operands.
    template <typename Body>
    void measure(benchmark::State& state, const Body& body) {
        body();  // first touch of every page
        backend_->account().reset();
        for (auto _ : state) body();
        const kernels::OpTotals total = backend_->account().total();
        if (total.flops > 0) {
            state.counters["GFLOP/s"] = benchmark::Counter(total.flops / 1e9, benchmark::Counter::kIsRate);
        }
        state.counters["GB/s"] = benchmark::Counter(total.bytes / 1e9, benchmark::Counter::kIsRate);
    }

private:
    core::MemoryPool pool_;
    core::Stream stream_;
    std::unique_ptr<kernels::Backend> backend_;
    std::uint64_t state_ = 1;
};

inline void dtypes(benchmark::internal::Benchmark* benchmark) {
    benchmark->ArgName("dtype");
    for (const DType dtype : {DType::f32, DType::bf16}) benchmark->Arg(static_cast<std::int64_t>(dtype));
    benchmark->UseRealTime();
}

inline DType dtype_of(const benchmark::State& state, int argument = 0) {
    return static_cast<DType>(state.range(static_cast<std::size_t>(argument)));
}

}  // namespace tessera::bench

#pragma once
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <list>
#include <vector>

#include "core/philox.h"
#include "kernels/backend.h"

namespace tessera::support {

using Doubles = std::vector<double>;

/// Deterministic values, about uniform in [-1, 1], exact in bf16 and f16 so that all storage types see the same inputs.
inline Doubles pattern(std::int64_t count, std::uint32_t stream, double scale = 1.0) {
    Doubles values(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
        const auto words = core::philox4x32_10({static_cast<std::uint32_t>(i), stream, 0, 0}, {17, 4});
        values[static_cast<std::size_t>(i)] = core::to_f32(
                core::to_bf16(static_cast<float>(scale * (2.0 * core::uniform_open_closed(words[0]) - 1.0))));
    }
    return values;
}

/// A CPU backend with tensors whose ends are guarded: check_guards() sees any write past one.
class TestDevice {
public:
    TestDevice()
        : pool(core::DeviceType::cpu),
          backend(kernels::make_cpu_backend(pool)),
          stream(core::DeviceType::cpu, core::StreamKind::compute) {}

    core::Tensor tensor(core::Shape shape, core::DType dtype = core::DType::f32) {
        const std::int64_t count = shape.numel();
        core::Tensor whole = core::Tensor::empty(pool, {count + kGuard}, dtype, core::MemoryCategory::activations);
        std::memset(whole.bytes(), kMark, static_cast<std::size_t>(whole.nbytes()));
        guarded_.push_back({whole, count});
        return whole.range(0, count).reshape(shape);
    }
    core::Tensor tensor(core::Shape shape, const Doubles& values, core::DType dtype = core::DType::f32) {
        core::Tensor result = tensor(shape, dtype);
        for (std::int64_t i = 0; i < result.numel(); ++i) {
            const auto value = static_cast<float>(values[static_cast<std::size_t>(i)]);
            if (dtype == core::DType::f32) result.data<float>()[i] = value;
            if (dtype == core::DType::bf16) result.data<core::bf16>()[i] = core::to_bf16(value);
            if (dtype == core::DType::f16) result.data<core::f16>()[i] = core::to_f16(value);
        }
        return result;
    }
    core::Tensor zeros(core::Shape shape, core::DType dtype = core::DType::f32) {
        return tensor(shape, Doubles(static_cast<std::size_t>(shape.numel()), 0.0), dtype);
    }
    core::Tensor ids(const std::vector<std::int32_t>& values) {
        core::Tensor result = tensor({static_cast<std::int64_t>(values.size())}, core::DType::i32);
        result.copy_from_host(values.data());
        return result;
    }
    core::Tensor long_ids(const std::vector<std::int64_t>& values) {
        core::Tensor result = tensor({static_cast<std::int64_t>(values.size())}, core::DType::i64);
        result.copy_from_host(values.data());
        return result;
    }
    /// A token map of blocks of the given lengths, one sample a block (samples 100, 101, …), then `padding` tokens.
    /// offset_begin: every block starts at this offset of its sample (a document in the middle).
    kernels::TokenMap map(const std::vector<std::int32_t>& lengths, std::int64_t padding = 0,
                          std::int32_t offset_begin = 0) {
        std::vector<std::int64_t> sample;
        std::vector<std::int32_t> offset;
        std::vector<std::int32_t> position;
        std::vector<std::int32_t> borders{0};
        kernels::TokenMap result;
        for (const std::int32_t length : lengths) {
            for (std::int32_t i = 0; i < length; ++i) {
                sample.push_back(100 + static_cast<std::int64_t>(borders.size()) - 1);
                offset.push_back(offset_begin + i);
                position.push_back(i);
            }
            borders.push_back(borders.back() + length);
            result.max_seqlen = std::max<std::int64_t>(result.max_seqlen, length);
            result.sum_squared_seqlens += std::int64_t{length} * length;
        }
        for (std::int64_t i = 0; i < padding; ++i) {
            sample.push_back(-1);
            offset.push_back(0);
            position.push_back(0);
        }
        result.sample = long_ids(sample);
        result.offset = ids(offset);
        result.position = ids(position);
        result.cu_seqlens = ids(borders);
        result.seq_length = result.max_seqlen + offset_begin;
        return result;
    }
    void check_guards() const {
        for (const Guarded& guarded : guarded_) {
            const core::Tensor end = guarded.whole.range(guarded.count, guarded.count + kGuard);
            for (std::int64_t i = 0; i < end.nbytes(); ++i) {
                ASSERT_EQ(static_cast<int>(end.bytes()[i]), kMark)
                        << "byte " << i << " after a tensor of " << guarded.count;
            }
        }
    }

    core::MemoryPool pool;
    std::unique_ptr<kernels::Backend> backend;
    core::Stream stream;

private:
    static constexpr std::int64_t kGuard = 64;
    static constexpr int kMark = 0xa5;
    struct Guarded {
        core::Tensor whole;
        std::int64_t count;
    };
    std::list<Guarded> guarded_;
};

inline Doubles doubles(const core::Tensor& tensor) {
    Doubles values(static_cast<std::size_t>(tensor.numel()));
    for (std::int64_t i = 0; i < tensor.numel(); ++i) {
        double& value = values[static_cast<std::size_t>(i)];
        if (tensor.dtype() == core::DType::f32) value = tensor.data<float>()[i];
        if (tensor.dtype() == core::DType::bf16) value = core::to_f32(tensor.data<core::bf16>()[i]);
        if (tensor.dtype() == core::DType::f16) value = core::to_f32(tensor.data<core::f16>()[i]);
    }
    return values;
}

/// Rounding of one storage: half a unit in the last place, relative.
inline double storage_epsilon(core::DType dtype) {
    return dtype == core::DType::f32 ? 0x1p-24 : dtype == core::DType::bf16 ? 0x1p-8 : 0x1p-11;
}

/// |ours - expected| <= tolerance·(largest |expected|, at least `floor`), element by element.
inline void expect_close(const Doubles& ours, const Doubles& expected, double tolerance, const char* what,
                         double floor = 1e-3) {
    ASSERT_EQ(ours.size(), expected.size()) << what;
    double largest = floor;
    for (const double value : expected) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < ours.size(); ++i) {
        ASSERT_NEAR(ours[i], expected[i], tolerance * largest) << what << "[" << i << "]";
    }
}

/// Central differences of loss at x, every element.
inline Doubles central_differences(const std::function<double(const Doubles&)>& loss, Doubles x, double step = 1e-5) {
    Doubles gradient(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double kept = x[i];
        x[i] = kept + step;
        const double up = loss(x);
        x[i] = kept - step;
        gradient[i] = (up - loss(x)) / (2 * step);
        x[i] = kept;
    }
    return gradient;
}

inline double dot(const Doubles& a, const Doubles& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

/// The keep scale that token_map.h defines, by the scalar generator.
inline double keep_scale(const kernels::Dropout& dropout, std::int64_t feature, std::int64_t sample,
                         std::int32_t offset) {
    if (dropout.probability == 0) return 1;
    const auto wide = static_cast<std::uint64_t>(sample);
    const auto words = core::philox4x32_10(
            {static_cast<std::uint32_t>(feature >> 2), static_cast<std::uint32_t>(offset),
             static_cast<std::uint32_t>(wide), dropout.site ^ static_cast<std::uint32_t>(wide >> 32)},
            core::philox_key(dropout.seed));
    const bool kept = words[static_cast<std::size_t>(feature & 3)] >= static_cast<double>(dropout.probability) * 0x1p32;
    return kept ? 1.0 / (1.0 - static_cast<double>(dropout.probability)) : 0.0;
}

/// Runs `body` on 1 and on 2 threads and expects the same bytes from both.
inline void expect_same_on_any_threads(const std::function<std::vector<Doubles>()>& body) {
    const int before = omp_get_max_threads();
    omp_set_num_threads(1);
    const auto one = body();
    omp_set_num_threads(2);
    const auto two = body();
    omp_set_num_threads(3);
    const auto three = body();
    omp_set_num_threads(before);
    EXPECT_EQ(one, two);
    EXPECT_EQ(one, three);
}

}  // namespace tessera::support

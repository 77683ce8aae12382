// Tensors for tests of operations: between guard bytes, filled from a fixed sequence, compared with double precision.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/philox.h"
#include "kernels/backend.h"

namespace tessera::support {

using core::DType;
using core::Tensor;

inline constexpr std::int64_t kGuard = 19;  ///< elements before and after each tensor; odd, so nothing is aligned
inline constexpr int kGuardByte = 0xA5;
inline constexpr int kPoisonByte = 0xFF;  ///< a NaN in every floating dtype

inline const std::vector<DType> kFloatingDTypes = {DType::f32, DType::bf16, DType::f16};

/// Relative rounding error of one store.
inline double roundoff(DType dtype) {
    return dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : 0x1p-24;
}

inline double element(const Tensor& tensor, std::int64_t index) {
    switch (tensor.dtype()) {
        case DType::f32:
            return tensor.data<float>()[index];
        case DType::bf16:
            return core::to_f32(tensor.data<core::bf16>()[index]);
        case DType::f16:
            return core::to_f32(tensor.data<core::f16>()[index]);
        case DType::i32:
            return tensor.data<std::int32_t>()[index];
        default:
            return std::numeric_limits<double>::quiet_NaN();
    }
}

inline void set_element(const Tensor& tensor, std::int64_t index, double value) {
    const auto narrow = static_cast<float>(value);
    switch (tensor.dtype()) {
        case DType::f32:
            tensor.data<float>()[index] = narrow;
            break;
        case DType::bf16:
            tensor.data<core::bf16>()[index] = core::to_bf16(narrow);
            break;
        case DType::f16:
            tensor.data<core::f16>()[index] = core::to_f16(narrow);
            break;
        default:
            ADD_FAILURE() << "set_element of " << core::name_of(tensor.dtype());
    }
}

inline std::vector<double> values(const Tensor& tensor) {
    std::vector<double> result(static_cast<std::size_t>(tensor.numel()));
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = element(tensor, static_cast<std::int64_t>(i));
    return result;
}

/// fine: the whole mantissa. coarse: multiples of 1/128, which every floating dtype holds exactly.
enum class Grid : std::uint8_t { fine, coarse };

/// A backend with its pool and stream, and the tensors of one test. On meta the tensors have no contents.
class Device {
public:
    explicit Device(core::DeviceType type = core::DeviceType::cpu, Grid grid = Grid::fine)
        : pool_(type), stream_(type, core::StreamKind::compute), grid_(grid) {
        backend_ = type == core::DeviceType::cpu ? kernels::make_cpu_backend(pool_)
                                                 : kernels::make_meta_backend(pool_, kernels::MetaDevice{});
    }

    kernels::Backend& backend() { return *backend_; }
    core::Stream& stream() { return stream_; }

    /// NaN (or -1) everywhere, guard bytes around.
    Tensor make(const core::Shape& shape, DType dtype) {
        const std::int64_t count = shape.numel();
        Tensor whole = Tensor::empty(pool_, {count + 2 * kGuard}, dtype, core::MemoryCategory::buffers);
        Tensor inner = whole.range(kGuard, kGuard + count).reshape(shape);
        if (!whole.is_meta()) {
            std::memset(whole.bytes(), kGuardByte, static_cast<std::size_t>(whole.nbytes()));
            std::memset(inner.bytes(), kPoisonByte, static_cast<std::size_t>(inner.nbytes()));
        }
        guarded_.push_back(whole);
        return inner;
    }
    Tensor zeros(const core::Shape& shape, DType dtype) {
        Tensor tensor = make(shape, dtype);
        tensor.fill_zero();
        return tensor;
    }
    /// Uniform in [-scale, scale], the same sequence in every test.
    Tensor random(const core::Shape& shape, DType dtype, double scale = 1.0) {
        Tensor tensor = make(shape, dtype);
        for (std::int64_t i = 0; i < tensor.numel() && !tensor.is_meta(); ++i) {
            set_element(tensor, i, next_value() * scale);
        }
        return tensor;
    }
    Tensor filled(const core::Shape& shape, DType dtype, double value) {
        Tensor tensor = make(shape, dtype);
        for (std::int64_t i = 0; i < tensor.numel() && !tensor.is_meta(); ++i) set_element(tensor, i, value);
        return tensor;
    }
    template <typename T>
    Tensor of(const std::vector<T>& contents) {
        Tensor tensor = make({static_cast<std::int64_t>(contents.size())}, core::DTypeOf<T>::value);
        tensor.copy_from_host(contents.data());
        return tensor;
    }
    Tensor copy_of(const Tensor& source) {
        Tensor tensor = make(source.shape(), source.dtype());
        if (!tensor.is_meta()) tensor.copy_from_host(source.bytes());
        return tensor;
    }

    /// Fails if anything wrote outside a tensor.
    void expect_guards() const {
        for (const Tensor& whole : guarded_) {
            if (whole.is_meta()) continue;
            const std::int64_t margin = kGuard * core::size_of(whole.dtype());
            for (std::int64_t i = 0; i < margin; ++i) {
                ASSERT_EQ(static_cast<int>(whole.bytes()[i]), kGuardByte) << margin - i << " bytes before a tensor";
                ASSERT_EQ(static_cast<int>(whole.bytes()[whole.nbytes() - 1 - i]), kGuardByte)
                        << margin - i << " bytes after a tensor";
            }
        }
    }

private:
    double next_value() {
        state_ += 0x9E3779B97F4A7C15ULL;
        std::uint64_t mixed = state_;
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9ULL;
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBULL;
        const double unit = static_cast<double>((mixed ^ (mixed >> 31)) >> 11) * 0x1p-53;
        const double value = 2.0 * unit - 1.0;
        return grid_ == Grid::fine ? value : std::nearbyint(value * 128.0) / 128.0;
    }

    core::MemoryPool pool_;
    core::Stream stream_;
    Grid grid_;
    std::uint64_t state_ = 20240607;
    std::unique_ptr<kernels::Backend> backend_;
    std::vector<Tensor> guarded_;
};

/// A test of operations on the CPU; the guard bytes of every tensor are looked at in the end.
class KernelTest : public ::testing::Test {
protected:
    void TearDown() override { device.expect_guards(); }
    Device device;
};

/// What an f32 sum of `terms` terms of size `magnitude`, then one store, may be off by.
struct Tolerance {
    double terms = 1;
    double magnitude = 1;
    double bound(double expected, DType stored) const {
        return std::abs(expected) * roundoff(stored) + 2.0 * magnitude * terms * roundoff(DType::f32);
    }
};

inline void expect_close(const std::string& what, const Tensor& actual, const std::vector<double>& expected,
                         const Tolerance& tolerance) {
    ASSERT_EQ(actual.numel(), static_cast<std::int64_t>(expected.size())) << what;
    for (std::int64_t i = 0; i < actual.numel(); ++i) {
        const double want = expected[static_cast<std::size_t>(i)];
        ASSERT_NEAR(element(actual, i), want, tolerance.bound(want, actual.dtype())) << what << " at " << i;
    }
}

inline void expect_same_bits(const std::string& what, const Tensor& actual, const Tensor& expected) {
    ASSERT_EQ(actual.nbytes(), expected.nbytes()) << what;
    const std::int64_t size = core::size_of(actual.dtype());
    for (std::int64_t i = 0; i < actual.numel(); ++i) {
        ASSERT_EQ(std::memcmp(actual.bytes() + i * size, expected.bytes() + i * size, static_cast<std::size_t>(size)),
                  0)
                << what << " differs at " << i << ": " << element(actual, i) << " and " << element(expected, i);
    }
}

/// Compares actual - before (where the operation says +=; an empty `before` where it says =) with the central
/// differences of a double-precision objective at every stride-th element of x.
struct GradientCheck {
    std::string what;
    const Tensor& actual;
    std::vector<double> x;
    std::function<double(const std::vector<double>&)> objective;
    Tolerance tolerance;
    std::vector<double> before = {};
    std::int64_t stride = 1;
};

inline void expect_gradient(GradientCheck check) {
    constexpr double kStep = 1e-6;
    ASSERT_EQ(check.actual.numel(), static_cast<std::int64_t>(check.x.size())) << check.what;
    for (std::size_t i = 0; i < check.x.size(); i += static_cast<std::size_t>(check.stride)) {
        const double at = check.x[i];
        check.x[i] = at + kStep;
        const double above = check.objective(check.x);
        check.x[i] = at - kStep;
        const double below = check.objective(check.x);
        check.x[i] = at;
        const double want = (check.before.empty() ? 0.0 : check.before[i]) + (above - below) / (2.0 * kStep);
        ASSERT_NEAR(element(check.actual, static_cast<std::int64_t>(i)), want,
                    check.tolerance.bound(want, check.actual.dtype()) + 1e-7 * check.tolerance.magnitude)
                << check.what << " at " << i;
    }
}

/// Part of a sample that attention sees as one block.
struct Piece {
    std::int64_t sample = 0;
    std::int32_t offset = 0;
    std::int32_t length = 1;
};

/// The map of a micro-batch of pieces, then `padding` tokens that belong to no sample.
inline kernels::TokenMap token_map(Device& device, const std::vector<Piece>& pieces, std::int64_t padding,
                                   std::int64_t seq_length) {
    std::vector<std::int64_t> sample;
    std::vector<std::int32_t> offset;
    std::vector<std::int32_t> position;
    std::vector<std::int32_t> borders = {0};
    kernels::TokenMap map;
    for (const Piece& piece : pieces) {
        for (std::int32_t i = 0; i < piece.length; ++i) {
            sample.push_back(piece.sample);
            offset.push_back(piece.offset + i);
            position.push_back(i);
        }
        borders.push_back(borders.back() + piece.length);
        map.max_seqlen = std::max<std::int64_t>(map.max_seqlen, piece.length);
        map.sum_squared_seqlens += std::int64_t{piece.length} * piece.length;
    }
    sample.resize(sample.size() + static_cast<std::size_t>(padding), -1);
    offset.resize(sample.size(), 0);
    position.resize(sample.size(), 0);
    map.sample = device.of(sample);
    map.offset = device.of(offset);
    map.position = device.of(position);
    map.cu_seqlens = device.of(borders);
    map.seq_length = seq_length;
    return map;
}

/// The factor of one element under dropout, from the definition in kernels/token_map.h.
inline double dropout_factor(const kernels::Dropout& dropout, std::int64_t sample, std::int64_t offset,
                             std::int64_t feature) {
    if (dropout.probability == 0) return 1.0;
    const auto wide = static_cast<std::uint64_t>(sample);
    const std::array<std::uint32_t, 4> words = core::philox4x32_10(
            {static_cast<std::uint32_t>(feature >> 2), static_cast<std::uint32_t>(offset),
             static_cast<std::uint32_t>(wide), dropout.site ^ static_cast<std::uint32_t>(wide >> 32)},
            core::philox_key(dropout.seed));
    const bool kept = static_cast<double>(words[static_cast<std::size_t>(feature & 3)]) >=
                      static_cast<double>(dropout.probability) * 0x1p32;
    return kept ? static_cast<double>(1.0F / (1.0F - dropout.probability)) : 0.0;
}

}  // namespace tessera::support

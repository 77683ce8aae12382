#include "kernels/reduction.h"

#include "support/tensor_support.h"

namespace tessera::kernels {
namespace {

using core::DType;
using core::Tensor;
using support::expect_close;
using support::values;
using Values = std::vector<double>;

const std::vector<std::int64_t> kCounts = {1, 7, 19, 1023, 1024, 1025, 4097, 10007};

class ReductionTest : public support::KernelTest {};

TEST_F(ReductionTest, SumOfSquaresByBlock) {
    for (const std::int64_t count : kCounts) {
        const Tensor x = device.random({count}, DType::f32, 3.0);
        const std::int64_t blocks = (count + kNormBlock - 1) / kNormBlock;
        Tensor partial = device.make({blocks}, DType::f32);
        sum_of_squares(device.backend(), device.stream(), x, partial);
        Values expected(static_cast<std::size_t>(blocks));
        for (std::int64_t i = 0; i < count; ++i) {
            expected[static_cast<std::size_t>(i / kNormBlock)] += support::element(x, i) * support::element(x, i);
        }
        expect_close(fmt::format("{} elements", count), partial, expected,
                     {.terms = static_cast<double>(std::min(count, kNormBlock)), .magnitude = 9});
    }
}

TEST_F(ReductionTest, NonFiniteInputGivesNonFinitePartial) {
    for (const double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
        for (const std::int64_t at : {0, 1030, 2051}) {
            Tensor x = device.random({2052}, DType::f32);
            support::set_element(x, at, bad);
            Tensor partial = device.make({3}, DType::f32);
            sum_of_squares(device.backend(), device.stream(), x, partial);
            for (std::int64_t block = 0; block < 3; ++block) {
                EXPECT_EQ(std::isfinite(support::element(partial, block)), block != at / kNormBlock) << at;
            }
        }
    }
}

TEST_F(ReductionTest, SumAddsInDouble) {
    for (const std::int64_t count : kCounts) {
        const Tensor x = device.random({count}, DType::f32, 1e6);
        double expected = 0;
        for (const double value : values(x)) expected += value;
        EXPECT_NEAR(sum(device.backend(), device.stream(), x), expected, 1e-3) << count;
    }
    Tensor cancelling = device.make({3}, DType::f32);
    for (std::int64_t i = 0; i < 3; ++i) support::set_element(cancelling, i, i == 0 ? 3e9 : i == 1 ? 1.0 : -3e9);
    EXPECT_EQ(sum(device.backend(), device.stream(), cancelling), 1.0);
}

TEST_F(ReductionTest, ScaleAndAdd) {
    for (const std::int64_t count : kCounts) {
        for (const DType dtype : support::kFloatingDTypes) {
            const std::string what = fmt::format("{} {}", count, core::name_of(dtype));
            const Tensor x = device.random({count}, dtype);
            Tensor y = device.random({count}, dtype);
            Values expected = values(y);
            add(device.backend(), device.stream(), x, y);
            for (std::int64_t i = 0; i < count; ++i) expected[static_cast<std::size_t>(i)] += support::element(x, i);
            expect_close("add " + what, y, expected, {});
            expected = values(y);
            scale(device.backend(), device.stream(), y, 0.3F);
            for (double& value : expected) value *= static_cast<double>(0.3F);
            expect_close("scale " + what, y, expected, {});
        }
    }
}

template <typename T>
std::uint32_t bits_of(T value) {
    if constexpr (std::is_same_v<T, float>) {
        return std::bit_cast<std::uint32_t>(value);
    } else {
        return value.bits;
    }
}

/// Casts every value of `contents` and compares with the scalar definition; every NaN may be any NaN.
template <typename From, typename To>
void expect_cast(support::Device& device, const std::vector<From>& contents) {
    const auto count = static_cast<std::int64_t>(contents.size());
    const Tensor x = device.of(contents);
    Tensor y = device.make({count}, core::DTypeOf<To>::value);
    cast(device.backend(), device.stream(), x, y);
    for (std::int64_t i = 0; i < count; ++i) {
        const float wide = core::to_f32(contents[static_cast<std::size_t>(i)]);
        const To got = y.data<To>()[i];
        if (std::isnan(wide)) {
            ASSERT_TRUE(std::isnan(core::to_f32(got))) << "NaN became " << core::to_f32(got);
        } else {
            ASSERT_EQ(bits_of(got), bits_of(core::from_f32<To>(wide))) << wide << " at " << i;
        }
    }
}

/// Ties in both directions, the neighbours of ties, extremes, subnormals; each at every place of a vector.
std::vector<float> awkward_values() {
    std::vector<float> all;
    for (const std::uint32_t exponent : {0U, 1U, 90U, 102U, 103U, 112U, 113U, 127U, 142U, 143U, 200U, 254U}) {
        for (const std::uint32_t mantissa :
             {0U,        1U,        0xFFFU,    0x1000U,   0x1001U,   0x2FFFU,   0x3000U,
              0x3001U,   0x7FFFU,   0x8000U,   0x8001U,   0x17FFFU,  0x18000U,  0x18001U,
              0x7FDFFFU, 0x7FE000U, 0x7FEFFFU, 0x7FF000U, 0x7F7FFFU, 0x7F8000U, 0x7FFFFFU}) {
            for (const std::uint32_t sign : {0U, 0x80000000U}) {
                all.push_back(std::bit_cast<float>(sign | exponent << 23 | mantissa));
            }
        }
    }
    for (const std::uint32_t special : {0x7F800000U, 0xFF800000U, 0x7FC00000U, 0x7F800001U, 0xFFFFFFFFU}) {
        all.push_back(std::bit_cast<float>(special));
    }
    return all;
}

TEST_F(ReductionTest, CastRoundsToNearestEven) {
    const std::vector<float> awkward = awkward_values();
    expect_cast<float, core::bf16>(device, awkward);
    expect_cast<float, core::f16>(device, awkward);
    expect_cast<float, float>(device, awkward);
    for (std::size_t i = 0; i < awkward.size(); i += 5) {
        const std::vector<float> tail(awkward.begin() + static_cast<std::ptrdiff_t>(i),
                                      awkward.begin() + static_cast<std::ptrdiff_t>(std::min(i + 5, awkward.size())));
        expect_cast<float, core::bf16>(device, tail);
        expect_cast<float, core::f16>(device, tail);
    }
    // 1 + 2^-8 lies between 1 and 1 + 2^-7: to the even 1. The next tie, 1 + 3·2^-8, goes up.
    Tensor ties = device.of(std::vector<float>{1.0F + 0x1p-8F, 1.0F + 3 * 0x1p-8F, 1.0F + 0x1p-8F + 0x1p-20F});
    Tensor rounded = device.make({3}, DType::bf16);
    cast(device.backend(), device.stream(), ties, rounded);
    EXPECT_EQ(values(rounded), (Values{1.0, 1.0 + 0x1p-6, 1.0 + 0x1p-7}));
}

TEST_F(ReductionTest, EveryHalfPatternWidensExactly) {
    std::vector<core::bf16> brains;
    std::vector<core::f16> halves;
    for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
        brains.push_back({static_cast<std::uint16_t>(bits)});
        halves.push_back({static_cast<std::uint16_t>(bits)});
    }
    expect_cast<core::bf16, float>(device, brains);
    expect_cast<core::f16, float>(device, halves);
    expect_cast<core::bf16, core::f16>(device, brains);
    expect_cast<core::f16, core::bf16>(device, halves);
}

}  // namespace
}  // namespace tessera::kernels

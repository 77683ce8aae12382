#include "core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.h"

namespace tessera::core {
namespace {

TEST(DType, SizesAndNamesAreInverse) {
    for (DType dtype : {DType::f32, DType::bf16, DType::f16, DType::i32, DType::i64, DType::u16}) {
        EXPECT_EQ(dtype_from_name(name_of(dtype)), dtype);
        EXPECT_GT(size_of(dtype), 0);
    }
    EXPECT_THROW(dtype_from_name("fp8"), ConfigError);
}

TEST(DType, Bf16RoundsToNearestEven) {
    EXPECT_EQ(to_bf16(1.0F).bits, 0x3f80);
    // Halfway between 0x3f80 and 0x3f81: to the even one; a little more goes up.
    EXPECT_EQ(to_bf16(std::bit_cast<float>(0x3f808000U)).bits, 0x3f80);
    EXPECT_EQ(to_bf16(std::bit_cast<float>(0x3f808001U)).bits, 0x3f81);
    EXPECT_EQ(to_bf16(std::bit_cast<float>(0x3f818000U)).bits, 0x3f82);
    EXPECT_TRUE(std::isnan(to_f32(to_bf16(std::bit_cast<float>(0x7f800001U)))));
    EXPECT_TRUE(std::isinf(to_f32(to_bf16(std::numeric_limits<float>::max()))));
}

TEST(DType, EveryF16SurvivesTheWayThroughF32) {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
        const f16 value{static_cast<std::uint16_t>(bits)};
        const float wide = to_f32(value);
        if (std::isnan(wide)) {
            EXPECT_TRUE(std::isnan(to_f32(to_f16(wide))));
        } else {
            ASSERT_EQ(to_f16(wide).bits, value.bits) << bits;
        }
    }
}

TEST(DType, F16RoundsToNearestEvenAndOverflows) {
    const float ulp = 0x1p-10F;
    EXPECT_EQ(to_f16(1.0F + ulp / 2).bits, 0x3c00);
    EXPECT_EQ(to_f16(1.0F + ulp * 1.5F).bits, 0x3c02);
    EXPECT_EQ(to_f16(65519.0F).bits, 0x7bff);
    EXPECT_EQ(to_f16(65520.0F).bits, 0x7c00);
    EXPECT_EQ(to_f16(0x1p-25F).bits, 0x0000);
    EXPECT_EQ(to_f16(0x1.8p-25F).bits, 0x0001);
    EXPECT_EQ(to_f16(-0x1p-24F).bits, 0x8001);
}

}  // namespace
}  // namespace tessera::core

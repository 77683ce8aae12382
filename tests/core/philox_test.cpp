#include "core/philox.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tessera::core {
namespace {

// The known answers published with the reference implementation (Random123, kat_vectors).
TEST(Philox, MatchesThePublishedVectors) {
    using Words = std::array<std::uint32_t, 4>;
    EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
    const std::uint32_t ones = 0xffffffff;
    EXPECT_EQ(philox4x32_10({ones, ones, ones, ones}, {ones, ones}),
              (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
    EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
              (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, NormalsHaveTheMomentsOfN01) {
    const int n = 200000;
    double sum = 0;
    double squares = 0;
    double fourth = 0;
    for (int i = 0; i < n; ++i) {
        const double x = normal_at(1234, name_hash("layers.0.mlp.fc1.weight"), static_cast<std::uint64_t>(i));
        sum += x;
        squares += x * x;
        fourth += x * x * x * x;
    }
    EXPECT_NEAR(sum / n, 0.0, 4 / std::sqrt(n));
    EXPECT_NEAR(squares / n, 1.0, 4 * std::sqrt(2.0 / n));
    EXPECT_NEAR(fourth / n, 3.0, 4 * std::sqrt(96.0 / n));
}

TEST(Philox, SeedNameAndIndexAllMatter) {
    const auto base = normal_at(1, name_hash("a"), 7);
    EXPECT_EQ(base, normal_at(1, name_hash("a"), 7));
    EXPECT_NE(base, normal_at(2, name_hash("a"), 7));
    EXPECT_NE(base, normal_at(1, name_hash("b"), 7));
    EXPECT_NE(base, normal_at(1, name_hash("a"), 8));
}

}  // namespace
}  // namespace tessera::core

#include "data/sample_order.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tessera::data {
namespace {

std::vector<std::int64_t> whole(const KeyedPermutationArgs& args) {
    const KeyedPermutation permutation(args);
    std::vector<std::int64_t> values;
    for (std::int64_t k = 0; k < args.size; ++k) values.push_back(permutation(k));
    return values;
}

TEST(SampleOrder, is_a_permutation_for_every_size) {
    for (const std::int64_t size : {1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 1000, 4096, 65536, 100003}) {
        std::vector<bool> seen(static_cast<std::size_t>(size));
        for (const std::int64_t value : whole({.size = size, .seed = 5})) {
            ASSERT_GE(value, 0);
            ASSERT_LT(value, size);
            EXPECT_FALSE(seen[static_cast<std::size_t>(value)]) << size;
            seen[static_cast<std::size_t>(value)] = true;
        }
    }
}

TEST(SampleOrder, every_part_of_the_key_changes_the_order_and_nothing_else_does) {
    const KeyedPermutationArgs base = {.size = 1009, .seed = 1};
    EXPECT_EQ(whole(base), whole(base));
    EXPECT_NE(whole(base), whole({.size = 1009, .seed = 2}));
    EXPECT_NE(whole(base), whole({.size = 1009, .seed = 1ULL << 32 | 1}));
    EXPECT_NE(whole(base), whole({.size = 1009, .seed = 1, .stream = 1}));
    EXPECT_NE(whole(base), whole({.size = 1009, .seed = 1, .round = 1}));
}

TEST(SampleOrder, mixes_neighbours_and_halves) {
    constexpr std::int64_t kSize = 10007;
    const std::vector<std::int64_t> values = whole({.size = kSize, .seed = 3});
    double correlation = 0;
    std::int64_t low_first = 0;
    const double mean = (kSize - 1) / 2.0;
    for (std::int64_t k = 0; k + 1 < kSize; ++k) {
        correlation += (static_cast<double>(values[static_cast<std::size_t>(k)]) - mean) *
                       (static_cast<double>(values[static_cast<std::size_t>(k + 1)]) - mean);
        if (k < kSize / 2 && values[static_cast<std::size_t>(k)] < kSize / 2) ++low_first;
    }
    // Both deviate by about 1/sqrt(size) = 0.01 in a random order; five times that is allowed.
    EXPECT_LT(std::abs(correlation / (static_cast<double>(kSize) * mean * mean / 3)), 0.05);
    EXPECT_NEAR(static_cast<double>(low_first) / kSize, 0.25, 0.025);
}

TEST(SampleOrder, huge_sizes_stay_inside) {
    constexpr std::int64_t kSize = (std::int64_t{1} << 61) + 12345;
    const KeyedPermutation permutation({.size = kSize, .seed = 9});
    for (const std::int64_t index : {std::int64_t{0}, std::int64_t{1}, kSize / 2, kSize - 1}) {
        EXPECT_GE(permutation(index), 0);
        EXPECT_LT(permutation(index), kSize);
    }
    EXPECT_NE(permutation(0), permutation(1));
}

}  // namespace
}  // namespace tessera::data

#include "parallel/reduction_tree.h"

#include <gtest/gtest.h>

#include <vector>

#include "parallel/conformance.h"

namespace tessera::parallel {
namespace {

TEST(ReductionTree, TheLeftSubtreeIsTheLargestPowerOfTwo) {
    EXPECT_EQ(tree_split(0, 2), 1);
    EXPECT_EQ(tree_split(0, 3), 2);
    EXPECT_EQ(tree_split(0, 4), 2);
    EXPECT_EQ(tree_split(0, 5), 4);
    EXPECT_EQ(tree_split(4, 8), 6);
    EXPECT_EQ(tree_split(0, 8), 4);
    EXPECT_EQ(tree_split(0, 9), 8);
}

/// Ranks of a larger job that hold whole subtrees give the larger job's bits: two partial sums of 2 and 2 are the sum
/// of 4.
TEST(ReductionTree, SubtreesCompose) {
    constexpr std::int64_t kCount = 3000;
    std::vector<std::vector<float>> leaves(4, std::vector<float>(kCount));
    for (std::size_t r = 0; r < 4; ++r) {
        for (std::size_t i = 0; i < kCount; ++i) {
            leaves[r][i] = static_cast<float>((i * 7919 + r * 104729) % 1009) * (r % 2 == 0 ? 1e-3F : 37.0F) - 9.0F;
        }
    }
    const auto reduce = [](std::vector<const float*> inputs, float* output) {
        std::vector<const std::byte*> bytes;
        for (const float* input : inputs) bytes.push_back(reinterpret_cast<const std::byte*>(input));
        reduce_in_tree_order(core::DType::f32, ReduceOp::sum, bytes, reinterpret_cast<std::byte*>(output), kCount);
    };
    std::vector<float> all(kCount);
    std::vector<float> left(kCount);
    std::vector<float> right(kCount);
    reduce({leaves[0].data(), leaves[1].data(), leaves[2].data(), leaves[3].data()}, all.data());
    reduce({leaves[0].data(), leaves[1].data()}, left.data());
    reduce({leaves[2].data(), leaves[3].data()}, right.data());
    reduce({left.data(), right.data()}, left.data());
    EXPECT_EQ(all, left);
    // Another order has other bits, or this test could not fail.
    std::vector<float> chain(kCount);
    for (std::size_t i = 0; i < kCount; ++i) chain[i] = leaves[0][i] + leaves[1][i] + leaves[2][i] + leaves[3][i];
    EXPECT_NE(all, chain);
}

TEST(SelfCommunicator, Conforms) {
    core::MemoryPool pool(core::DeviceType::cpu);
    const auto group = make_self_communicator(Axis::tensor, 3);
    EXPECT_EQ(group->ranks(), std::vector<int>{3});
    test::expect_all_reduces(*group, pool);
    test::expect_reduce_scatters(*group, pool);
    test::expect_all_gathers(*group, pool);
    test::expect_broadcasts(*group, pool);
    test::expect_all_to_alls(*group, pool);
    test::expect_exchanges(*group, pool);
    test::expect_any_order_of_waiting(*group, pool);
    test::expect_traffic(*group, pool);
    test::expect_refusals(*group, pool);
}

}  // namespace
}  // namespace tessera::parallel

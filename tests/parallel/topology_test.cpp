#include "parallel/topology.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"

namespace tessera::parallel {
namespace {

constexpr Degrees kGrid{.tensor = 2, .context = 1, .data = 3, .pipeline = 4};

TEST(Topology, TensorVariesFastestAndPipelineSlowest) {
    EXPECT_EQ(coordinates_of(kGrid, 0), (Coordinates{}));
    EXPECT_EQ(coordinates_of(kGrid, 1), (Coordinates{.tensor = 1}));
    EXPECT_EQ(coordinates_of(kGrid, 2), (Coordinates{.data = 1}));
    EXPECT_EQ(coordinates_of(kGrid, 6), (Coordinates{.pipeline = 1}));
    EXPECT_EQ(coordinates_of(kGrid, 23), (Coordinates{.tensor = 1, .data = 2, .pipeline = 3}));
    for (int rank = 0; rank < kGrid.product(); ++rank) EXPECT_EQ(rank_of(kGrid, coordinates_of(kGrid, rank)), rank);
}

TEST(Topology, GroupsOfOneRank) {
    // Rank 9 = tensor 1, data 1, pipeline 1.
    EXPECT_EQ(group_of(kGrid, Axis::tensor, 9), (std::vector<int>{8, 9}));
    EXPECT_EQ(group_of(kGrid, Axis::context, 9), (std::vector<int>{9}));
    EXPECT_EQ(group_of(kGrid, Axis::data, 9), (std::vector<int>{7, 9, 11}));
    EXPECT_EQ(group_of(kGrid, Axis::pipeline, 9), (std::vector<int>{3, 9, 15, 21}));
    EXPECT_EQ(group_of(kGrid, Axis::model, 9), (std::vector<int>{2, 3, 8, 9, 14, 15, 20, 21}));
    EXPECT_EQ(group_of(kGrid, Axis::embedding, 9), (std::vector<int>{9}));
    EXPECT_EQ(group_of(kGrid, Axis::embedding, 3), (std::vector<int>{3, 21}));
    EXPECT_EQ(group_of(kGrid, Axis::world, 9).size(), 24U);
}

TEST(Topology, GroupsOfAnAxisPartitionTheWorld) {
    for (const Degrees& degrees : {kGrid, Degrees{.tensor = 3, .context = 2, .data = 1, .pipeline = 2}, Degrees{}}) {
        for (std::size_t i = 0; i < kAxes; ++i) {
            const auto axis = static_cast<Axis>(i);
            for (int rank = 0; rank < degrees.product(); ++rank) {
                const std::vector<int> own = group_of(degrees, axis, rank);
                EXPECT_TRUE(std::is_sorted(own.begin(), own.end()));
                EXPECT_EQ(std::count(own.begin(), own.end(), rank), 1);
                for (const int member : own) EXPECT_EQ(group_of(degrees, axis, member), own);
            }
        }
    }
}

std::string refusal(const Degrees& degrees, int world_size) {
    try {
        check_world_size(degrees, world_size);
    } catch (const core::ConfigError& error) {
        return error.what();
    }
    return "";
}

TEST(Topology, AWorldThatDoesNotFactorIsRefusedWithWhatWould_DI_04) {
    EXPECT_EQ(refusal(kGrid, 24), "");
    EXPECT_EQ(refusal({.tensor = 2}, 1),
              "parallel: tensor 2 x context 1 x data 1 x pipeline 1 = 2 processes, but there is 1; tensor x context x "
              "pipeline = 2 does not divide 1: start 2 processes");
    EXPECT_EQ(refusal({.tensor = 2, .pipeline = 2}, 6),
              "parallel: tensor 2 x context 1 x data 1 x pipeline 2 = 4 processes, but there are 6; tensor x context x "
              "pipeline = 4 does not divide 6: start 4 or 8 processes");
    EXPECT_EQ(refusal({.tensor = 2, .data = 2}, 8),
              "parallel: tensor 2 x context 1 x data 2 x pipeline 1 = 4 processes, but there are 8; parallel.data = 4 "
              "would fit, or start 4 processes");
}

/// A user's own: two model-parallel ranks, whatever the world.
class PairTopology final : public Topology {
public:
    Communicator& group(Axis axis) override { return *groups_.at(static_cast<std::size_t>(axis)); }
    PairTopology() {
        for (std::size_t i = 0; i < kAxes; ++i) groups_.push_back(make_self_communicator(static_cast<Axis>(i), 7));
    }

private:
    std::vector<std::unique_ptr<Communicator>> groups_;
};

TEST(Topology, AUserSuppliedMpuAnswersTheSixFunctions) {
    PairTopology mpu;
    EXPECT_EQ(mpu.get_model_parallel_rank(), 0);
    EXPECT_EQ(mpu.get_model_parallel_world_size(), 1);
    EXPECT_EQ(mpu.get_model_parallel_group().ranks(), std::vector<int>{7});
    EXPECT_EQ(mpu.get_data_parallel_rank(), 0);
    EXPECT_EQ(mpu.get_data_parallel_world_size(), 1);
    EXPECT_EQ(mpu.get_data_parallel_group().axis(), Axis::data);
    EXPECT_EQ(mpu.degrees(), Degrees{});
    EXPECT_EQ(mpu.coordinates(), Coordinates{});
}

}  // namespace
}  // namespace tessera::parallel

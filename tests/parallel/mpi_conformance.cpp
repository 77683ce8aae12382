// The conformance suite on MPI, started by mpirun with any number of processes (CMakeLists.txt). With an argument it
// plays one of the failures instead: wait, mismatch, error.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "core/error.h"
#include "parallel/conformance.h"
#include "parallel/mpi/world.h"
#include "parallel/topology.h"

namespace tessera::parallel {
namespace {

core::MemoryPool* pool = nullptr;
MpiWorld* world = nullptr;

std::vector<int> all_ranks() {
    std::vector<int> ranks;
    for (int rank = 0; rank < world->size(); ++rank) ranks.push_back(rank);
    return ranks;
}

class Mpi : public testing::Test {
protected:
    std::unique_ptr<Communicator> group_ = world->make_group(Axis::world, all_ranks(), world->rank());
};

TEST_F(Mpi, AllReduce) {
    test::expect_all_reduces(*group_, *pool);
}
TEST_F(Mpi, ReduceScatter) {
    test::expect_reduce_scatters(*group_, *pool);
}
TEST_F(Mpi, AllGather) {
    test::expect_all_gathers(*group_, *pool);
}
TEST_F(Mpi, Broadcast) {
    test::expect_broadcasts(*group_, *pool);
}
TEST_F(Mpi, AllToAll) {
    test::expect_all_to_alls(*group_, *pool);
}
TEST_F(Mpi, Exchange) {
    test::expect_exchanges(*group_, *pool);
}
TEST_F(Mpi, AnyOrderOfWaiting) {
    test::expect_any_order_of_waiting(*group_, *pool);
}
TEST_F(Mpi, Traffic) {
    test::expect_traffic(*group_, *pool);
}
TEST_F(Mpi, Refusals) {
    test::expect_refusals(*group_, *pool);
}

/// Every axis of a grid at once: groups that share a member do not mix their messages.
TEST_F(Mpi, GroupsOfAGrid) {
    const int n = world->size();
    const Degrees degrees = {.tensor = n % 2 == 0 ? 2 : 1,
                             .data = n % 4 == 0 ? 2 : 1,
                             .pipeline = n / ((n % 2 == 0 ? 2 : 1) * (n % 4 == 0 ? 2 : 1))};
    GridTopology topology(degrees, world->rank(), n, [](Axis axis, const std::vector<int>& ranks, int rank) {
        return world->make_group(axis, ranks, rank);
    });
    EXPECT_EQ(topology.degrees(), degrees);
    EXPECT_EQ(topology.coordinates(), coordinates_of(degrees, world->rank()));
    for (int round = 0; round < 50; ++round) {
        std::vector<core::Tensor> sums;
        std::vector<Work> works;
        for (std::size_t i = 0; i < kAxes; ++i) {
            sums.push_back(core::Tensor::zeros(*pool, {1000}, core::DType::i64, core::MemoryCategory::buffers));
            for (std::int64_t k = 0; k < 1000; ++k) sums.back().data<std::int64_t>()[k] = world->rank() * 1000 + k;
            works.push_back(
                    topology.group(static_cast<Axis>(i)).all_reduce(sums.back(), ReduceOp::sum, Purpose::gradients));
        }
        for (const Work& work : works) work.synchronize();
        for (std::size_t i = 0; i < kAxes; ++i) {
            const std::vector<int>& ranks = topology.group(static_cast<Axis>(i)).ranks();
            std::int64_t wanted = 0;
            for (const int rank : ranks) wanted += rank * 1000;
            for (std::int64_t k = 0; k < 1000; ++k) {
                ASSERT_EQ(sums[i].data<std::int64_t>()[k], wanted + k * static_cast<std::int64_t>(ranks.size()));
            }
        }
    }
}

/// What reductions receive is in the account, and is given back.
TEST_F(Mpi, WorkspaceIsAccounted) {
    const std::int64_t before = pool->statistics().current_bytes;
    {
        const core::Tensor tensor =
                core::Tensor::zeros(*pool, {1 << 16}, core::DType::f32, core::MemoryCategory::buffers);
        const Work work = group_->all_reduce(tensor, ReduceOp::sum, Purpose::gradients);
        work.synchronize();
    }
    group_->barrier();
    EXPECT_EQ(pool->statistics().current_bytes, before);
}

/// Failures that the test's runner looks for in the output: how a job ends when a rank does.
int play(const std::string& part) {
    const auto group = world->make_group(Axis::world, all_ranks(), world->rank());
    const core::Tensor tensor = core::Tensor::zeros(*pool, {1000}, core::DType::f32, core::MemoryCategory::buffers);
    const bool last = world->rank() == world->size() - 1;
    group->barrier();
    if (part == "wait") {
        world->set_wait_limit_s(1);
        if (last) pause();
        group->all_reduce(tensor, ReduceOp::sum, Purpose::gradients).synchronize();
    } else if (part == "mismatch") {
        const core::Tensor part_of_it = tensor.range(0, last ? 500 : 1000);
        group->all_reduce(part_of_it, ReduceOp::sum, Purpose::gradients).synchronize();
    } else if (part == "error") {
        if (last) core::raise<core::RunError>("rank {}: the shard is damaged", world->rank());
        group->all_reduce(tensor, ReduceOp::sum, Purpose::gradients).synchronize();
    } else if (part == "kill") {
        if (last) kill(getpid(), SIGKILL);
        group->all_reduce(tensor, ReduceOp::sum, Purpose::gradients).synchronize();
    }
    return 0;
}

}  // namespace
}  // namespace tessera::parallel

int main(int argc, char** argv) {
    using namespace tessera;
    testing::InitGoogleTest(&argc, argv);
    core::MemoryPool the_pool(core::DeviceType::cpu);
    parallel::MpiWorld the_world(the_pool);
    parallel::pool = &the_pool;
    parallel::world = &the_world;
    if (argc > 1) {
        try {
            return parallel::play(argv[1]);
        } catch (const core::Error& error) {
            std::fprintf(stderr, "mpi_conformance: %s\n", error.what());
            std::fflush(stderr);
            the_world.abort(static_cast<int>(error.exit_code()));
        }
    }
    if (the_world.rank() != 0) {
        // One report; the others speak up only where something failed.
        delete testing::UnitTest::GetInstance()->listeners().Release(
                testing::UnitTest::GetInstance()->listeners().default_result_printer());
    }
    const int failed = RUN_ALL_TESTS();
    if (failed != 0) {
        std::fprintf(stderr, "rank %d: failures\n", the_world.rank());
        the_world.abort(1);
    }
    return 0;
}

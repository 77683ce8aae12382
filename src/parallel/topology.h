#pragma once
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/communicator.h"

namespace tessera::parallel {

/// Degrees of parallelism; their product is the number of processes.
struct Degrees {
    int tensor = 1;
    int context = 1;
    int data = 1;
    int pipeline = 1;
    int product() const { return tensor * context * data * pipeline; }
    bool operator==(const Degrees&) const = default;
};

/// A rank's place along every axis.
struct Coordinates {
    int tensor = 0;
    int context = 0;
    int data = 0;
    int pipeline = 0;
    bool operator==(const Coordinates&) const = default;
};

/// rank = ((pipeline·data_degree + data)·context_degree + context)·tensor_degree + tensor: the tensor coordinate varies
/// fastest, so that its group, which talks most, stays inside a machine.
Coordinates coordinates_of(const Degrees& degrees, int rank);
int rank_of(const Degrees& degrees, const Coordinates& coordinates);

/// The world ranks of the group along `axis` that `rank` belongs to, in the order of the coordinate; model: in the
/// order of their world ranks. The embedding group is the first and the last stage (one rank where there is one stage);
/// a rank of a stage between them is alone in its.
std::vector<int> group_of(const Degrees& degrees, Axis axis, int rank);

/// @throws ConfigError where the degrees' product is not `world_size`: the numbers, and the data-parallel degree or the
/// number of processes that would fit.
void check_world_size(const Degrees& degrees, int world_size);

/// Who talks to whom (an `mpu`). A user may supply an own one: a class that answers group().
class Topology {
public:
    virtual ~Topology() = default;

    /// The group along `axis` to which this process belongs. Lives as long as the topology.
    virtual Communicator& group(Axis axis) = 0;

    // What other frameworks ask of an mpu. "Model" is tensor × context × pipeline at one data index.
    int get_model_parallel_rank() { return group(Axis::model).rank(); }
    int get_model_parallel_world_size() { return group(Axis::model).size(); }
    Communicator& get_model_parallel_group() { return group(Axis::model); }
    int get_data_parallel_rank() { return group(Axis::data).rank(); }
    int get_data_parallel_world_size() { return group(Axis::data).size(); }
    Communicator& get_data_parallel_group() { return group(Axis::data); }

    Degrees degrees();
    Coordinates coordinates();
};

/// Makes the communicator of the group `ranks` (world ranks), of which this process is the `rank`-th. Called on every
/// member of a group, for the axes in one order.
using GroupFactory = std::function<std::unique_ptr<Communicator>(Axis axis, const std::vector<int>& ranks, int rank)>;

/// The regular grid of `degrees` over the world.
class GridTopology final : public Topology {
public:
    /// @throws ConfigError as check_world_size.
    GridTopology(const Degrees& degrees, int world_rank, int world_size, const GroupFactory& make_group);
    Communicator& group(Axis axis) override { return *groups_[static_cast<std::size_t>(axis)]; }

private:
    std::array<std::unique_ptr<Communicator>, kAxes> groups_;
};

/// One process alone.
std::unique_ptr<Topology> make_single_topology();

}  // namespace tessera::parallel

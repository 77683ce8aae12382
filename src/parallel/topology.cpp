#include "parallel/topology.h"

#include <algorithm>

#include "core/error.h"

namespace tessera::parallel {

Coordinates coordinates_of(const Degrees& degrees, int rank) {
    Coordinates at;
    at.tensor = rank % degrees.tensor;
    rank /= degrees.tensor;
    at.context = rank % degrees.context;
    rank /= degrees.context;
    at.data = rank % degrees.data;
    at.pipeline = rank / degrees.data;
    return at;
}

int rank_of(const Degrees& degrees, const Coordinates& at) {
    return ((at.pipeline * degrees.data + at.data) * degrees.context + at.context) * degrees.tensor + at.tensor;
}

namespace {

bool in_group(const Degrees& degrees, Axis axis, const Coordinates& own, const Coordinates& other) {
    const bool tensor = own.tensor == other.tensor;
    const bool context = own.context == other.context;
    const bool data = own.data == other.data;
    const bool pipeline = own.pipeline == other.pipeline;
    switch (axis) {
        case Axis::tensor:
            return context && data && pipeline;
        case Axis::context:
            return tensor && data && pipeline;
        case Axis::data:
            return tensor && context && pipeline;
        case Axis::pipeline:
            return tensor && context && data;
        case Axis::model:
            return data;
        case Axis::embedding: {
            const auto at_an_end = [&](const Coordinates& c) {
                return c.pipeline == 0 || c.pipeline == degrees.pipeline - 1;
            };
            return tensor && context && data && (pipeline || (at_an_end(own) && at_an_end(other)));
        }
        case Axis::world:
            return true;
    }
    return false;
}

}  // namespace

std::vector<int> group_of(const Degrees& degrees, Axis axis, int rank) {
    const Coordinates own = coordinates_of(degrees, rank);
    std::vector<int> ranks;
    for (int other = 0; other < degrees.product(); ++other) {
        if (in_group(degrees, axis, own, coordinates_of(degrees, other))) ranks.push_back(other);
    }
    return ranks;
}

void check_world_size(const Degrees& degrees, int world_size) {
    if (degrees.product() == world_size) return;
    const int model = degrees.tensor * degrees.context * degrees.pipeline;
    const std::string wanted =
            fmt::format("tensor {} x context {} x data {} x pipeline {} = {} processes, but there {} {}",
                        degrees.tensor, degrees.context, degrees.data, degrees.pipeline, degrees.product(),
                        world_size == 1 ? "is" : "are", world_size);
    if (world_size % model == 0) {
        core::raise<core::ConfigError>("parallel: {}; parallel.data = {} would fit, or start {} processes", wanted,
                                       world_size / model, degrees.product());
    }
    const int below = world_size / model * model;
    core::raise<core::ConfigError>(
            "parallel: {}; tensor x context x pipeline = {} does not divide {}: start {}{} processes", wanted, model,
            world_size, below > 0 ? fmt::format("{} or ", below) : std::string(), below + model);
}

Degrees Topology::degrees() {
    return {.tensor = group(Axis::tensor).size(),
            .context = group(Axis::context).size(),
            .data = group(Axis::data).size(),
            .pipeline = group(Axis::pipeline).size()};
}

Coordinates Topology::coordinates() {
    return {.tensor = group(Axis::tensor).rank(),
            .context = group(Axis::context).rank(),
            .data = group(Axis::data).rank(),
            .pipeline = group(Axis::pipeline).rank()};
}

GridTopology::GridTopology(const Degrees& degrees, int world_rank, int world_size, const GroupFactory& make_group) {
    check_world_size(degrees, world_size);
    for (std::size_t i = 0; i < kAxes; ++i) {
        const auto axis = static_cast<Axis>(i);
        const std::vector<int> ranks = group_of(degrees, axis, world_rank);
        const auto place = std::find(ranks.begin(), ranks.end(), world_rank);
        groups_[i] = ranks.size() == 1 ? make_self_communicator(axis, world_rank)
                                       : make_group(axis, ranks, static_cast<int>(place - ranks.begin()));
    }
}

std::unique_ptr<Topology> make_single_topology() {
    return std::make_unique<GridTopology>(Degrees{}, 0, 1, GroupFactory());
}

}  // namespace tessera::parallel

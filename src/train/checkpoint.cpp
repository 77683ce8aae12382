#include "train/checkpoint.h"

namespace tessera::train {
namespace {

using core::DType;

/// Calls visit(slice, parameter's element offset in the flat range) for every logical slice of every unit.
template <typename Visit>
void for_each_slice(Engine& engine, Visit&& visit) {
    for (zero::FlatUnit& flat : engine.parameters().units()) {
        const auto& parameters = flat.unit->parameters();
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            for (const layers::LogicalSlice& slice : parameters[i]->slices()) {
                visit(flat, slice, flat.unit->offset(i) + slice.local_row * parameters[i]->columns());
            }
        }
    }
}

TensorBlock block_of(const layers::LogicalSlice& slice) {
    TensorBlock block{.global_shape = slice.global_shape};
    block.ranges[0] = {slice.global_row, slice.global_row + slice.rows};
    if (slice.global_shape.rank() > 1) block.ranges[1] = {slice.global_column, slice.global_column + slice.columns};
    return block;
}

struct Part {
    const char* prefix;
    core::Tensor zero::FlatUnit::*tensor;
};

std::vector<Part> parts_of(const Engine& engine) {
    if (engine.settings().state == zero::StateKind::values_only) return {{"model/", &zero::FlatUnit::values}};
    return {{"model/", &zero::FlatUnit::main_param},
            {"optimizer/exp_avg/", &zero::FlatUnit::exp_avg},
            {"optimizer/exp_avg_sq/", &zero::FlatUnit::exp_avg_sq}};
}

std::byte* element(const core::Tensor& tensor, std::int64_t index) {
    return tensor.bytes() + index * core::size_of(tensor.dtype());
}

}  // namespace

std::vector<TensorSlice> logical_slices(Engine& engine) {
    std::vector<TensorSlice> slices;
    for (const Part& part : parts_of(engine)) {
        for_each_slice(engine, [&](zero::FlatUnit& flat, const layers::LogicalSlice& slice, std::int64_t offset) {
            const core::Tensor& tensor = flat.*part.tensor;
            slices.push_back({.name = part.prefix + slice.name,
                              .block = block_of(slice),
                              .dtype = tensor.dtype(),
                              .data = element(tensor, offset)});
        });
    }
    return slices;
}

void describe_engine(Engine& engine, CheckpointState& state) {
    state.updates = engine.optimizer().updates();
    const zero::LossScaler::State& scaler = engine.loss_scaler().state();
    state.loss_scale = scaler.scale;
    state.loss_scale_clean_steps = scaler.clean_steps;
    state.loss_scale_hysteresis_left = scaler.hysteresis_left;
    state.extras["backend"] = engine.backend().description();
}

void load_engine(Engine& engine, const CheckpointReader& reader, LoadParts load) {
    std::vector<TensorInfo> expected;
    std::vector<Part> parts = parts_of(engine);
    if (load == LoadParts::weights_only) parts.resize(1);
    for (const Part& part : parts) {
        for_each_slice(engine, [&](zero::FlatUnit&, const layers::LogicalSlice& slice, std::int64_t) {
            expected.push_back({.name = part.prefix + slice.name, .shape = slice.global_shape});
        });
    }
    compare_tensors(reader, expected, parts.size() == 1 ? "model/" : "");
    for (const Part& part : parts) {
        for_each_slice(engine, [&](zero::FlatUnit& flat, const layers::LogicalSlice& slice, std::int64_t offset) {
            const core::Tensor& tensor = flat.*part.tensor;
            reader.read(part.prefix + slice.name, block_of(slice), tensor.dtype(), element(tensor, offset));
        });
    }
    engine.parameters().refresh_values();
    if (load == LoadParts::weights_only) return;
    engine.optimizer().restore_updates(reader.state().updates);
    engine.loss_scaler().restore({.scale = reader.state().loss_scale,
                                  .clean_steps = reader.state().loss_scale_clean_steps,
                                  .hysteresis_left = reader.state().loss_scale_hysteresis_left});
}

}  // namespace tessera::train

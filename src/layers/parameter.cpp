#include "layers/parameter.h"

#include <algorithm>

#include "core/parallel.h"
#include "core/philox.h"
#include "core/rounding.h"

namespace tessera::layers {
namespace {

constexpr std::int64_t kParameterAlignment = 64;
constexpr std::int64_t kUnitMultiple = 1024;

}  // namespace

std::int64_t Parameter::logical_numel() const {
    std::int64_t count = 0;
    for (const LogicalSlice& slice : slices_) count += slice.rows * slice.columns;
    return count;
}

Parameter& ParameterUnit::add(core::Shape shape, std::vector<LogicalSlice> slices, WeightDecay decay,
                              Initialisation init, double init_std) {
    parameters_.push_back(std::make_unique<Parameter>(shape, std::move(slices), decay, init, init_std));
    offsets_.push_back(end_);
    end_ = core::round_up(end_ + shape.numel(), kParameterAlignment);
    return *parameters_.back();
}

std::int64_t ParameterUnit::padded_numel(std::int64_t data_parallel_size) const {
    return core::round_up(end_, kUnitMultiple * data_parallel_size);
}

void draw_initial_values(const Parameter& parameter, std::uint64_t seed, float* values) {
    const std::int64_t columns = parameter.columns();
    std::fill_n(values, parameter.shape().numel(), parameter.init() == Initialisation::ones ? 1.0F : 0.0F);
    if (parameter.init() != Initialisation::normal) return;
    const double deviation = parameter.init_std();
    for (const LogicalSlice& slice : parameter.slices()) {
        const std::uint64_t hash = core::name_hash(slice.name.c_str());
        const std::int64_t global_columns = slice.global_shape.rank() > 1 ? slice.global_shape[1] : 1;
        const auto threads = static_cast<int>(std::clamp<std::int64_t>(slice.rows, 1, core::max_threads()));
        core::parallel_ranges(slice.rows, threads, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t row = begin; row < end; ++row) {
                float* out = values + (slice.local_row + row) * columns;
                const std::int64_t first = (slice.global_row + row) * global_columns + slice.global_column;
                for (std::int64_t column = 0; column < slice.columns; ++column) {
                    out[column] = static_cast<float>(
                            deviation * core::normal_at(seed, hash, static_cast<std::uint64_t>(first + column)));
                }
            }
        });
    }
}

}  // namespace tessera::layers

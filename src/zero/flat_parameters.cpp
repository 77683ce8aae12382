#include "zero/flat_parameters.h"

#include <cmath>

namespace tessera::zero {
namespace {

using core::DType;
using core::MemoryCategory;
using core::Tensor;

std::vector<FlatUnit::Range> decay_ranges(const layers::ParameterUnit& unit, std::int64_t padded) {
    std::vector<FlatUnit::Range> ranges;
    const auto& parameters = unit.parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const layers::WeightDecay decay = parameters[i]->decay();
        if (ranges.empty() || ranges.back().decay != decay) {
            if (!ranges.empty()) ranges.back().end = unit.offset(i);
            ranges.push_back({unit.offset(i), padded, decay});
        }
    }
    return ranges;
}

}  // namespace

FlatParameters::FlatParameters(kernels::Backend& backend, core::Stream& stream,
                               const std::vector<layers::ParameterUnit*>& units, DType dtype, StateKind kind)
    : backend_(backend), stream_(stream) {
    core::MemoryPool& pool = backend.pool();
    std::int64_t blocks = 0;
    for (layers::ParameterUnit* unit : units) {
        const std::int64_t numel = unit->padded_numel(1);
        const core::Shape shape{numel};
        FlatUnit flat;
        flat.unit = unit;
        flat.values = Tensor::zeros(pool, shape, dtype, MemoryCategory::parameters);
        flat.main_param = dtype == DType::f32 ? flat.values
                          : kind == StateKind::training
                                  ? Tensor::zeros(pool, shape, DType::f32, MemoryCategory::optimizer)
                                  : Tensor{};
        if (kind == StateKind::training) {
            flat.main_grad = Tensor::zeros(pool, shape, DType::f32, MemoryCategory::gradients);
            flat.exp_avg = Tensor::zeros(pool, shape, DType::f32, MemoryCategory::optimizer);
            flat.exp_avg_sq = Tensor::zeros(pool, shape, DType::f32, MemoryCategory::optimizer);
        }
        flat.ranges = decay_ranges(*unit, numel);
        for (std::size_t i = 0; i < unit->parameters().size(); ++i) {
            layers::Parameter& parameter = *unit->parameters()[i];
            const std::int64_t begin = unit->offset(i);
            const std::int64_t end = begin + parameter.shape().numel();
            parameter.bind(
                    flat.values.range(begin, end).reshape(parameter.shape()),
                    flat.main_grad.defined() ? flat.main_grad.range(begin, end).reshape(parameter.shape()) : Tensor{});
        }
        unit->set_residency(this);
        blocks += numel / kernels::kNormBlock;
        units_.push_back(std::move(flat));
    }
    if (kind == StateKind::training)
        partial_norms_ = Tensor::zeros(pool, {blocks}, DType::f32, MemoryCategory::buffers);
}

FlatParameters::~FlatParameters() {
    for (FlatUnit& flat : units_) flat.unit->set_residency(nullptr);
}

void FlatParameters::initialise(std::uint64_t seed) {
    for (FlatUnit& flat : units_) {
        if (flat.values.is_meta()) continue;
        Tensor target = flat.main_param.defined() ? flat.main_param
                                                  : Tensor::empty(backend_.pool(), flat.values.shape(), DType::f32,
                                                                  MemoryCategory::workspace);
        for (std::size_t i = 0; i < flat.unit->parameters().size(); ++i) {
            layers::draw_initial_values(*flat.unit->parameters()[i], seed, target.data<float>() + flat.unit->offset(i));
        }
        if (!flat.main_param.defined()) kernels::cast(backend_, stream_, target, flat.values);
    }
    refresh_values();
}

void FlatParameters::refresh_values() {
    for (FlatUnit& flat : units_) {
        if (flat.main_param.defined() && flat.values.dtype() != DType::f32) {
            kernels::cast(backend_, stream_, flat.main_param, flat.values);
        }
    }
}

std::int64_t FlatParameters::padded_numel() const {
    std::int64_t total = 0;
    for (const FlatUnit& flat : units_) total += flat.values.numel();
    return total;
}

double FlatParameters::gradient_norm() {
    std::int64_t block = 0;
    for (FlatUnit& flat : units_) {
        const std::int64_t count = flat.main_grad.numel() / kernels::kNormBlock;
        Tensor partial = partial_norms_.range(block, block + count);
        kernels::sum_of_squares(backend_, stream_, flat.main_grad, partial);
        block += count;
    }
    return std::sqrt(kernels::sum(backend_, stream_, partial_norms_));
}

void FlatParameters::acquire(layers::ParameterUnit& unit, core::Stream& /*stream*/) {
    ++leases_[&unit];
}

void FlatParameters::release(layers::ParameterUnit& unit, core::Stream& /*stream*/) {
    TESSERA_INVARIANT(leases_[&unit] > 0);
    --leases_[&unit];
}

std::int64_t FlatParameters::leases(const layers::ParameterUnit& unit) const {
    const auto found = leases_.find(&unit);
    return found == leases_.end() ? 0 : found->second;
}

}  // namespace tessera::zero

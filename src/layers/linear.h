#pragma once
#include "layers/context.h"
#include "layers/parameter.h"

namespace tessera::layers {

/// y = epilogue(x·wᵀ (+ b)) with the rows (outputs) of w split over tensor ranks. x [T, I] -> y [T, O] (swiglu: [T,
/// O/2]).
class ColumnParallelLinear {
public:
    /// weight [O, I], bias [O] or null; both belong to `unit`. counted_outputs: see kernels::LinearForwardArgs.
    ColumnParallelLinear(ParameterUnit& unit, Parameter& weight, Parameter* bias, std::int64_t counted_outputs = 0)
        : unit_(&unit), weight_(&weight), bias_(bias), counted_outputs_(counted_outputs) {}
    Var forward(const ForwardContext& ctx, const Var& x, kernels::Epilogue epilogue,
                core::MemoryCategory category = core::MemoryCategory::activations) const;

private:
    ParameterUnit* unit_;
    Parameter* weight_;
    Parameter* bias_;
    std::int64_t counted_outputs_;
};

/// y = x·wᵀ with the columns (inputs) of w split over tensor ranks; the partial products are summed, and the bias is
/// left to the fused operation that follows. x [T, I] -> y [T, O]. x may carry an activation.
class RowParallelLinear {
public:
    RowParallelLinear(ParameterUnit& unit, Parameter& weight) : unit_(&unit), weight_(&weight) {}
    Var forward(const ForwardContext& ctx, const Var& x) const;

private:
    ParameterUnit* unit_;
    Parameter* weight_;
};

}  // namespace tessera::layers

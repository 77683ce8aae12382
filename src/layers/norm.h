#pragma once
#include "layers/context.h"
#include "layers/parameter.h"

namespace tessera::layers {

/// The gain (and for LayerNorm the offset) of one norm, owned by a unit.
struct NormParameters {
    ParameterUnit* unit = nullptr;
    kernels::NormKind kind = kernels::NormKind::layer;
    float eps = 1e-5F;
    Parameter* gamma = nullptr;
    Parameter* beta = nullptr;  ///< null for RMSNorm
};

/// y = norm(x), x [T, D].
Var norm(const ForwardContext& ctx, const NormParameters& parameters, const Var& x);

struct ResidualOutput {
    Var y;         ///< the norm's output; empty without a norm
    Var residual;  ///< the new residual stream
};

struct ResidualArgs {
    Var x;  ///< the branch, before its bias
    ParameterUnit* unit = nullptr;
    Parameter* bias = nullptr;  ///< the bias that a RowParallelLinear left
    Var residual;
    double dropout = 0;
    std::uint32_t site = 0;
};

/// residual' = residual + dropout(x + bias); y = norm(residual') if `norm_parameters` is given (the end of a layer has
/// none).
ResidualOutput bias_dropout_residual_norm(const ForwardContext& ctx, const ResidualArgs& args,
                                          const NormParameters* norm_parameters);

}  // namespace tessera::layers

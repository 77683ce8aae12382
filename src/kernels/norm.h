#pragma once
#include "core/tensor.h"
#include "kernels/token_map.h"

namespace tessera::kernels {

class Backend;

enum class NormKind : std::uint8_t {
    layer,  ///< y = (x - mean)·rstd·gamma + beta, rstd = 1/√(var + eps)   (Ba et al. 2016, eq. 3-4)
    rms     ///< y = x·rstd·gamma, rstd = 1/√(mean(x²) + eps)              (Zhang and Sennrich 2019, eq. 4)
};

/// Norm over the last dimension: x, y [T, D] of one floating dtype; gamma, beta [D] of that dtype (rms: beta null).
/// mean, rstd [T] f32 written for backward (rms: mean null; both null in inference). y may be x.
/// Sums in f32 in a fixed order (variance in two passes over the row).
struct NormForwardArgs {
    NormKind kind = NormKind::layer;
    float eps = 1e-5F;
    const core::Tensor& x;
    const core::Tensor& gamma;
    const core::Tensor* beta = nullptr;
    core::Tensor& y;
    core::Tensor* mean = nullptr;
    core::Tensor* rstd = nullptr;
};

/// Backward of a norm: dx = dresidual + ∂/∂x; dgamma, dbeta [D] f32 += (fixed order, independent of thread count).
/// x is the norm's input, dy [T, D]; dresidual [T, D] or null is the gradient that reaches x by the residual path;
/// dx [T, D] may be dy or dresidual.
struct NormBackwardArgs {
    NormKind kind = NormKind::layer;
    const core::Tensor& x;
    const core::Tensor& dy;
    const core::Tensor& gamma;
    const core::Tensor* mean = nullptr;
    const core::Tensor& rstd;
    const core::Tensor* dresidual = nullptr;
    core::Tensor& dx;
    core::Tensor& dgamma;
    core::Tensor* dbeta = nullptr;
};

/// residual_out = residual + dropout(x + bias), then y = norm(residual_out) if a gamma is given (gamma null: no norm,
/// y, mean and rstd unused: the end of a layer). x, residual, residual_out, y [T, D] of one dtype, bias [D] or null.
/// residual_out may be residual or x; y may be x, never residual_out. Dropout at feature f of token t follows TokenMap
/// and Dropout (token_map.h).
struct BiasDropoutResidualNormForwardArgs {
    const core::Tensor& x;
    const core::Tensor* bias = nullptr;
    const core::Tensor& residual;
    Dropout dropout;
    const TokenMap& tokens;
    core::Tensor& residual_out;
    NormKind kind = NormKind::layer;
    float eps = 1e-5F;
    const core::Tensor* gamma = nullptr;
    const core::Tensor* beta = nullptr;
    core::Tensor* y = nullptr;
    core::Tensor* mean = nullptr;
    core::Tensor* rstd = nullptr;
};

/// Backward: dresidual [T, D] = dresidual_out + norm_backward(dy) (gamma null: = dresidual_out), dx =
/// mask·dresidual/(1-p), dbias [D] f32 += Σ_t dx, dgamma, dbeta as in NormBackwardArgs. residual_out is what the
/// forward wrote (the norm's input); dresidual_out may be null (no other path); dresidual may be dresidual_out or dy;
/// dx may be dy or, when dropout is off, dresidual itself.
struct BiasDropoutResidualNormBackwardArgs {
    const core::Tensor* dy = nullptr;  ///< null when gamma is null
    const core::Tensor* dresidual_out = nullptr;
    Dropout dropout;
    const TokenMap& tokens;
    NormKind kind = NormKind::layer;
    const core::Tensor* residual_out = nullptr;
    const core::Tensor* gamma = nullptr;
    const core::Tensor* mean = nullptr;
    const core::Tensor* rstd = nullptr;
    core::Tensor& dresidual;
    core::Tensor& dx;
    core::Tensor* dbias = nullptr;
    core::Tensor* dgamma = nullptr;
    core::Tensor* dbeta = nullptr;
};

class NormKernels {
public:
    virtual ~NormKernels() = default;
    virtual void norm_forward(const NormForwardArgs& args) = 0;
    virtual void norm_backward(const NormBackwardArgs& args) = 0;
    virtual void bias_dropout_residual_norm_forward(const BiasDropoutResidualNormForwardArgs& args) = 0;
    virtual void bias_dropout_residual_norm_backward(const BiasDropoutResidualNormBackwardArgs& args) = 0;
};

/// Check, account, run. Throw ShapeError naming the operand and both numbers.
void norm_forward(Backend& backend, core::Stream& stream, const NormForwardArgs& args);
void norm_backward(Backend& backend, core::Stream& stream, const NormBackwardArgs& args);
void bias_dropout_residual_norm_forward(Backend& backend, core::Stream& stream,
                                        const BiasDropoutResidualNormForwardArgs& args);
void bias_dropout_residual_norm_backward(Backend& backend, core::Stream& stream,
                                         const BiasDropoutResidualNormBackwardArgs& args);

}  // namespace tessera::kernels

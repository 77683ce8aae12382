#pragma once
#include "core/tensor.h"

namespace tessera::kernels {

class Backend;

/// What follows the product y = x·wᵀ while its rows are warm.
enum class Epilogue : std::uint8_t {
    none,       ///< y = x·wᵀ
    bias,       ///< y = x·wᵀ + b
    bias_gelu,  ///< pre = x·wᵀ + b, y = gelu(pre), gelu(u) = u/2·(1 + tanh(√(2/π)·(u + 0.044715u³)))
    swiglu      ///< pre = x·wᵀ with rows of w packed gate|up, y = silu(pre[:, :F])·pre[:, F:]
};

/// Forward of a linear layer.
/// x [T, I], weight [O, I], y [T, O] (swiglu: [T, O/2]), all of one floating dtype; bias [O] of the same dtype or null.
/// pre_activation [T, O]: written for bias_gelu and swiglu; null if backward is not wanted. y may not alias x.
/// Products in f32 (bf16 and f16 operands widened panel by panel); the bias and the activation act on the f32 value,
/// pre_activation is rounded to the dtype and gelu reads the rounded value, so that a recomputation agrees.
/// counted_outputs: rows of w that count as model FLOPs (a padded vocabulary counts its true size); 0 = O.
struct LinearForwardArgs {
    const core::Tensor& x;
    const core::Tensor& weight;
    const core::Tensor* bias = nullptr;
    Epilogue epilogue = Epilogue::none;
    core::Tensor& y;
    core::Tensor* pre_activation = nullptr;
    std::int64_t counted_outputs = 0;
};

/// Input gradient: dx = (dy·w) ∘ act'(pre): dy [T, O], weight [O, I], dx [T, I].
/// epilogue none: dx = dy·w. bias_gelu: dx [T, I] = (dy·w)·gelu'(pre), pre [T, I] is the pre-activation of the layer
/// *below*, whose output was this layer's input. swiglu: pre [T, 2I], dx [T, 2I] = gradients of gate|up.
/// dx may not alias dy; it may be pre (each element is read before it is written).
/// accumulate: dx += instead of = (epilogue none only).
struct LinearDgradArgs {
    const core::Tensor& dy;
    const core::Tensor& weight;
    Epilogue epilogue = Epilogue::none;
    const core::Tensor* pre_activation = nullptr;
    core::Tensor& dx;
    bool accumulate = false;
    std::int64_t counted_outputs = 0;
};

/// Weight gradient: dweight [O, I] f32 += dyᵀ·x, and dbias [O] f32 += Σ_t dy (null: none). x [T, I], dy [T, O].
/// The sum over tokens has a fixed order that does not depend on the number of threads for dbias.
struct LinearWgradArgs {
    const core::Tensor& x;
    const core::Tensor& dy;
    core::Tensor& dweight;
    core::Tensor* dbias = nullptr;
    std::int64_t counted_outputs = 0;
};

/// Matrix products and their fused epilogues. Implementations may assume checked arguments.
class MatmulKernels {
public:
    virtual ~MatmulKernels() = default;
    virtual void linear_forward(const LinearForwardArgs& args) = 0;
    virtual void linear_dgrad(const LinearDgradArgs& args) = 0;
    virtual void linear_wgrad(const LinearWgradArgs& args) = 0;
};

/// Check, account, run. Throw ShapeError naming the operand and both numbers.
void linear_forward(Backend& backend, core::Stream& stream, const LinearForwardArgs& args);
void linear_dgrad(Backend& backend, core::Stream& stream, const LinearDgradArgs& args);
void linear_wgrad(Backend& backend, core::Stream& stream, const LinearWgradArgs& args);

}  // namespace tessera::kernels

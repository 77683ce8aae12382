#pragma once
#include "core/tensor.h"

namespace tessera::kernels {

class Backend;

/// AdamW over a flat range of n elements (Loshchilov and Hutter 2019, algorithm 2; decoupled decay):
///   g = grad·grad_scale;  m = b1·m + (1-b1)·g;  v = b2·v + (1-b2)·g²
///   p = p·(1 - lr·weight_decay) - lr·(m/(1-b1^step)) / (√(v/(1-b2^step)) + eps)
/// main_param, main_grad, exp_avg, exp_avg_sq [n] f32; model_param [n] bf16 | f16 gets the rounded p (null: main_param
/// is the model's parameter). step counts from 1. Bias corrections in f64. zero_grad: main_grad is set to 0 in the same
/// pass.
enum class GradientAfterStep : std::uint8_t { keep, zero };
struct AdamWArgs {
    core::Tensor& main_param;
    core::Tensor& main_grad;
    core::Tensor& exp_avg;
    core::Tensor& exp_avg_sq;
    core::Tensor* model_param = nullptr;
    double lr = 0;
    double beta1 = 0.9;
    double beta2 = 0.95;
    double eps = 1e-8;
    double weight_decay = 0;
    double grad_scale = 1;
    std::int64_t step = 1;
    GradientAfterStep after = GradientAfterStep::zero;
};

class OptimizerKernels {
public:
    virtual ~OptimizerKernels() = default;
    virtual void adamw(const AdamWArgs& args) = 0;
};

void adamw(Backend& backend, core::Stream& stream, const AdamWArgs& args);

}  // namespace tessera::kernels

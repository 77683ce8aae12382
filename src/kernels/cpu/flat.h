#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "kernels/optimizer.h"

namespace tessera::kernels::cpu {

/// Elementwise and reducing work over flat ranges, on the calling thread's team. Contracts: kernels/reduction.h and
/// kernels/optimizer.h.
void flat_sum_of_squares(const float* x, std::int64_t count, float* partial);
void flat_cast(const void* x, core::DType from, void* y, core::DType to, std::int64_t count);
void flat_scale(void* x, core::DType dtype, std::int64_t count, float factor);
void flat_add(const void* x, void* y, core::DType dtype, std::int64_t count);
double flat_sum(const float* x, std::int64_t count);

struct FlatAdamW {
    float* main_param = nullptr;
    float* main_grad = nullptr;
    float* exp_avg = nullptr;
    float* exp_avg_sq = nullptr;
    void* model_param = nullptr;
    core::DType model_dtype = core::DType::f32;
    std::int64_t count = 0;
    float grad_scale = 1;
    float beta1 = 0;
    float beta2 = 0;
    float rest1 = 1;         ///< 1 - beta1, taken in f64: in f32 1 - 0.999 is off by 3e-5 of itself
    float rest2 = 1;         ///< 1 - beta2
    float keep = 1;          ///< 1 - lr·weight_decay
    float step_size = 0;     ///< lr / (1 - beta1^step)
    float inverse_root = 1;  ///< 1 / √(1 - beta2^step)
    float eps = 0;
    GradientAfterStep after = GradientAfterStep::zero;
};
void flat_adamw(const FlatAdamW& args);

/// The vector extension chosen at run time ("AVX2").
const char* vector_target();

}  // namespace tessera::kernels::cpu

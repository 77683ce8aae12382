#pragma once
#include <cstdint>

#include "core/dtype.h"

namespace tessera::kernels::cpu {

/// Rows of x up to which few_rows_product reads each weight once at the speed of memory; a general product does not.
inline constexpr std::int64_t kFewRows = 4;

/// product [rows, outputs] f32 = x [rows, inputs] f32 · weightᵀ, weight [outputs, inputs] of `dtype`, rows <= kFewRows.
/// Each element is summed in one fixed order.
struct FewRows {
    std::int64_t rows = 0;
    std::int64_t inputs = 0;
    std::int64_t outputs = 0;
    const float* x = nullptr;
    core::DType dtype = core::DType::f32;
    const void* weight = nullptr;
    float* product = nullptr;
};
void few_rows_product(const FewRows& args);

}  // namespace tessera::kernels::cpu

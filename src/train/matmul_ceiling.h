#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "core/stream.h"
#include "kernels/backend.h"

namespace tessera::train {

/// The best matrix product a machine was seen to do.
struct MatmulCeiling {
    double flops_s = 0;  ///< 2 size³ / seconds; 0: not measured
    core::DType dtype = core::DType::f32;
    std::int64_t size = 0;  ///< of the square operands
};

/// Times y = x·wᵀ of square f32 and bf16 operands through the backend, on the threads it has now, for a fraction of a
/// second, and returns the fastest call. The backend's account counts these calls, too.
MatmulCeiling measure_matmul_ceiling(kernels::Backend& backend, core::Stream& stream);

}  // namespace tessera::train

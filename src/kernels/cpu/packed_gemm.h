#pragma once
#include "kernels/cpu/gemm.h"

namespace tessera::kernels::cpu {

/// Floats of scratch with which packed_gemm is faster than gemm for this product; 0 where gemm is.
/// For few rows the library reads B where it lies; rows of B a multiple of 4096 bytes apart all fall into one set of
/// the first cache (GPT-2 124M's 256 x 768 x 3072: 82 GFLOP/s packed 145, docs/performance.md).
std::int64_t packing_floats(const GemmArgs& args);

/// As gemm, for the products that packing_floats names: panels of B's columns are copied to `scratch` first.
void packed_gemm(const GemmArgs& args, float* scratch);

}  // namespace tessera::kernels::cpu

#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "kernels/matmul.h"

namespace tessera::kernels::cpu {

/// Row-wise work around a product; every function runs over rows [0, rows) on the calling thread's team.
/// Products are f32 buffers; tensors are of `dtype`.
struct ForwardEpilogueArgs {
    Epilogue epilogue = Epilogue::none;
    core::DType dtype = core::DType::f32;
    std::int64_t rows = 0;
    std::int64_t outputs = 0;        ///< O
    const float* product = nullptr;  ///< [rows, O]
    const void* bias = nullptr;      ///< [O] or null
    void* pre_activation = nullptr;  ///< [rows, O] or null; may be the product (f32)
    void* y = nullptr;               ///< [rows, O] (swiglu: O/2); may be the product (f32, not swiglu)
};
void forward_epilogue(const ForwardEpilogueArgs& args);

struct BackwardEpilogueArgs {
    Epilogue epilogue = Epilogue::none;
    core::DType dtype = core::DType::f32;
    std::int64_t rows = 0;
    std::int64_t inputs = 0;               ///< I
    const float* product = nullptr;        ///< dy·w, [rows, I]
    const void* pre_activation = nullptr;  ///< [rows, I] (swiglu: 2I)
    void* dx = nullptr;                    ///< as pre_activation, may be it
    bool accumulate = false;
};
void backward_epilogue(const BackwardEpilogueArgs& args);

/// sum [columns] f32 += Σ over rows of x [rows, columns], each column in row order whatever the number of threads.
void add_column_sums(const void* x, core::DType dtype, std::int64_t rows, std::int64_t columns, float* sum);

/// wide [count] f32 = x.
void widen(const void* x, core::DType dtype, std::int64_t count, float* wide);

}  // namespace tessera::kernels::cpu

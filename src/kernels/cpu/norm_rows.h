#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "kernels/norm.h"

namespace tessera::kernels::cpu {

/// Raw operands of the norm family, [T, D] row-major; null where an operand is absent. See kernels/norm.h for the
/// meaning.
struct NormRowsForward {
    core::DType dtype = core::DType::f32;
    NormKind kind = NormKind::layer;
    std::int64_t tokens = 0;
    std::int64_t hidden = 0;
    float eps = 0;
    const void* x = nullptr;
    const void* bias = nullptr;
    const void* residual = nullptr;  ///< null: a plain norm of x
    Dropout dropout{};
    const std::int64_t* sample = nullptr;
    const std::int32_t* offset = nullptr;
    void* residual_out = nullptr;
    const void* gamma = nullptr;  ///< null: no norm
    const void* beta = nullptr;
    void* y = nullptr;
    float* mean = nullptr;
    float* rstd = nullptr;
};
void norm_rows_forward(const NormRowsForward& args);

struct NormRowsBackward {
    core::DType dtype = core::DType::f32;
    NormKind kind = NormKind::layer;
    std::int64_t tokens = 0;
    std::int64_t hidden = 0;
    const void* x = nullptr;  ///< the norm's input
    const void* dy = nullptr;
    const void* gamma = nullptr;  ///< null: no norm
    const float* mean = nullptr;
    const float* rstd = nullptr;
    const void* dresidual_out = nullptr;
    void* dresidual = nullptr;
    void* dx = nullptr;  ///< through the dropout mask; null or dresidual: not wanted apart
    Dropout dropout{};
    const std::int64_t* sample = nullptr;
    const std::int32_t* offset = nullptr;
    /// Sums over the tokens of each block of kNormRowBlock rows, [blocks, D] f32 each, written; null where not wanted.
    float* dgamma_blocks = nullptr;
    float* dbeta_blocks = nullptr;
    float* dbias_blocks = nullptr;
};
void norm_rows_backward(const NormRowsBackward& args);

/// Rows per partial sum of a parameter's gradient: the sums do not depend on the number of threads.
inline constexpr std::int64_t kNormRowBlock = 32;

/// sum [D] += Σ over blocks of blocks [count, D], in order.
void add_blocks(const float* blocks, std::int64_t count, std::int64_t hidden, float* sum);

}  // namespace tessera::kernels::cpu

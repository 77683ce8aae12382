#include "train/matmul_ceiling.h"

#include "core/clock.h"

namespace tessera::train {
namespace {

using core::DType;
using core::Tensor;

constexpr std::int64_t kSizes[] = {512, 1024};
constexpr double kSecondsEach = 0.06;

Tensor square(kernels::Backend& backend, std::int64_t size, DType dtype) {
    return Tensor::empty(backend.pool(), {size, size}, dtype, core::MemoryCategory::workspace);
}

/// Values that are neither zero nor alike: products of zeros draw less power and may run at a higher clock.
Tensor filled_square(kernels::Backend& backend, core::Stream& stream, std::int64_t size, DType dtype) {
    Tensor wide = square(backend, size, DType::f32);
    float* values = wide.data<float>();
    std::uint32_t state = 1;
    for (std::int64_t i = 0; i < wide.numel(); ++i) {
        state = state * 1664525U + 1013904223U;
        values[i] = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-36F;
    }
    if (dtype == DType::f32) return wide;
    Tensor narrow = square(backend, size, dtype);
    kernels::cast(backend, stream, wide, narrow);
    return narrow;
}

double fastest_product_s(kernels::Backend& backend, core::Stream& stream, std::int64_t size, DType dtype) {
    const Tensor x = filled_square(backend, stream, size, dtype);
    const Tensor weight = filled_square(backend, stream, size, dtype);
    Tensor y = square(backend, size, dtype);
    const kernels::LinearForwardArgs product{.x = x, .weight = weight, .y = y};
    // The first call may have to build its program.
    kernels::linear_forward(backend, stream, product);
    double fastest = 0;
    const double start = core::now_s();
    while (fastest == 0 || core::now_s() - start < kSecondsEach) {
        const double begin = core::now_s();
        kernels::linear_forward(backend, stream, product);
        const double seconds = core::now_s() - begin;
        if (fastest == 0 || seconds < fastest) fastest = seconds;
    }
    return fastest;
}

}  // namespace

MatmulCeiling measure_matmul_ceiling(kernels::Backend& backend, core::Stream& stream) {
    MatmulCeiling best;
    for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const std::int64_t size : kSizes) {
            const auto flops = 2.0 * static_cast<double>(size * size * size);
            const double rate = flops / fastest_product_s(backend, stream, size, dtype);
            if (rate > best.flops_s) best = {.flops_s = rate, .dtype = dtype, .size = size};
        }
    }
    return best;
}

}  // namespace tessera::train

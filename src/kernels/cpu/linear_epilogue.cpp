#include "kernels/cpu/linear_epilogue.h"

#include "kernels/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear_epilogue.cpp"
#include "hwy/foreach_target.h"
//
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/storage.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {

/// v as it reads back after a store as T: recomputation and backward see the same value.
template <typename T>
HWY_INLINE FloatVec rounded(FloatVec v) {
    if constexpr (std::is_same_v<T, float>) {
        return v;
    } else {
        T bits[HWY_MAX_BYTES / 4];
        store(v, bits);
        return load(bits);
    }
}

template <typename T>
void forward_row(const ForwardEpilogueArgs& a, std::int64_t row) {
    const float* product = a.product + row * a.outputs;
    const T* bias = static_cast<const T*>(a.bias);
    T* pre = a.pre_activation ? static_cast<T*>(a.pre_activation) + row * a.outputs : nullptr;
    if (a.epilogue == Epilogue::swiglu) {
        const std::int64_t half = a.outputs / 2;
        T* y = static_cast<T*>(a.y) + row * half;
        for_lanes(half, [&](std::int64_t i, std::int64_t n) {
            const auto gate = rounded<T>(load_at(product + i, n));
            const auto up = rounded<T>(load_at(product + half + i, n));
            if (pre) {
                store_at(gate, pre + i, n);
                store_at(up, pre + half + i, n);
            }
            store_at(hn::Mul(hn::Mul(gate, sigmoid(gate)), up), y + i, n);
        });
        return;
    }
    T* y = static_cast<T*>(a.y) + row * a.outputs;
    const bool activates = a.epilogue == Epilogue::bias_gelu;
    for_lanes(a.outputs, [&](std::int64_t i, std::int64_t n) {
        auto v = load_at(product + i, n);
        if (bias) v = hn::Add(v, load_at(bias + i, n));
        if (activates) {
            v = rounded<T>(v);
            if (pre) store_at(v, pre + i, n);
            v = gelu(v);
        }
        store_at(v, y + i, n);
    });
}

template <typename T>
void backward_row(const BackwardEpilogueArgs& a, std::int64_t row) {
    const float* product = a.product + row * a.inputs;
    if (a.epilogue == Epilogue::swiglu) {
        const T* pre = static_cast<const T*>(a.pre_activation) + row * 2 * a.inputs;
        T* dx = static_cast<T*>(a.dx) + row * 2 * a.inputs;
        for_lanes(a.inputs, [&](std::int64_t i, std::int64_t n) {
            const auto gate = load_at(pre + i, n);
            const auto up = load_at(pre + a.inputs + i, n);
            const auto dy = load_at(product + i, n);
            const auto s = sigmoid(gate);
            const auto slope = silu_derivative(gate, s);
            store_at(hn::Mul(hn::Mul(dy, up), slope), dx + i, n);
            store_at(hn::Mul(dy, hn::Mul(gate, s)), dx + a.inputs + i, n);
        });
        return;
    }
    T* dx = static_cast<T*>(a.dx) + row * a.inputs;
    const T* pre = a.pre_activation ? static_cast<const T*>(a.pre_activation) + row * a.inputs : nullptr;
    for_lanes(a.inputs, [&](std::int64_t i, std::int64_t n) {
        auto v = load_at(product + i, n);
        if (pre) v = hn::Mul(v, gelu_derivative(load_at(pre + i, n)));
        if (a.accumulate) v = hn::Add(v, load_at(dx + i, n));
        store_at(v, dx + i, n);
    });
}

void forward_rows(const ForwardEpilogueArgs& a) {
    with_storage(a.dtype, [&]<typename T>() {
        parallel_for(a.rows, a.outputs, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t row = begin; row < end; ++row) forward_row<T>(a, row);
        });
    });
}

void backward_rows(const BackwardEpilogueArgs& a) {
    with_storage(a.dtype, [&]<typename T>() {
        parallel_for(a.rows, a.inputs, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t row = begin; row < end; ++row) backward_row<T>(a, row);
        });
    });
}

void column_sums(const void* x, core::DType dtype, std::int64_t rows, std::int64_t columns, float* sum) {
    with_storage(dtype, [&]<typename T>() {
        const T* values = static_cast<const T*>(x);
        constexpr std::int64_t kStrip = 64;
        const std::int64_t strips = (columns + kStrip - 1) / kStrip;
        parallel_for(strips, rows * kStrip, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t row = 0; row < rows; ++row) {
                const std::int64_t first = begin * kStrip;
                const T* source = values + row * columns + first;
                for_lanes(std::min(end * kStrip, columns) - first, [&](std::int64_t i, std::int64_t n) {
                    store_at(hn::Add(load_at(sum + first + i, n), load_at(source + i, n)), sum + first + i, n);
                });
            }
        });
    });
}

void widen_all(const void* x, core::DType dtype, std::int64_t count, float* wide) {
    with_storage(dtype, [&]<typename T>() {
        const T* values = static_cast<const T*>(x);
        constexpr std::int64_t kBlock = 4096;
        parallel_for((count + kBlock - 1) / kBlock, kBlock, [&](std::int64_t begin, std::int64_t end) {
            const std::int64_t first = begin * kBlock;
            for_lanes(std::min(end * kBlock, count) - first, [&](std::int64_t i, std::int64_t n) {
                store_at(load_at(values + first + i, n), wide + first + i, n);
            });
        });
    });
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::cpu {

HWY_EXPORT(forward_rows);
HWY_EXPORT(backward_rows);
HWY_EXPORT(column_sums);
HWY_EXPORT(widen_all);

void forward_epilogue(const ForwardEpilogueArgs& args) {
    HWY_DYNAMIC_DISPATCH(forward_rows)(args);
}
void backward_epilogue(const BackwardEpilogueArgs& args) {
    HWY_DYNAMIC_DISPATCH(backward_rows)(args);
}
void add_column_sums(const void* x, core::DType dtype, std::int64_t rows, std::int64_t columns, float* sum) {
    HWY_DYNAMIC_DISPATCH(column_sums)(x, dtype, rows, columns, sum);
}
void widen(const void* x, core::DType dtype, std::int64_t count, float* wide) {
    HWY_DYNAMIC_DISPATCH(widen_all)(x, dtype, count, wide);
}

}  // namespace tessera::kernels::cpu
#endif

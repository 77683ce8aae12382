#include "kernels/cpu/few_rows.h"

#include <type_traits>
#include <vector>

#include "kernels/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/few_rows.cpp"
#include "hwy/foreach_target.h"
//
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/storage.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {

/// Elements that one step of some_outputs takes: two vectors of f32 from one whole register of bf16.
template <typename T>
std::int64_t step_of() {
    return std::is_same_v<T, core::bf16> ? 2 * lanes() : lanes();
}

struct VectorPair {
    FloatVec even, odd;
};

/// The elements 0, 2, 4, … and 1, 3, 5, … of 2·lanes bf16: a bf16 is the upper half of its f32.
HWY_INLINE VectorPair load_pairs(const core::bf16* p) {
    const FloatTag d;
    const hn::RebindToUnsigned<FloatTag> du;
    const hn::Repartition<std::uint16_t, FloatTag> dh;
    const auto bits = hn::BitCast(du, hn::LoadU(dh, reinterpret_cast<const std::uint16_t*>(p)));
    return {hn::BitCast(d, hn::ShiftLeft<16>(bits)), hn::BitCast(d, hn::And(bits, hn::Set(du, 0xffff0000U)))};
}

/// kOutputs rows of the weight times kRows rows of x. `x` is a.x, for bf16 with every 2·lanes elements re-ordered as
/// load_pairs has them.
template <int kRows, int kOutputs, typename T>
HWY_INLINE void some_outputs(const FewRows& a, const float* x, std::int64_t output) {
    const FloatTag d;
    const T* weight = static_cast<const T*>(a.weight) + output * a.inputs;
    FloatVec sum[kOutputs][kRows];
    for (auto& row : sum) {
        for (auto& value : row) value = hn::Zero(d);
    }
    std::int64_t i = 0;
    for (; i + step_of<T>() <= a.inputs; i += step_of<T>()) {
        for (int out = 0; out < kOutputs; ++out) {
            // The next outputs' rows come from memory while these are multiplied.
            __builtin_prefetch(weight + (kOutputs + out) * a.inputs + i, 0, 2);
            if constexpr (std::is_same_v<T, core::bf16>) {
                const VectorPair w = load_pairs(weight + out * a.inputs + i);
                for (int row = 0; row < kRows; ++row) {
                    const float* from = x + row * a.inputs + i;
                    sum[out][row] = hn::MulAdd(w.even, load(from), sum[out][row]);
                    sum[out][row] = hn::MulAdd(w.odd, load(from + lanes()), sum[out][row]);
                }
            } else {
                const auto w = load(weight + out * a.inputs + i);
                for (int row = 0; row < kRows; ++row) {
                    sum[out][row] = hn::MulAdd(w, load(x + row * a.inputs + i), sum[out][row]);
                }
            }
        }
    }
    for_lanes(a.inputs - i, [&](std::int64_t k, std::int64_t n) {
        for (int out = 0; out < kOutputs; ++out) {
            const auto w = load_at(weight + out * a.inputs + i + k, n);
            for (int row = 0; row < kRows; ++row) {
                sum[out][row] = hn::MulAdd(w, load_at(x + row * a.inputs + i + k, n), sum[out][row]);
            }
        }
    });
    for (int out = 0; out < kOutputs; ++out) {
        for (int row = 0; row < kRows; ++row) a.product[row * a.outputs + output + out] = sum_lanes(sum[out][row]);
    }
}

std::vector<float> in_pairs(const FewRows& a) {
    std::vector<float> x(a.x, a.x + a.rows * a.inputs);
    const std::int64_t step = 2 * lanes();
    for (std::int64_t row = 0; row < a.rows; ++row) {
        for (std::int64_t i = 0; i + step <= a.inputs; i += step) {
            const std::int64_t first = row * a.inputs + i;
            for (std::int64_t k = 0; k < step; ++k) {
                x[static_cast<std::size_t>(first + k % 2 * lanes() + k / 2)] = a.x[first + k];
            }
        }
    }
    return x;
}

template <int kRows>
void outputs_of(const FewRows& a) {
    // As many sums as hide the latency of an addition.
    constexpr int kOutputs = kRows == 1 ? 8 : 4;
    with_storage(a.dtype, [&]<typename T>() {
        std::vector<float> paired;
        if constexpr (std::is_same_v<T, core::bf16>) paired = in_pairs(a);
        const float* x = paired.empty() ? a.x : paired.data();
        parallel_for(a.outputs, a.inputs * kRows, [&](std::int64_t begin, std::int64_t end) {
            std::int64_t output = begin;
            for (; output + kOutputs <= end; output += kOutputs) some_outputs<kRows, kOutputs, T>(a, x, output);
            for (; output < end; ++output) some_outputs<kRows, 1, T>(a, x, output);
        });
    });
}

void few_rows_all(const FewRows& a) {
    switch (a.rows) {
        case 1:
            return outputs_of<1>(a);
        case 2:
            return outputs_of<2>(a);
        case 3:
            return outputs_of<3>(a);
        default:
            return outputs_of<4>(a);
    }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::cpu {

HWY_EXPORT(few_rows_all);

void few_rows_product(const FewRows& args) {
    HWY_DYNAMIC_DISPATCH(few_rows_all)(args);
}

}  // namespace tessera::kernels::cpu
#endif

#include "kernels/cpu/norm_rows.h"

#include <cmath>
#include <vector>

#include "hwy/cache_control.h"
#include "kernels/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm_rows.cpp"
#include "hwy/foreach_target.h"
//
#include "kernels/cpu/dropout-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/storage.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {

/// f(i) summed over the row in a fixed order: four sums at a time, since one alone waits for its own additions.
template <typename Term>
HWY_INLINE float sum_row(std::int64_t hidden, const Term& term) {
    const std::int64_t step = lanes();
    auto sum0 = hn::Zero(FloatTag());
    auto sum1 = sum0;
    auto sum2 = sum0;
    auto sum3 = sum0;
    std::int64_t i = 0;
    for (; i + 4 * step <= hidden; i += 4 * step) {
        sum0 = hn::Add(sum0, term(i, step));
        sum1 = hn::Add(sum1, term(i + step, step));
        sum2 = hn::Add(sum2, term(i + 2 * step, step));
        sum3 = hn::Add(sum3, term(i + 3 * step, step));
    }
    for (; i + step <= hidden; i += step) sum0 = hn::Add(sum0, term(i, step));
    if (i < hidden) sum1 = hn::Add(sum1, term(i, hidden - i));
    return sum_lanes(hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3)));
}

/// Zeroes the lanes from n on.
HWY_INLINE FloatVec first_lanes(FloatVec v, std::int64_t n) {
    return n == lanes() ? v : hn::IfThenElseZero(hn::FirstN(FloatTag(), static_cast<std::size_t>(n)), v);
}

/// Asks for a row that is read soon: generating a dropout mask leaves the memory idle.
template <typename T>
HWY_INLINE void prefetch_row(const T* row, std::int64_t hidden) {
    constexpr std::int64_t kLine = 64 / sizeof(T);
    for (std::int64_t i = 0; i < hidden; i += kLine) hwy::Prefetch(row + i);
}

/// The row that the norm reads, as f32 into `row`, and the sum of its elements: x itself, or the new residual, which is
/// written too.
template <typename T>
HWY_INLINE float gather_row(const NormRowsForward& a, std::int64_t token, float* HWY_RESTRICT row,
                            float* HWY_RESTRICT mask) {
    const T* x = static_cast<const T*>(a.x) + token * a.hidden;
    if (!a.residual) {
        return sum_row(a.hidden, [&](std::int64_t i, std::int64_t n) {
            const auto v = load_at(x + i, n);
            store_at(v, row + i, n);
            return v;
        });
    }
    const T* residual = static_cast<const T*>(a.residual) + token * a.hidden;
    T* out = static_cast<T*>(a.residual_out) + token * a.hidden;
    const T* bias = static_cast<const T*>(a.bias);
    const bool drops = a.dropout.probability > 0;
    if (drops) {
        prefetch_row(x, a.hidden);
        prefetch_row(residual, a.hidden);
        dropout_mask(dropout_row(a.dropout, a.sample[token], a.offset[token]), a.dropout.feature_begin, a.hidden, mask);
    }
    return sum_row(a.hidden, [&](std::int64_t i, std::int64_t n) {
        auto v = load_at(x + i, n);
        if (bias) v = hn::Add(v, load_at(bias + i, n));
        if (drops) v = hn::Mul(v, load_at(mask + i, n));
        v = first_lanes(hn::Add(v, load_at(residual + i, n)), n);
        store_at(v, out + i, n);
        // The norm reads what backward will read.
        if constexpr (!std::is_same_v<T, float>) v = load_at(out + i, n);
        store_at(v, row + i, n);
        return v;
    });
}

template <typename T>
void forward_row(const NormRowsForward& a, std::int64_t token, float* HWY_RESTRICT row, float* HWY_RESTRICT mask) {
    const FloatTag d;
    const float sum = gather_row<T>(a, token, row, mask);
    if (!a.gamma) return;
    const auto count = static_cast<float>(a.hidden);
    const float mean = a.kind == NormKind::layer ? sum / count : 0.0F;
    const auto mean_v = hn::Set(d, mean);
    const float squares = sum_row(a.hidden, [&](std::int64_t i, std::int64_t n) {
        const auto centred = first_lanes(hn::Sub(load_at(row + i, n), mean_v), n);
        return hn::Mul(centred, centred);
    });
    const float rstd = 1.0F / std::sqrt(squares / count + a.eps);
    const auto rstd_v = hn::Set(d, rstd);
    const T* gamma = static_cast<const T*>(a.gamma);
    const T* beta = static_cast<const T*>(a.beta);
    T* y = static_cast<T*>(a.y) + token * a.hidden;
    for_lanes(a.hidden, [&](std::int64_t i, std::int64_t n) {
        auto v = hn::Mul(hn::Mul(hn::Sub(load_at(row + i, n), mean_v), rstd_v), load_at(gamma + i, n));
        if (beta) v = hn::Add(v, load_at(beta + i, n));
        store_at(v, y + i, n);
    });
    if (a.mean) a.mean[token] = mean;
    if (a.rstd) a.rstd[token] = rstd;
}

/// Sums of this block's parameter gradients so far.
struct BlockSums {
    float* dgamma;
    float* dbeta;
    float* dbias;
};

/// Adds `value` to an f32 sum in memory.
HWY_INLINE void add_to(float* sum, std::int64_t n, FloatVec value) {
    store_at(hn::Add(load_at(sum, n), value), sum, n);
}

/// dresidual of one row, eight or so elements a call: emit(i, n, values).
template <typename T, typename Emit>
HWY_INLINE void norm_gradient_row(const NormRowsBackward& a, std::int64_t token, const BlockSums& sums,
                                  const Emit& emit) {
    const FloatTag d;
    const std::int64_t first = token * a.hidden;
    const T* x = static_cast<const T*>(a.x) + first;
    const T* dy = static_cast<const T*>(a.dy) + first;
    const T* gamma = static_cast<const T*>(a.gamma);
    const T* path = a.dresidual_out ? static_cast<const T*>(a.dresidual_out) + first : nullptr;
    const auto mean = hn::Set(d, a.kind == NormKind::layer ? a.mean[token] : 0.0F);
    const auto rstd = hn::Set(d, a.rstd[token]);
    auto sum_g = hn::Zero(d);
    const float sum_gx = sum_row(a.hidden, [&](std::int64_t i, std::int64_t n) {
        const auto normed = hn::Mul(hn::Sub(load_at(x + i, n), mean), rstd);
        const auto gradient = load_at(dy + i, n);
        const auto g = hn::Mul(gradient, load_at(gamma + i, n));
        sum_g = hn::Add(sum_g, g);
        store_at(hn::MulAdd(gradient, normed, load_at(sums.dgamma + i, n)), sums.dgamma + i, n);
        if (sums.dbeta) add_to(sums.dbeta + i, n, gradient);
        return hn::Mul(g, normed);
    });
    const auto count = static_cast<float>(a.hidden);
    const auto mean_g = hn::Set(d, a.kind == NormKind::layer ? sum_lanes(sum_g) / count : 0.0F);
    const auto mean_gx = hn::Set(d, sum_gx / count);
    for_lanes(a.hidden, [&](std::int64_t i, std::int64_t n) {
        const auto normed = hn::Mul(hn::Sub(load_at(x + i, n), mean), rstd);
        const auto g = hn::Mul(load_at(dy + i, n), load_at(gamma + i, n));
        auto v = hn::Mul(hn::Sub(hn::Sub(g, mean_g), hn::Mul(normed, mean_gx)), rstd);
        if (path) v = hn::Add(v, load_at(path + i, n));
        emit(i, n, v);
    });
}

template <typename T>
void backward_row(const NormRowsBackward& a, std::int64_t token, float* HWY_RESTRICT mask, const BlockSums& sums) {
    const std::int64_t first = token * a.hidden;
    T* dresidual = static_cast<T*>(a.dresidual) + first;
    T* dx = a.dx && a.dx != a.dresidual ? static_cast<T*>(a.dx) + first : nullptr;
    const bool drops = a.dropout.probability > 0;
    if (drops) {
        dropout_mask(dropout_row(a.dropout, a.sample[token], a.offset[token]), a.dropout.feature_begin, a.hidden, mask);
    }
    const auto emit = [&](std::int64_t i, std::int64_t n, FloatVec v) {
        store_at(v, dresidual + i, n);
        const auto through = drops ? hn::Mul(v, load_at(mask + i, n)) : v;
        if (dx) store_at(through, dx + i, n);
        if (sums.dbias) add_to(sums.dbias + i, n, through);
    };
    if (a.gamma) {
        norm_gradient_row<T>(a, token, sums, emit);
    } else {
        const T* path = static_cast<const T*>(a.dresidual_out) + first;
        for_lanes(a.hidden, [&](std::int64_t i, std::int64_t n) { emit(i, n, load_at(path + i, n)); });
    }
}

void forward_all(const NormRowsForward& a) {
    with_storage(a.dtype, [&]<typename T>() {
        parallel_for(a.tokens, 4 * a.hidden, [&](std::int64_t begin, std::int64_t end) {
            std::vector<float> row(static_cast<std::size_t>(a.hidden));
            std::vector<float> mask(static_cast<std::size_t>(dropout_room(a.hidden)));
            for (std::int64_t token = begin; token < end; ++token) forward_row<T>(a, token, row.data(), mask.data());
        });
    });
}

void backward_all(const NormRowsBackward& a) {
    with_storage(a.dtype, [&]<typename T>() {
        const std::int64_t blocks = (a.tokens + kNormRowBlock - 1) / kNormRowBlock;
        parallel_for(blocks, kNormRowBlock * 6 * a.hidden, [&](std::int64_t begin, std::int64_t end) {
            std::vector<float> mask(static_cast<std::size_t>(dropout_room(a.hidden)));
            for (std::int64_t block = begin; block < end; ++block) {
                auto cleared = [&](float* all) {
                    if (all) std::fill_n(all + block * a.hidden, a.hidden, 0.0F);
                    return all ? all + block * a.hidden : nullptr;
                };
                const BlockSums sums{cleared(a.dgamma_blocks), cleared(a.dbeta_blocks), cleared(a.dbias_blocks)};
                const std::int64_t last = std::min((block + 1) * kNormRowBlock, a.tokens);
                for (std::int64_t token = block * kNormRowBlock; token < last; ++token) {
                    backward_row<T>(a, token, mask.data(), sums);
                }
            }
        });
    });
}

void add_all_blocks(const float* blocks, std::int64_t count, std::int64_t hidden, float* sum) {
    for (std::int64_t block = 0; block < count; ++block) {
        const float* source = blocks + block * hidden;
        for_lanes(hidden, [&](std::int64_t i, std::int64_t n) {
            store_at(hn::Add(load_at(sum + i, n), load_at(source + i, n)), sum + i, n);
        });
    }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::cpu {

HWY_EXPORT(forward_all);
HWY_EXPORT(backward_all);
HWY_EXPORT(add_all_blocks);

void norm_rows_forward(const NormRowsForward& args) {
    HWY_DYNAMIC_DISPATCH(forward_all)(args);
}
void norm_rows_backward(const NormRowsBackward& args) {
    HWY_DYNAMIC_DISPATCH(backward_all)(args);
}
void add_blocks(const float* blocks, std::int64_t count, std::int64_t hidden, float* sum) {
    HWY_DYNAMIC_DISPATCH(add_all_blocks)(blocks, count, hidden, sum);
}

}  // namespace tessera::kernels::cpu
#endif

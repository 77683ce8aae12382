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

/// f(i) summed over the row in a fixed order.
template <typename Term>
HWY_INLINE float sum_row(std::int64_t hidden, const Term& term) {
    auto total = hn::Zero(FloatTag());
    for_lanes(hidden, [&](std::int64_t i, std::int64_t n) { total = hn::Add(total, term(i, n)); });
    return sum_lanes(total);
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

template <typename T>
void forward_row(const NormRowsForward& a, std::int64_t token, float* HWY_RESTRICT row, float* HWY_RESTRICT mask) {
    const FloatTag d;
    const T* x = static_cast<const T*>(a.x) + token * a.hidden;
    if (a.residual) {
        const T* residual = static_cast<const T*>(a.residual) + token * a.hidden;
        T* out = static_cast<T*>(a.residual_out) + token * a.hidden;
        const T* bias = static_cast<const T*>(a.bias);
        const bool drops = a.dropout.probability > 0;
        if (drops) {
            prefetch_row(x, a.hidden);
            prefetch_row(residual, a.hidden);
            dropout_mask(dropout_row(a.dropout, a.sample[token], a.offset[token]), a.dropout.feature_begin, a.hidden,
                         mask);
        }
        for_lanes(a.hidden, [&](std::int64_t i, std::int64_t n) {
            auto v = load_at(x + i, n);
            if (bias) v = hn::Add(v, load_at(bias + i, n));
            if (drops) v = hn::Mul(v, load_at(mask + i, n));
            v = hn::Add(v, load_at(residual + i, n));
            store_at(v, out + i, n);
            // The norm reads what backward will read.
            store_at(std::is_same_v<T, float> ? v : load_at(out + i, n), row + i, n);
        });
    } else {
        for_lanes(a.hidden, [&](std::int64_t i, std::int64_t n) { store_at(load_at(x + i, n), row + i, n); });
    }
    if (!a.gamma) return;
    const auto count = static_cast<float>(a.hidden);
    float mean = 0;
    if (a.kind == NormKind::layer) {
        mean = sum_row(a.hidden, [&](std::int64_t i, std::int64_t n) { return load_at(row + i, n); }) / count;
    }
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

/// dresidual of one row into `row`.
template <typename T>
HWY_INLINE void norm_gradient_row(const NormRowsBackward& a, std::int64_t token, float* HWY_RESTRICT row,
                                  const BlockSums& sums) {
    const FloatTag d;
    const std::int64_t first = token * a.hidden;
    const T* x = static_cast<const T*>(a.x) + first;
    const T* dy = static_cast<const T*>(a.dy) + first;
    const T* gamma = static_cast<const T*>(a.gamma);
    const T* path = a.dresidual_out ? static_cast<const T*>(a.dresidual_out) + first : nullptr;
    const auto mean = hn::Set(d, a.kind == NormKind::layer ? a.mean[token] : 0.0F);
    const auto rstd = hn::Set(d, a.rstd[token]);
    auto sum_g = hn::Zero(d);
    auto sum_gx = hn::Zero(d);
    for_lanes(a.hidden, [&](std::int64_t i, std::int64_t n) {
        const auto normed = hn::Mul(hn::Sub(load_at(x + i, n), mean), rstd);
        const auto gradient = load_at(dy + i, n);
        const auto g = hn::Mul(gradient, load_at(gamma + i, n));
        sum_g = hn::Add(sum_g, g);
        sum_gx = hn::MulAdd(g, normed, sum_gx);
        store_at(hn::MulAdd(gradient, normed, load_at(sums.dgamma + i, n)), sums.dgamma + i, n);
        if (sums.dbeta) store_at(hn::Add(load_at(sums.dbeta + i, n), gradient), sums.dbeta + i, n);
    });
    const auto count = static_cast<float>(a.hidden);
    const auto mean_g = hn::Set(d, a.kind == NormKind::layer ? sum_lanes(sum_g) / count : 0.0F);
    const auto mean_gx = hn::Set(d, sum_lanes(sum_gx) / count);
    for_lanes(a.hidden, [&](std::int64_t i, std::int64_t n) {
        const auto normed = hn::Mul(hn::Sub(load_at(x + i, n), mean), rstd);
        const auto g = hn::Mul(load_at(dy + i, n), load_at(gamma + i, n));
        auto v = hn::Mul(hn::Sub(hn::Sub(g, mean_g), hn::Mul(normed, mean_gx)), rstd);
        if (path) v = hn::Add(v, load_at(path + i, n));
        store_at(v, row + i, n);
    });
}

template <typename T>
void backward_row(const NormRowsBackward& a, std::int64_t token, float* HWY_RESTRICT row, float* HWY_RESTRICT mask,
                  const BlockSums& sums) {
    const std::int64_t first = token * a.hidden;
    if (a.gamma) {
        norm_gradient_row<T>(a, token, row, sums);
    } else {
        const T* path = static_cast<const T*>(a.dresidual_out) + first;
        for_lanes(a.hidden, [&](std::int64_t i, std::int64_t n) { store_at(load_at(path + i, n), row + i, n); });
    }
    T* dresidual = static_cast<T*>(a.dresidual) + first;
    T* dx = a.dx ? static_cast<T*>(a.dx) + first : nullptr;
    const bool drops = a.dropout.probability > 0;
    if (drops) {
        dropout_mask(dropout_row(a.dropout, a.sample[token], a.offset[token]), a.dropout.feature_begin, a.hidden, mask);
    }
    for_lanes(a.hidden, [&](std::int64_t i, std::int64_t n) {
        const auto v = load_at(row + i, n);
        store_at(v, dresidual + i, n);
        const auto through = drops ? hn::Mul(v, load_at(mask + i, n)) : v;
        if (dx && dx != dresidual) store_at(through, dx + i, n);
        if (sums.dbias) store_at(hn::Add(load_at(sums.dbias + i, n), through), sums.dbias + i, n);
    });
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
            std::vector<float> row(static_cast<std::size_t>(a.hidden));
            std::vector<float> mask(static_cast<std::size_t>(dropout_room(a.hidden)));
            for (std::int64_t block = begin; block < end; ++block) {
                auto cleared = [&](float* all) {
                    if (all) std::fill_n(all + block * a.hidden, a.hidden, 0.0F);
                    return all ? all + block * a.hidden : nullptr;
                };
                const BlockSums sums{cleared(a.dgamma_blocks), cleared(a.dbeta_blocks), cleared(a.dbias_blocks)};
                const std::int64_t last = std::min((block + 1) * kNormRowBlock, a.tokens);
                for (std::int64_t token = block * kNormRowBlock; token < last; ++token) {
                    backward_row<T>(a, token, row.data(), mask.data(), sums);
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

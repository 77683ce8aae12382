#include "kernels/cpu/loss_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "hwy/cache_control.h"
#include "kernels/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/loss_rows.cpp"
#include "hwy/foreach_target.h"
//
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/storage.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {

/// Columns that are searched for their maximum and then exponentiated while they are in the first cache.
constexpr std::int64_t kColumnBlock = 2048;

template <typename T>
HWY_INLINE float block_maximum(const T* logits, std::int64_t count) {
    const FloatTag d;
    const std::int64_t step = lanes();
    const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
    FloatVec largest[4] = {lowest, lowest, lowest, lowest};
    std::int64_t i = 0;
    for (; i + 4 * step <= count; i += 4 * step) {
        for (int k = 0; k < 4; ++k) largest[k] = hn::Max(largest[k], load(logits + i + k * step));
    }
    for_lanes(count - i, [&](std::int64_t k, std::int64_t n) {
        const auto v = load_at(logits + i + k, n);
        largest[0] = hn::Max(largest[0],
                             n == step ? v : hn::IfThenElse(hn::FirstN(d, static_cast<std::size_t>(n)), v, lowest));
    });
    return hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(largest[0], largest[1]), hn::Max(largest[2], largest[3]))));
}

/// Σ exp(logit - maximum)
template <typename T>
HWY_INLINE float block_sum_exp(const T* logits, std::int64_t count, float maximum) {
    const FloatTag d;
    const std::int64_t step = lanes();
    const auto scale = hn::Set(d, kLog2E);
    const auto shift = hn::Set(d, maximum * kLog2E);
    FloatVec total[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    std::int64_t i = 0;
    for (; i + 4 * step <= count; i += 4 * step) {
        // The next block comes from memory while this one is computed.
        for (int k = 0; k < 4; ++k) hwy::Prefetch(logits + i + k * step + kColumnBlock);
        for (int k = 0; k < 4; ++k) {
            total[k] = hn::Add(total[k], exp2(hn::MulSub(load(logits + i + k * step), scale, shift)));
        }
    }
    for_lanes(count - i, [&](std::int64_t k, std::int64_t n) {
        const auto e = exp2(hn::MulSub(load_at(logits + i + k, n), scale, shift));
        total[0] = hn::Add(total[0], n == step ? e : hn::IfThenElseZero(hn::FirstN(d, static_cast<std::size_t>(n)), e));
    });
    return sum_lanes(hn::Add(hn::Add(total[0], total[1]), hn::Add(total[2], total[3])));
}

template <typename T>
void statistics_row(const LossRows& a, std::int64_t token) {
    const T* logits = static_cast<const T*>(a.logits) + token * a.columns;
    float maximum = -std::numeric_limits<float>::infinity();
    float sum = 0;
    for (std::int64_t begin = 0; begin < a.num_valid; begin += kColumnBlock) {
        const std::int64_t count = std::min(kColumnBlock, a.num_valid - begin);
        const float largest = std::max(maximum, block_maximum(logits + begin, count));
        if (sum != 0) sum *= std::exp(maximum - largest);
        maximum = largest;
        // Nothing but -inf so far: any finite shift gives exponentials of 0.
        sum += block_sum_exp(logits + begin, count, std::isinf(maximum) && maximum < 0 ? 0.0F : maximum);
    }
    a.maximum[token] = maximum;
    a.sum_exp[token] = sum;
    const std::int64_t local = a.targets[token] - a.vocab_begin;
    a.target_logit[token] =
            a.targets[token] >= 0 && local >= 0 && local < a.num_valid ? core::to_f32(logits[local]) : 0.0F;
}

template <typename T>
void finish_row(const LossRows& a, std::int64_t token) {
    const FloatTag d;
    T* logits = static_cast<T*>(a.logits) + token * a.columns;
    const std::int32_t target = a.targets[token];
    const float log_sum = std::log(a.sum_exp[token]) + a.maximum[token];
    a.losses[token] = target < 0 ? 0.0F : log_sum - a.target_logit[token];
    if (a.mode == CrossEntropyMode::losses_only) return;
    if (target < 0) {
        std::fill_n(logits, a.columns, T{});
        return;
    }
    // The gradient at the target is (p - 1)·scale; p is taken from its own logit before it is overwritten.
    const auto scale = hn::Set(d, kLog2E);
    const auto shift = hn::Set(d, a.maximum[token] * kLog2E);
    const auto factor = hn::Set(d, a.grad_scale / a.sum_exp[token]);
    for_lanes(a.num_valid, [&](std::int64_t i, std::int64_t n) {
        const auto e = exp2(hn::MulSub(load_at(logits + i, n), scale, shift));
        store_at(hn::Mul(e, factor), logits + i, n);
    });
    std::fill_n(logits + a.num_valid, a.columns - a.num_valid, T{});
    const std::int64_t local = target - a.vocab_begin;
    if (local >= 0 && local < a.num_valid) {
        const float probability = std::exp(a.target_logit[token] - a.maximum[token]) / a.sum_exp[token];
        logits[local] = core::from_f32<T>((probability - 1.0F) * a.grad_scale);
    }
}

void statistics_all(const LossRows& a) {
    with_storage(a.dtype, [&]<typename T>() {
        parallel_for(a.tokens, 8 * a.num_valid, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t token = begin; token < end; ++token) statistics_row<T>(a, token);
        });
    });
}

void finish_all(const LossRows& a) {
    with_storage(a.dtype, [&]<typename T>() {
        parallel_for(a.tokens, 8 * a.columns, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t token = begin; token < end; ++token) finish_row<T>(a, token);
        });
    });
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::cpu {

HWY_EXPORT(statistics_all);
HWY_EXPORT(finish_all);

void loss_rows_statistics(const LossRows& args) {
    HWY_DYNAMIC_DISPATCH(statistics_all)(args);
}
void loss_rows_finish(const LossRows& args) {
    HWY_DYNAMIC_DISPATCH(finish_all)(args);
}

}  // namespace tessera::kernels::cpu
#endif

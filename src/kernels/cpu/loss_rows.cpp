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

/// Vectors that are searched for their maximum and then exponentiated while they are in registers: the row is read
/// once, in order, as the memory likes it best.
constexpr int kVectors = 8;

/// Σ exp(logit - maximum) over what has been seen, in four sums of lanes, and the maximum.
struct RunningSum {
    float maximum;
    FloatVec total[4];

    /// Nothing but -inf so far: any finite shift gives exponentials of 0.
    float shift() const { return std::isinf(maximum) && maximum < 0 ? 0.0F : maximum; }

    /// Takes what the sum is relative to up to `largest`. It happens some log(columns) times a row.
    void raise_maximum(float largest) {
        const auto factor = hn::Set(FloatTag(), std::exp(maximum - largest));
        for (auto& sum : total) sum = hn::Mul(sum, factor);
        maximum = largest;
    }
};

template <typename T>
HWY_INLINE void add_vectors(RunningSum& running, const T* logits) {
    const FloatTag d;
    const std::int64_t step = lanes();
    FloatVec v[kVectors];
    for (int k = 0; k < kVectors; ++k) prefetch_ahead(logits + k * step);
    for (int k = 0; k < kVectors; ++k) v[k] = load(logits + k * step);
    const auto largest = hn::Max(hn::Max(hn::Max(v[0], v[1]), hn::Max(v[2], v[3])),
                                 hn::Max(hn::Max(v[4], v[5]), hn::Max(v[6], v[7])));
    if (!hn::AllFalse(d, hn::Gt(largest, hn::Set(d, running.maximum)))) {
        running.raise_maximum(hn::GetLane(hn::MaxOfLanes(d, largest)));
    }
    const auto scale = hn::Set(d, kLog2E);
    const auto shift = hn::Set(d, running.shift() * kLog2E);
    for (int k = 0; k < kVectors; ++k) {
        running.total[k % 4] = hn::Add(running.total[k % 4], exp2(hn::MulSub(v[k], scale, shift)));
    }
}

/// The last, shorter piece of a row.
template <typename T>
HWY_INLINE void add_rest(RunningSum& running, const T* logits, std::int64_t count) {
    const FloatTag d;
    const std::int64_t step = lanes();
    for_lanes(count, [&](std::int64_t i, std::int64_t n) {
        const auto outside = hn::Set(d, -std::numeric_limits<float>::infinity());
        const auto v =
                n == step ? load(logits + i)
                          : hn::IfThenElse(hn::FirstN(d, static_cast<std::size_t>(n)), load_n(logits + i, n), outside);
        if (!hn::AllFalse(d, hn::Gt(v, hn::Set(d, running.maximum)))) {
            running.raise_maximum(hn::GetLane(hn::MaxOfLanes(d, v)));
        }
        const auto shift = hn::Set(d, running.shift() * kLog2E);
        running.total[0] = hn::Add(running.total[0], exp2(hn::MulSub(v, hn::Set(d, kLog2E), shift)));
    });
}

template <typename T>
void statistics_row(const LossRows& a, std::int64_t token) {
    const T* logits = static_cast<const T*>(a.logits) + token * a.columns;
    const auto zero = hn::Zero(FloatTag());
    RunningSum running{-std::numeric_limits<float>::infinity(), {zero, zero, zero, zero}};
    const std::int64_t block = kVectors * lanes();
    std::int64_t i = 0;
    for (; i + block <= a.num_valid; i += block) add_vectors(running, logits + i);
    add_rest(running, logits + i, a.num_valid - i);
    a.maximum[token] = running.maximum;
    a.sum_exp[token] = sum_lanes(
            hn::Add(hn::Add(running.total[0], running.total[1]), hn::Add(running.total[2], running.total[3])));
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
    const auto gradient = [&](FloatVec logit)
                                  HWY_ATTR { return hn::Mul(exp2(hn::MulSub(logit, scale, shift)), factor); };
    const std::int64_t step = lanes();
    std::int64_t i = 0;
    for (; i + kVectors * step <= a.num_valid; i += kVectors * step) {
        for (int k = 0; k < kVectors; ++k) {
            T* at = logits + i + k * step;
            prefetch_ahead(at);
            store(gradient(load(at)), at);
        }
    }
    for_lanes(a.num_valid - i, [&](std::int64_t k, std::int64_t n) {
        T* at = logits + i + k;
        store_at(gradient(load_at(at, n)), at, n);
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

#include "kernels/cpu/loss_rows.h"

#include <cmath>
#include <limits>

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

template <typename T>
void statistics_row(const LossRows& a, std::int64_t token) {
    const FloatTag d;
    const T* logits = static_cast<const T*>(a.logits) + token * a.columns;
    const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
    auto largest = lowest;
    for_lanes(a.num_valid, [&](std::int64_t i, std::int64_t n) {
        const auto v = load_at(logits + i, n);
        largest = hn::Max(largest,
                          n == lanes() ? v : hn::IfThenElse(hn::FirstN(d, static_cast<std::size_t>(n)), v, lowest));
    });
    const float maximum = hn::GetLane(hn::MaxOfLanes(d, largest));
    const auto shift = hn::Set(d, maximum);
    auto total = hn::Zero(d);
    for_lanes(a.num_valid, [&](std::int64_t i, std::int64_t n) {
        const auto e = exp(hn::Sub(load_at(logits + i, n), shift));
        total = hn::Add(total, n == lanes() ? e : hn::IfThenElseZero(hn::FirstN(d, static_cast<std::size_t>(n)), e));
    });
    a.maximum[token] = maximum;
    a.sum_exp[token] = sum_lanes(total);
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
    const auto shift = hn::Set(d, a.maximum[token]);
    const auto factor = hn::Set(d, a.grad_scale / a.sum_exp[token]);
    for_lanes(a.num_valid, [&](std::int64_t i, std::int64_t n) {
        const auto e = exp(hn::Sub(load_at(logits + i, n), shift));
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

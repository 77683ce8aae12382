#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/attention_heads.h"
#include "kernels/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_rows.cpp"
#include "hwy/foreach_target.h"
//
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/storage.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {

/// out [K] = attention of one query over rows [0, count) of one K/V head of the cache.
template <typename T>
void cached_query(const CachedHeads& a, const T* query, std::int64_t group, std::int64_t count, T* out,
                  std::vector<float>& scores, std::vector<float>& sum) {
    const FloatTag d;
    const std::int64_t dim = a.heads.head_dim;
    const std::int64_t stride = a.heads.num_kv_heads * dim;
    const T* keys = static_cast<const T*>(a.k_cache) + group * dim;
    const T* values = static_cast<const T*>(a.v_cache) + group * dim;
    float largest = -std::numeric_limits<float>::infinity();
    for (std::int64_t row = 0; row < count; ++row) {
        auto dot = hn::Zero(d);
        for_lanes(dim, [&](std::int64_t i, std::int64_t n) {
            dot = hn::MulAdd(load_at(query + i, n), load_at(keys + row * stride + i, n), dot);
        });
        scores[static_cast<std::size_t>(row)] = sum_lanes(dot) * a.scale;
        largest = std::max(largest, scores[static_cast<std::size_t>(row)]);
    }
    std::fill(sum.begin(), sum.end(), 0.0F);
    float total = 0;
    for (std::int64_t row = 0; row < count; ++row) {
        const float p = std::exp(scores[static_cast<std::size_t>(row)] - largest);
        total += p;
        const auto weight = hn::Set(d, p);
        for_lanes(dim, [&](std::int64_t i, std::int64_t n) {
            store_at(hn::MulAdd(weight, load_at(values + row * stride + i, n), load_at(sum.data() + i, n)),
                     sum.data() + i, n);
        });
    }
    const auto inverse = hn::Set(d, 1.0F / total);
    for_lanes(dim, [&](std::int64_t i, std::int64_t n) {
        store_at(hn::Mul(load_at(sum.data() + i, n), inverse), out + i, n);
    });
}

void cached_all(const CachedHeads& a) {
    with_storage(a.dtype, [&]<typename T>() {
        const std::int64_t dim = a.heads.head_dim;
        const std::int64_t stride = a.heads.packed_width();
        const std::int64_t kv = a.heads.num_kv_heads * dim;
        const T* qkv = static_cast<const T*>(a.qkv);
        for (std::int64_t token = 0; token < a.tokens; ++token) {
            const T* keys = qkv + token * stride + a.heads.num_heads * dim;
            std::copy_n(keys, kv, static_cast<T*>(a.k_cache) + (a.past + token) * kv);
            std::copy_n(keys + kv, kv, static_cast<T*>(a.v_cache) + (a.past + token) * kv);
        }
        const std::int64_t per_group = a.heads.num_heads / a.heads.num_kv_heads;
        const std::int64_t work = (a.past + a.tokens) * dim;
        parallel_for(a.heads.num_heads * a.tokens, work, [&](std::int64_t begin, std::int64_t end) {
            std::vector<float> scores(static_cast<std::size_t>(a.past + a.tokens));
            std::vector<float> sum(static_cast<std::size_t>(dim));
            for (std::int64_t item = begin; item < end; ++item) {
                const std::int64_t head = item / a.tokens;
                const std::int64_t token = item % a.tokens;
                cached_query(a, qkv + token * stride + head * dim, head / per_group, a.past + token + 1,
                             static_cast<T*>(a.out) + (token * a.heads.num_heads + head) * dim, scores, sum);
            }
        });
    });
}

void rotary_all(const RotaryHeads& a) {
    with_storage(a.dtype, [&]<typename T>() {
        const std::int64_t half = a.heads.head_dim / 2;
        const std::int64_t turned = a.heads.num_heads + a.heads.num_kv_heads;  // q and k heads lie first
        const auto sign = hn::Set(FloatTag(), a.direction == RotaryDirection::forward ? 1.0F : -1.0F);
        parallel_for(a.tokens, turned * half * 4, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t token = begin; token < end; ++token) {
                const float* cosines = a.cosines + a.position[token] * half;
                const float* sines = a.sines + a.position[token] * half;
                for (std::int64_t head = 0; head < turned; ++head) {
                    T* x = static_cast<T*>(a.qkv) + token * a.heads.packed_width() + head * a.heads.head_dim;
                    for_lanes(half, [&](std::int64_t i, std::int64_t n) {
                        const auto first = load_at(x + i, n);
                        const auto second = load_at(x + half + i, n);
                        const auto c = load_at(cosines + i, n);
                        const auto s = hn::Mul(load_at(sines + i, n), sign);
                        store_at(hn::Sub(hn::Mul(first, c), hn::Mul(second, s)), x + i, n);
                        store_at(hn::Add(hn::Mul(second, c), hn::Mul(first, s)), x + half + i, n);
                    });
                }
            }
        });
    });
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::cpu {

HWY_EXPORT(cached_all);
HWY_EXPORT(rotary_all);

void cached_heads(const CachedHeads& args) {
    HWY_DYNAMIC_DISPATCH(cached_all)(args);
}
void rotary_heads(const RotaryHeads& args) {
    HWY_DYNAMIC_DISPATCH(rotary_all)(args);
}

}  // namespace tessera::kernels::cpu
#endif

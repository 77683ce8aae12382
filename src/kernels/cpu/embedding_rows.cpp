#include "kernels/cpu/embedding_rows.h"

#include <vector>

#include "kernels/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/embedding_rows.cpp"
#include "hwy/foreach_target.h"
//
#include "kernels/cpu/dropout-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/storage.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {

HWY_INLINE void draw_mask(const EmbeddingRows& a, std::int64_t token, float* HWY_RESTRICT mask) {
    dropout_mask(dropout_row(a.dropout, a.sample[token], a.offset[token]), a.dropout.feature_begin, a.hidden, mask);
}

template <typename T>
void forward_token(const EmbeddingRows& a, std::int64_t token, float* HWY_RESTRICT mask) {
    T* y = static_cast<T*>(a.y) + token * a.hidden;
    if (a.sample[token] < 0) {
        for_lanes(a.hidden, [&](std::int64_t i, std::int64_t n) { store_at(hn::Zero(FloatTag()), y + i, n); });
        return;
    }
    const bool drops = a.dropout.probability > 0;
    if (drops) draw_mask(a, token, mask);
    const T* word = static_cast<const T*>(a.word) + a.ids[token] * a.hidden;
    const T* position = a.positions ? static_cast<const T*>(a.positions) + a.position[token] * a.hidden : nullptr;
    for_lanes(a.hidden, [&](std::int64_t i, std::int64_t n) {
        auto v = load_at(word + i, n);
        if (position) v = hn::Add(v, load_at(position + i, n));
        if (drops) v = hn::Mul(v, load_at(mask + i, n));
        store_at(v, y + i, n);
    });
}

void forward_all(const EmbeddingRows& a) {
    with_storage(a.dtype, [&]<typename T>() {
        parallel_for(a.tokens, 2 * a.hidden, [&](std::int64_t begin, std::int64_t end) {
            std::vector<float> mask(static_cast<std::size_t>(dropout_room(a.hidden)));
            for (std::int64_t token = begin; token < end; ++token) forward_token<T>(a, token, mask.data());
        });
    });
}

/// Each thread owns a strip of columns and walks all tokens in order: rows are added in token order whoever does it.
template <typename T>
void backward_strip(const EmbeddingRows& a, std::int64_t first, std::int64_t last, float* HWY_RESTRICT mask) {
    const bool drops = a.dropout.probability > 0;
    for (std::int64_t token = 0; token < a.tokens; ++token) {
        if (a.sample[token] < 0) continue;
        if (drops) {
            dropout_mask(dropout_row(a.dropout, a.sample[token], a.offset[token]), a.dropout.feature_begin + first,
                         last - first, mask);
        }
        const T* dy = static_cast<const T*>(a.dy) + token * a.hidden + first;
        float* dword = a.dword + a.ids[token] * a.hidden + first;
        float* dposition = a.dpositions ? a.dpositions + a.position[token] * a.hidden + first : nullptr;
        for_lanes(last - first, [&](std::int64_t i, std::int64_t n) {
            auto v = load_at(dy + i, n);
            if (drops) v = hn::Mul(v, load_at(mask + i, n));
            store_at(hn::Add(load_at(dword + i, n), v), dword + i, n);
            if (dposition) store_at(hn::Add(load_at(dposition + i, n), v), dposition + i, n);
        });
    }
}

void backward_all(const EmbeddingRows& a) {
    constexpr std::int64_t kStrip = 64;
    with_storage(a.dtype, [&]<typename T>() {
        parallel_for((a.hidden + kStrip - 1) / kStrip, a.tokens * kStrip, [&](std::int64_t begin, std::int64_t end) {
            const std::int64_t first = begin * kStrip;
            const std::int64_t last = std::min(end * kStrip, a.hidden);
            std::vector<float> mask(static_cast<std::size_t>(dropout_room(last - first)));
            backward_strip<T>(a, first, last, mask.data());
        });
    });
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::cpu {

HWY_EXPORT(forward_all);
HWY_EXPORT(backward_all);

void embedding_rows_forward(const EmbeddingRows& args) {
    HWY_DYNAMIC_DISPATCH(forward_all)(args);
}
void embedding_rows_backward(const EmbeddingRows& args) {
    HWY_DYNAMIC_DISPATCH(backward_all)(args);
}

}  // namespace tessera::kernels::cpu
#endif

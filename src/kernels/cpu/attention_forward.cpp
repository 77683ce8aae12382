#include "kernels/cpu/attention_heads.h"
#include "kernels/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_forward.cpp"
#include "hwy/foreach_target.h"
//
#include "kernels/cpu/attention_tiles-inl.h"
#include "kernels/cpu/storage.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {

/// One thread's tiles. Keys and values of a whole block and head stay packed while its queries pass.
struct ForwardScratch {
    float* keys_transposed;  // tiles of [K, kKeyTile]
    float* values;           // [S, padded(K)]
    float* query;            // [kQueryTile, padded(K)]
    float* scores;           // [kQueryTile, kScoreWidth]
    float* sum;              // [kQueryTile, padded(K)]
    float* maximum;          // [kQueryTile]
    float* total;            // [kQueryTile]
    float* mask;             // [kMaskWidth]

    ForwardScratch(float* base, std::int64_t seqlen, std::int64_t head_dim) {
        const std::int64_t width = padded(head_dim);
        auto take = [&](std::int64_t count) {
            float* begin = base;
            base += padded(count);
            return begin;
        };
        keys_transposed = take(transposed_floats(seqlen, head_dim));
        values = take(seqlen * width);
        query = take(kQueryTile * width);
        scores = take(kQueryTile * kScoreWidth);
        sum = take(kQueryTile * width);
        maximum = take(kQueryTile);
        total = take(kQueryTile);
        mask = take(kMaskWidth);
    }
};

/// Folds one tile of scores into the running maximum, total and weighted sum; the scores become probabilities.
HWY_INLINE void online_softmax(const TilePlace& place, std::int64_t width, float scale, const ForwardScratch& s) {
    const FloatTag d;
    const std::int64_t columns = padded(place.columns);
    const auto scale_v = hn::Set(d, scale * kLog2E);
    for (std::int64_t row = 0; row < place.rows; ++row) {
        float* scores = s.scores + row * kScoreWidth;
        auto largest = hn::Set(d, -std::numeric_limits<float>::infinity());
        for (std::int64_t i = 0; i < columns; i += lanes()) largest = hn::Max(largest, load(scores + i));
        const float before = s.maximum[row];
        const float now = std::max(before, hn::GetLane(hn::MaxOfLanes(d, largest)) * scale);
        const auto now_v = hn::Set(d, now * kLog2E);
        auto total = hn::Zero(d);
        for (std::int64_t i = 0; i < columns; i += lanes()) {
            const auto p = exp2(hn::MulSub(load(scores + i), scale_v, now_v));
            store(p, scores + i);
            total = hn::Add(total, p);
        }
        const float correction = std::exp(before - now);
        s.total[row] = s.total[row] * correction + sum_lanes(total);
        s.maximum[row] = now;
        if (correction != 1.0F) {
            const auto correction_v = hn::Set(d, correction);
            float* sum = s.sum + row * width;
            for (std::int64_t i = 0; i < width; i += lanes()) store(hn::Mul(load(sum + i), correction_v), sum + i);
        }
    }
}

template <typename T>
void forward_query_tile(const AttentionHeads& a, std::int64_t block, std::int64_t head, std::int64_t query,
                        const ForwardScratch& s) {
    const std::int64_t dim = a.heads.head_dim;
    const std::int64_t width = padded(dim);
    const std::int64_t begin = a.cu_seqlens[block];
    const std::int64_t length = a.cu_seqlens[block + 1] - begin;
    const std::int64_t rows = std::min(kQueryTile, length - query);
    const std::int64_t stride = a.heads.packed_width();
    const T* q = static_cast<const T*>(a.qkv) + (begin + query) * stride + head * dim;
    pack_rows(q, stride, rows, dim, s.query);
    std::fill_n(s.sum, rows * width, 0.0F);
    std::fill_n(s.total, rows, 0.0F);
    std::fill_n(s.maximum, rows, -std::numeric_limits<float>::infinity());
    const std::int64_t keys = query + rows;
    for (std::int64_t key = 0; key < keys; key += kKeyTile) {
        const TilePlace place{.query = query, .rows = rows, .key = key, .columns = std::min(kKeyTile, keys - key)};
        tile_gemm({.m = rows,
                   .n = padded(place.columns),
                   .k = dim,
                   .a = s.query,
                   .a_row = width,
                   .b = s.keys_transposed + key * dim,
                   .ldb = kKeyTile,
                   .c = s.scores,
                   .ldc = kScoreWidth,
                   .causal = Causal::output,
                   .shift = place.shift()});
        if (has_unseen(place)) fill_unseen(place, kUnseen, s.scores);
        online_softmax(place, width, a.scale, s);
        if (a.dropout.probability > 0) {
            drop_tile(a, a.dropout.feature_begin + head, begin, place, s.mask, s.scores);
        }
        tile_gemm({.m = rows,
                   .n = width,
                   .k = place.columns,
                   .a = s.scores,
                   .a_row = kScoreWidth,
                   .b = s.values + key * width,
                   .ldb = width,
                   .c = s.sum,
                   .ldc = width,
                   .accumulate = true,
                   .causal = Causal::left,
                   .shift = place.shift()});
    }
    for (std::int64_t row = 0; row < rows; ++row) {
        T* out = static_cast<T*>(a.out) + (begin + query + row) * a.heads.num_heads * dim + head * dim;
        const auto inverse = hn::Set(FloatTag(), 1.0F / s.total[row]);
        for_lanes(dim, [&](std::int64_t i, std::int64_t n) {
            store_at(hn::Mul(load_at(s.sum + row * width + i, n), inverse), out + i, n);
        });
        if (a.lse) a.lse[head * a.tokens + begin + query + row] = s.maximum[row] + std::log(s.total[row]);
    }
}

template <typename T>
void pack_head(const AttentionHeads& a, std::int64_t block, std::int64_t head, const ForwardScratch& s) {
    const std::int64_t dim = a.heads.head_dim;
    const std::int64_t begin = a.cu_seqlens[block];
    const std::int64_t length = a.cu_seqlens[block + 1] - begin;
    const std::int64_t group = head / (a.heads.num_heads / a.heads.num_kv_heads);
    const std::int64_t stride = a.heads.packed_width();
    const T* keys = static_cast<const T*>(a.qkv) + begin * stride + (a.heads.num_heads + group) * dim;
    pack_transposed(keys, stride, length, dim, s.keys_transposed);
    pack_rows(keys + a.heads.num_kv_heads * dim, stride, length, dim, s.values);
}

void forward_all(const AttentionHeads& a) {
    with_storage(a.dtype, [&]<typename T>() {
        const std::int64_t items = a.blocks * a.heads.num_heads;
        // Few heads on many threads: several threads share a head, each with its own query tiles.
        const std::int64_t threads = omp_get_max_threads();
        const std::int64_t splits = items >= threads ? 1 : (threads + items - 1) / std::max<std::int64_t>(items, 1);
        const std::int64_t work = a.max_seqlen * a.max_seqlen * a.heads.head_dim / 4;
        parallel_items(items * splits, work, [&](std::int64_t item) {
            const std::int64_t block = item / splits / a.heads.num_heads;
            const std::int64_t head = item / splits % a.heads.num_heads;
            const std::int64_t length = a.cu_seqlens[block + 1] - a.cu_seqlens[block];
            const ForwardScratch scratch(a.scratch + core::thread_index() * a.scratch_floats, length, a.heads.head_dim);
            pack_head<T>(a, block, head, scratch);
            const std::int64_t tiles = (length + kQueryTile - 1) / kQueryTile;
            for (std::int64_t tile = item % splits; tile < tiles; tile += splits) {
                forward_query_tile<T>(a, block, head, tile * kQueryTile, scratch);
            }
        });
        const std::int64_t used = a.cu_seqlens[a.blocks];
        const std::int64_t row = a.heads.num_heads * a.heads.head_dim;
        std::fill(static_cast<T*>(a.out) + used * row, static_cast<T*>(a.out) + a.tokens * row, T{});
        for (std::int64_t head = 0; a.lse && head < a.heads.num_heads; ++head) {
            std::fill(a.lse + head * a.tokens + used, a.lse + (head + 1) * a.tokens, 0.0F);
        }
    });
}

std::int64_t forward_scratch(std::int64_t seqlen, std::int64_t head_dim) {
    const std::int64_t width = padded(head_dim);
    return padded(transposed_floats(seqlen, head_dim) + seqlen * width + 2 * kQueryTile * width +
                  kQueryTile * kScoreWidth + 2 * kQueryTile + kMaskWidth + 8 * kTilePadding);
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::cpu {

HWY_EXPORT(forward_all);
HWY_EXPORT(forward_scratch);

void attention_heads_forward(const AttentionHeads& args) {
    HWY_DYNAMIC_DISPATCH(forward_all)(args);
}
std::int64_t attention_forward_scratch(std::int64_t seqlen, std::int64_t head_dim) {
    return HWY_DYNAMIC_DISPATCH(forward_scratch)(seqlen, head_dim);
}

}  // namespace tessera::kernels::cpu
#endif

#include "kernels/cpu/attention_heads.h"
#include "kernels/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_backward.cpp"
#include "hwy/foreach_target.h"
//
#include "kernels/cpu/attention_tiles-inl.h"
#include "kernels/cpu/storage.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {

/// One thread's tiles: a block's keys and values in both orders, their gradients, and one query tile.
struct BackwardScratch {
    float* keys;               // [S, padded(K)]
    float* keys_transposed;    // tiles of [K, kKeyTile]
    float* values_transposed;  // tiles of [K, kKeyTile]
    float* dkeys;              // [S, padded(K)]
    float* dvalues;            // [S, padded(K)]
    float* query;              // [kQueryTile, padded(K)]
    float* dout;               // [kQueryTile, padded(K)]
    float* dquery;             // [kQueryTile, padded(K)]
    float* probabilities;      // [kQueryTile, kScoreWidth]
    float* dscores;            // [kQueryTile, kScoreWidth]
    float* delta;              // [kQueryTile]
    float* mask;               // [kMaskWidth]

    BackwardScratch(float* base, std::int64_t seqlen, std::int64_t head_dim) {
        const std::int64_t width = padded(head_dim);
        auto take = [&](std::int64_t count) {
            float* begin = base;
            base += padded(count);
            return begin;
        };
        keys = take(seqlen * width);
        keys_transposed = take(transposed_floats(seqlen, head_dim));
        values_transposed = take(transposed_floats(seqlen, head_dim));
        dkeys = take(seqlen * width);
        dvalues = take(seqlen * width);
        query = take(kQueryTile * width);
        dout = take(kQueryTile * width);
        dquery = take(kQueryTile * width);
        probabilities = take(kQueryTile * kScoreWidth);
        dscores = take(kQueryTile * kScoreWidth);
        delta = take(kQueryTile);
        mask = take(kMaskWidth);
    }
};

std::int64_t backward_scratch(std::int64_t seqlen, std::int64_t head_dim) {
    const std::int64_t width = padded(head_dim);
    return padded(3 * seqlen * width + 2 * transposed_floats(seqlen, head_dim) + 3 * kQueryTile * width +
                  2 * kQueryTile * kScoreWidth + kQueryTile + kMaskWidth + 12 * kTilePadding);
}

/// What one (block, query head) fixes.
struct HeadPlace {
    std::int64_t begin = 0;  ///< first token of the block
    std::int64_t length = 0;
    std::int64_t head = 0;
};

/// probabilities <- exp(scale·scores - lse); then with dS = p·(mask·dP - delta)·scale into dscores and, for dV,
/// mask·p into probabilities.
HWY_INLINE void score_gradients(const AttentionHeads& a, const HeadPlace& h, const TilePlace& place,
                                const BackwardScratch& s) {
    const FloatTag d;
    const auto scale = hn::Set(d, a.scale);
    const auto exponent_scale = hn::Set(d, a.scale * kLog2E);
    const std::int64_t columns = padded(place.columns);
    const bool drops = a.dropout.probability > 0;
    if (drops) drop_tile(a, a.dropout.feature_begin + h.head, h.begin, place, s.mask, s.dscores);
    for (std::int64_t row = 0; row < place.rows; ++row) {
        const auto exponent_shift = hn::Set(d, a.lse[h.head * a.tokens + h.begin + place.query + row] * kLog2E);
        const auto delta = hn::Set(d, s.delta[row]);
        float* p_row = s.probabilities + row * kScoreWidth;
        float* ds_row = s.dscores + row * kScoreWidth;
        for (std::int64_t i = 0; i < columns; i += lanes()) {
            const auto p = exp2(hn::MulSub(load(p_row + i), exponent_scale, exponent_shift));
            store(p, p_row + i);
            store(hn::Mul(hn::Mul(p, hn::Sub(load(ds_row + i), delta)), scale), ds_row + i);
        }
    }
    if (drops) drop_tile(a, a.dropout.feature_begin + h.head, h.begin, place, s.mask, s.probabilities);
}

template <typename T>
void load_query_tile(const AttentionHeads& a, const HeadPlace& h, std::int64_t query, std::int64_t rows,
                     const BackwardScratch& s) {
    const std::int64_t dim = a.heads.head_dim;
    const std::int64_t width = padded(dim);
    const std::int64_t stride = a.heads.packed_width();
    const std::int64_t out_stride = a.heads.num_heads * dim;
    const std::int64_t first = h.begin + query;
    pack_rows(static_cast<const T*>(a.qkv) + first * stride + h.head * dim, stride, rows, dim, s.query);
    pack_rows(static_cast<const T*>(a.dout) + first * out_stride + h.head * dim, out_stride, rows, dim, s.dout);
    std::fill_n(s.dquery, rows * width, 0.0F);
    for (std::int64_t row = 0; row < rows; ++row) {
        const T* out = static_cast<const T*>(a.out) + (first + row) * out_stride + h.head * dim;
        auto sum = hn::Zero(FloatTag());
        for_lanes(dim, [&](std::int64_t i, std::int64_t n) {
            sum = hn::MulAdd(load_at(out + i, n), load_at(s.dout + row * width + i, n), sum);
        });
        s.delta[row] = sum_lanes(sum);
    }
}

/// gradient [keys, width] += tileᵀ·rows, tile [queries, kScoreWidth], rows [queries, width].
HWY_INLINE void add_to_keys(const TilePlace& place, std::int64_t width, const float* tile, const float* rows,
                            float* gradient) {
    tile_gemm({.m = place.columns,
               .n = width,
               .k = place.rows,
               .a = tile,
               .a_row = 1,
               .a_column = kScoreWidth,
               .b = rows,
               .ldb = width,
               .c = gradient,
               .ldc = width,
               .accumulate = true,
               .causal = Causal::left_transposed,
               .shift = place.shift()});
}

template <typename T>
void backward_query_tile(const AttentionHeads& a, const HeadPlace& h, std::int64_t query, const BackwardScratch& s) {
    const std::int64_t dim = a.heads.head_dim;
    const std::int64_t width = padded(dim);
    const std::int64_t rows = std::min(kQueryTile, h.length - query);
    load_query_tile<T>(a, h, query, rows, s);
    const std::int64_t keys = query + rows;
    for (std::int64_t key = 0; key < keys; key += kKeyTile) {
        const TilePlace place{.query = query, .rows = rows, .key = key, .columns = std::min(kKeyTile, keys - key)};
        const std::int64_t columns = padded(place.columns);
        tile_gemm({.m = rows,
                   .n = columns,
                   .k = dim,
                   .a = s.query,
                   .a_row = width,
                   .b = s.keys_transposed + key * dim,
                   .ldb = kKeyTile,
                   .c = s.probabilities,
                   .ldc = kScoreWidth,
                   .causal = Causal::output,
                   .shift = place.shift()});
        tile_gemm({.m = rows,
                   .n = columns,
                   .k = dim,
                   .a = s.dout,
                   .a_row = width,
                   .b = s.values_transposed + key * dim,
                   .ldb = kKeyTile,
                   .c = s.dscores,
                   .ldc = kScoreWidth,
                   .causal = Causal::output,
                   .shift = place.shift()});
        if (has_unseen(place)) {
            fill_unseen(place, kUnseen, s.probabilities);
            fill_unseen(place, 0.0F, s.dscores);
        }
        score_gradients(a, h, place, s);
        add_to_keys(place, width, s.probabilities, s.dout, s.dvalues + key * width);
        add_to_keys(place, width, s.dscores, s.query, s.dkeys + key * width);
        tile_gemm({.m = rows,
                   .n = width,
                   .k = place.columns,
                   .a = s.dscores,
                   .a_row = kScoreWidth,
                   .b = s.keys + key * width,
                   .ldb = width,
                   .c = s.dquery,
                   .ldc = width,
                   .accumulate = true,
                   .causal = Causal::left,
                   .shift = place.shift()});
    }
    const std::int64_t stride = a.heads.packed_width();
    for (std::int64_t row = 0; row < rows; ++row) {
        T* dq = static_cast<T*>(a.dqkv) + (h.begin + query + row) * stride + h.head * dim;
        for_lanes(dim,
                  [&](std::int64_t i, std::int64_t n) { store_at(load_at(s.dquery + row * width + i, n), dq + i, n); });
    }
}

/// One K/V group of one block: its query heads in order, so that dK and dV have one owner and one order.
template <typename T>
void backward_group(const AttentionHeads& a, std::int64_t block, std::int64_t group, float* base) {
    const std::int64_t dim = a.heads.head_dim;
    const std::int64_t width = padded(dim);
    const std::int64_t stride = a.heads.packed_width();
    const std::int64_t begin = a.cu_seqlens[block];
    const std::int64_t length = a.cu_seqlens[block + 1] - begin;
    const BackwardScratch s(base, length, dim);
    const std::int64_t key_column = (a.heads.num_heads + group) * dim;
    const T* keys = static_cast<const T*>(a.qkv) + begin * stride + key_column;
    const T* values = keys + a.heads.num_kv_heads * dim;
    pack_rows(keys, stride, length, dim, s.keys);
    pack_transposed(keys, stride, length, dim, s.keys_transposed);
    pack_transposed(values, stride, length, dim, s.values_transposed);
    std::fill_n(s.dkeys, length * width, 0.0F);
    std::fill_n(s.dvalues, length * width, 0.0F);
    const std::int64_t per_group = a.heads.num_heads / a.heads.num_kv_heads;
    for (std::int64_t head = group * per_group; head < (group + 1) * per_group; ++head) {
        for (std::int64_t query = 0; query < length; query += kQueryTile) {
            backward_query_tile<T>(a, {.begin = begin, .length = length, .head = head}, query, s);
        }
    }
    T* dk = static_cast<T*>(a.dqkv) + begin * stride + key_column;
    T* dv = dk + a.heads.num_kv_heads * dim;
    for (std::int64_t row = 0; row < length; ++row) {
        for_lanes(dim, [&](std::int64_t i, std::int64_t n) {
            store_at(load_at(s.dkeys + row * width + i, n), dk + row * stride + i, n);
            store_at(load_at(s.dvalues + row * width + i, n), dv + row * stride + i, n);
        });
    }
}

void backward_all(const AttentionHeads& a) {
    with_storage(a.dtype, [&]<typename T>() {
        const std::int64_t groups = a.heads.num_kv_heads;
        const std::int64_t work = a.max_seqlen * a.max_seqlen * a.heads.head_dim;
        parallel_items(a.blocks * groups, work, [&](std::int64_t item) {
            backward_group<T>(a, item / groups, item % groups, a.scratch + core::thread_index() * a.scratch_floats);
        });
        const std::int64_t used = a.cu_seqlens[a.blocks];
        const std::int64_t stride = a.heads.packed_width();
        std::fill(static_cast<T*>(a.dqkv) + used * stride, static_cast<T*>(a.dqkv) + a.tokens * stride, T{});
    });
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::cpu {

HWY_EXPORT(backward_all);
HWY_EXPORT(backward_scratch);

void attention_heads_backward(const AttentionHeads& args) {
    HWY_DYNAMIC_DISPATCH(backward_all)(args);
}
std::int64_t attention_backward_scratch(std::int64_t seqlen, std::int64_t head_dim) {
    return HWY_DYNAMIC_DISPATCH(backward_scratch)(seqlen, head_dim);
}

}  // namespace tessera::kernels::cpu
#endif

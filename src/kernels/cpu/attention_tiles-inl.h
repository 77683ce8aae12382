// Packing, masking and softmax of attention's tiles; included once per Highway target.
#if defined(TESSERA_KERNELS_CPU_ATTENTION_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_CPU_ATTENTION_TILES_INL_H_
#undef TESSERA_KERNELS_CPU_ATTENTION_TILES_INL_H_
#else
#define TESSERA_KERNELS_CPU_ATTENTION_TILES_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/attention_heads.h"
#include "kernels/cpu/dropout-inl.h"
#include "kernels/cpu/tile_gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {

inline constexpr std::int64_t kQueryTile = 36;  // six rows of registers six times
inline constexpr std::int64_t kKeyTile = 64;
inline constexpr std::int64_t kScoreWidth = kKeyTile;
/// What an unseen key scores.
inline constexpr float kUnseen = -std::numeric_limits<float>::infinity();
/// A mask row starts up to three features before its tile and may be written whole vectors past its end.
inline constexpr std::int64_t kMaskWidth = kKeyTile + 4 + 4 * (HWY_MAX_BYTES / 4);

inline std::int64_t padded(std::int64_t count) {
    return (count + kTilePadding - 1) / kTilePadding * kTilePadding;
}

/// rows [count, width] f32 with zero columns up to `width` = padded(head_dim), from rows `stride` elements apart.
template <typename T>
HWY_INLINE void pack_rows(const T* source, std::int64_t stride, std::int64_t count, std::int64_t head_dim,
                          float* packed) {
    const std::int64_t width = padded(head_dim);
    for (std::int64_t row = 0; row < count; ++row) {
        float* out = packed + row * width;
        for_lanes(head_dim,
                  [&](std::int64_t i, std::int64_t n) { store_at(load_at(source + row * stride + i, n), out + i, n); });
        std::fill(out + head_dim, out + width, 0.0F);
    }
}

/// Floats of `count` rows packed by pack_transposed.
inline std::int64_t transposed_floats(std::int64_t count, std::int64_t head_dim) {
    return (count + kKeyTile - 1) / kKeyTile * kKeyTile * head_dim;
}

/// Four rows of `head_dim` elements become four neighbouring columns of `out`, whose rows are kKeyTile apart.
template <typename T>
HWY_INLINE void transpose_four(const T* rows, std::int64_t stride, std::int64_t head_dim, float* out) {
    HWY_ALIGN float turned[HWY_MAX_BYTES];
    for_lanes(head_dim, [&](std::int64_t i, std::int64_t n) {
        hn::StoreInterleaved4(load_at(rows + i, n), load_at(rows + stride + i, n), load_at(rows + 2 * stride + i, n),
                              load_at(rows + 3 * stride + i, n), FloatTag(), turned);
        for (std::int64_t k = 0; k < n; ++k) std::copy_n(turned + 4 * k, 4, out + (i + k) * kKeyTile);
    });
}

/// transposed [ceil(count / kKeyTile), head_dim, kKeyTile] f32, zero columns from count on. Tile by tile, because rows
/// a whole sequence apart would fall into a few sets of the cache.
template <typename T>
HWY_INLINE void pack_transposed(const T* source, std::int64_t stride, std::int64_t count, std::int64_t head_dim,
                                float* transposed) {
    for (std::int64_t tile = 0; tile < count; tile += kKeyTile) {
        float* out = transposed + tile * head_dim;
        const std::int64_t columns = std::min(kKeyTile, count - tile);
        const T* rows = source + tile * stride;
        std::int64_t row = 0;
        for (; row + 4 <= columns; row += 4) transpose_four(rows + row * stride, stride, head_dim, out + row);
        for (; row < columns; ++row) {
            for (std::int64_t feature = 0; feature < head_dim; ++feature) {
                out[feature * kKeyTile + row] = core::to_f32(rows[row * stride + feature]);
            }
        }
        for (std::int64_t feature = 0; feature < head_dim; ++feature) {
            std::fill(out + feature * kKeyTile + columns, out + (feature + 1) * kKeyTile, 0.0F);
        }
    }
}

/// Where a tile of scores stands: queries [query, query + rows), keys [key, key + columns) of one attention block.
struct TilePlace {
    std::int64_t query = 0;
    std::int64_t rows = 0;
    std::int64_t key = 0;
    std::int64_t columns = 0;

    /// Query row i of the tile sees key column j iff j <= i + shift().
    std::int64_t shift() const { return query - key; }
};

/// Whether a tile touches the diagonal or the padding.
inline bool has_unseen(const TilePlace& place) {
    return place.key + place.columns > place.query || place.columns % kTilePadding != 0;
}

/// Elements of tile [rows, kScoreWidth] beyond the causal border become `value`.
HWY_INLINE void fill_unseen(const TilePlace& place, float value, float* tile) {
    const std::int64_t width = padded(place.columns);
    for (std::int64_t row = 0; row < place.rows; ++row) {
        const std::int64_t visible = std::clamp<std::int64_t>(place.query + row + 1 - place.key, 0, place.columns);
        std::fill(tile + row * kScoreWidth + visible, tile + row * kScoreWidth + width, value);
    }
}

/// Multiplies `values` [rows, kScoreWidth] by the dropout mask of head `head` (global) for this tile.
HWY_INLINE void drop_tile(const AttentionHeads& a, std::int64_t head, std::int64_t block_begin, const TilePlace& place,
                          float* mask, float* values) {
    const std::int64_t pitch = (a.seq_length + 3) / 4 * 4;
    const std::int64_t width = padded(place.columns);
    for (std::int64_t row = 0; row < place.rows; ++row) {
        const std::int64_t token = block_begin + place.query + row;
        const std::int64_t key_offset = a.offset[block_begin] + place.key;
        const std::int64_t aligned = key_offset / 4 * 4;
        const std::int64_t shift = key_offset - aligned;
        dropout_mask(dropout_row(a.dropout, a.sample[token], a.offset[token]), head * pitch + aligned,
                     place.columns + shift, mask);
        float* out = values + row * kScoreWidth;
        for (std::int64_t i = 0; i < width; i += lanes()) {
            store(hn::Mul(load(out + i), load(mask + shift + i)), out + i);
        }
    }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif

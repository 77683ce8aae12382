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

/// transposed [ceil(count / kKeyTile), head_dim, kKeyTile] f32, zero columns from count on. Tile by tile, because rows
/// a whole sequence apart would fall into a few sets of the cache.
template <typename T>
HWY_INLINE void pack_transposed(const T* source, std::int64_t stride, std::int64_t count, std::int64_t head_dim,
                                float* transposed) {
    constexpr std::int64_t kStrip = 8;
    for (std::int64_t tile = 0; tile < count; tile += kKeyTile) {
        float* out = transposed + tile * head_dim;
        const std::int64_t columns = std::min(kKeyTile, count - tile);
        for (std::int64_t first = 0; first < columns; first += kStrip) {
            const std::int64_t last = std::min(first + kStrip, columns);
            const T* rows = source + tile * stride;
            for (std::int64_t feature = 0; feature < head_dim; ++feature) {
                for (std::int64_t row = first; row < last; ++row) {
                    out[feature * kKeyTile + row] = core::to_f32(rows[row * stride + feature]);
                }
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
};

/// Scores beyond the causal border become -inf. Only tiles that touch the diagonal or the padding need it.
HWY_INLINE void mask_scores(const TilePlace& place, float* scores) {
    const std::int64_t width = padded(place.columns);
    for (std::int64_t row = 0; row < place.rows; ++row) {
        const std::int64_t visible = std::clamp<std::int64_t>(place.query + row + 1 - place.key, 0, place.columns);
        std::fill(scores + row * kScoreWidth + visible, scores + row * kScoreWidth + width,
                  -std::numeric_limits<float>::infinity());
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

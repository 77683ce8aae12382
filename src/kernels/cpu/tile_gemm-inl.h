// Products of small f32 tiles that lie in cache, for attention; included once per Highway target.
#if defined(TESSERA_KERNELS_CPU_TILE_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_CPU_TILE_GEMM_INL_H_
#undef TESSERA_KERNELS_CPU_TILE_GEMM_INL_H_
#else
#define TESSERA_KERNELS_CPU_TILE_GEMM_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {

/// Columns of every packed tile are padded to this many floats: a whole number of vectors on every target.
inline constexpr std::int64_t kTilePadding = 16;

/// What a causal border leaves out of a product: query i sees key j iff j <= i + shift.
enum class Causal : std::uint8_t {
    nothing,
    output,          ///< C is [queries, keys]: unseen elements need not be written
    left,            ///< A is [queries, keys]: unseen elements are zero
    left_transposed  ///< A is [keys, queries]: unseen elements are zero
};

/// C [m, n] = (accumulate ? C : 0) + A [m, k] · B [k, n]; n is a multiple of kTilePadding. A's element (i, p) is
/// a[i·a_row + p·a_column], so a transposed A costs nothing. The sum over p runs in order.
struct TileGemm {
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;
    const float* a = nullptr;
    std::int64_t a_row = 0;
    std::int64_t a_column = 1;
    const float* b = nullptr;
    std::int64_t ldb = 0;
    float* c = nullptr;
    std::int64_t ldc = 0;
    bool accumulate = false;
    Causal causal = Causal::nothing;
    std::int64_t shift = 0;
};

/// The range of p.
struct TileDepth {
    std::int64_t begin = 0;
    std::int64_t end = 0;
};

/// kRows rows by two vectors (or one, where a target's vectors are as wide as the padding).
template <int kRows, int kVectors>
HWY_INLINE void tile_block(const TileGemm& g, std::int64_t row, std::int64_t column, const TileDepth& depth) {
    const FloatTag d;
    const std::int64_t step = lanes();
    FloatVec sum[kRows][kVectors];
    float* c = g.c + row * g.ldc + column;
    for (int r = 0; r < kRows; ++r) {
        for (int v = 0; v < kVectors; ++v) sum[r][v] = g.accumulate ? load(c + r * g.ldc + v * step) : hn::Zero(d);
    }
    const float* a = g.a + row * g.a_row;
    const float* b = g.b + column;
    for (std::int64_t p = depth.begin; p < depth.end; ++p) {
        FloatVec bv[kVectors];
        for (int v = 0; v < kVectors; ++v) bv[v] = load(b + p * g.ldb + v * step);
        for (int r = 0; r < kRows; ++r) {
            const auto av = hn::Set(d, a[r * g.a_row + p * g.a_column]);
            for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(av, bv[v], sum[r][v]);
        }
    }
    for (int r = 0; r < kRows; ++r) {
        for (int v = 0; v < kVectors; ++v) store(sum[r][v], c + r * g.ldc + v * step);
    }
}

/// The p that rows [row, row + rows) need; none if their outputs from `column` on are unseen.
HWY_INLINE TileDepth tile_depth(const TileGemm& g, std::int64_t row, std::int64_t rows, std::int64_t column) {
    switch (g.causal) {
        case Causal::nothing:
            break;
        case Causal::output:
            return {0, column <= row + rows - 1 + g.shift ? g.k : 0};
        case Causal::left:
            return {0, std::clamp<std::int64_t>(row + rows + g.shift, 0, g.k)};
        case Causal::left_transposed:
            return {std::clamp<std::int64_t>(row - g.shift, 0, g.k), g.k};
    }
    return {0, g.k};
}

template <int kRows, int kVectors>
HWY_INLINE void tile_rows(const TileGemm& g, std::int64_t row, std::int64_t column) {
    const TileDepth depth = tile_depth(g, row, kRows, column);
    if (depth.begin < depth.end || (!g.accumulate && g.causal != Causal::output)) {
        tile_block<kRows, kVectors>(g, row, column, depth);
    }
}

template <int kVectors>
HWY_INLINE void tile_columns(const TileGemm& g, std::int64_t column) {
    std::int64_t row = 0;
    for (; row + 6 <= g.m; row += 6) tile_rows<6, kVectors>(g, row, column);
    switch (g.m - row) {
        case 5:
            tile_rows<5, kVectors>(g, row, column);
            break;
        case 4:
            tile_rows<4, kVectors>(g, row, column);
            break;
        case 3:
            tile_rows<3, kVectors>(g, row, column);
            break;
        case 2:
            tile_rows<2, kVectors>(g, row, column);
            break;
        case 1:
            tile_rows<1, kVectors>(g, row, column);
            break;
        default:
            break;
    }
}

HWY_INLINE void tile_gemm(const TileGemm& g) {
    const std::int64_t step = lanes();
    std::int64_t column = 0;
    for (; column + 2 * step <= g.n; column += 2 * step) tile_columns<2>(g, column);
    for (; column < g.n; column += step) tile_columns<1>(g, column);
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif

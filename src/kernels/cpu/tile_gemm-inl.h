// Products of small f32 tiles that lie in cache, for attention; included once per Highway target.
#if defined(TESSERA_KERNELS_CPU_TILE_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_CPU_TILE_GEMM_INL_H_
#undef TESSERA_KERNELS_CPU_TILE_GEMM_INL_H_
#else
#define TESSERA_KERNELS_CPU_TILE_GEMM_INL_H_
#endif

#include <cstdint>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {

/// Columns of every packed tile are padded to this many floats: a whole number of vectors on every target.
inline constexpr std::int64_t kTilePadding = 16;

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
};

/// kRows rows by two vectors (or one, where a target's vectors are as wide as the padding).
template <int kRows, int kVectors>
HWY_INLINE void tile_block(const TileGemm& g, std::int64_t row, std::int64_t column) {
    const FloatTag d;
    const std::int64_t step = lanes();
    FloatVec sum[kRows][kVectors];
    float* c = g.c + row * g.ldc + column;
    for (int r = 0; r < kRows; ++r) {
        for (int v = 0; v < kVectors; ++v) sum[r][v] = g.accumulate ? load(c + r * g.ldc + v * step) : hn::Zero(d);
    }
    const float* a = g.a + row * g.a_row;
    const float* b = g.b + column;
    for (std::int64_t p = 0; p < g.k; ++p) {
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

template <int kVectors>
HWY_INLINE void tile_columns(const TileGemm& g, std::int64_t column) {
    std::int64_t row = 0;
    for (; row + 6 <= g.m; row += 6) tile_block<6, kVectors>(g, row, column);
    switch (g.m - row) {
        case 5:
            tile_block<5, kVectors>(g, row, column);
            break;
        case 4:
            tile_block<4, kVectors>(g, row, column);
            break;
        case 3:
            tile_block<3, kVectors>(g, row, column);
            break;
        case 2:
            tile_block<2, kVectors>(g, row, column);
            break;
        case 1:
            tile_block<1, kVectors>(g, row, column);
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

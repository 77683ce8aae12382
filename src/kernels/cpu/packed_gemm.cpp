#include "kernels/cpu/packed_gemm.h"

#include <omp.h>

#include <algorithm>

#include "kernels/cpu/parallel.h"

namespace tessera::kernels::cpu {
namespace {

/// A panel of 1024 x 128 floats lies in the second cache.
constexpr std::int64_t kPanelColumns = 128;
constexpr std::int64_t kPanelDepth = 1024;
constexpr std::int64_t kPanelFloats = kPanelColumns * kPanelDepth;
/// Rows of A up to which the library does not pack B itself.
constexpr std::int64_t kMostRows = 320;
constexpr std::int64_t kAliasedBytes = 4096;

}  // namespace

std::int64_t packing_floats(const GemmArgs& args) {
    const bool aliased = args.ldb * static_cast<std::int64_t>(sizeof(float)) % kAliasedBytes == 0;
    const bool plain = args.a_transpose == Transpose::no && args.b_transpose == Transpose::no;
    if (!plain || !aliased || args.m > kMostRows || args.n < 2 * kPanelColumns) return 0;
    return omp_get_max_threads() * kPanelFloats;
}

void packed_gemm(const GemmArgs& args, float* scratch) {
    const std::int64_t panels = (args.n + kPanelColumns - 1) / kPanelColumns;
    parallel_items(panels, args.m * args.k * kPanelColumns, [&](std::int64_t panel) {
        float* packed = scratch + core::thread_index() * kPanelFloats;
        const std::int64_t column = panel * kPanelColumns;
        const std::int64_t columns = std::min(kPanelColumns, args.n - column);
        for (std::int64_t begin = 0; begin < args.k; begin += kPanelDepth) {
            const std::int64_t depth = std::min(kPanelDepth, args.k - begin);
            for (std::int64_t row = 0; row < depth; ++row) {
                std::copy_n(args.b + (begin + row) * args.ldb + column, columns, packed + row * columns);
            }
            GemmArgs part = args;
            part.n = columns;
            part.k = depth;
            part.a = args.a + begin;
            part.b = packed;
            part.ldb = columns;
            part.beta = begin > 0 ? 1.0F : args.beta;
            part.c = args.c + column;
            gemm(part);
        }
    });
}

}  // namespace tessera::kernels::cpu

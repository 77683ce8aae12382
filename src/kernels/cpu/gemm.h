#pragma once
#include <cstdint>
#include <string>

namespace tessera::kernels::cpu {

/// Rows of a 16-bit weight that are widened at a time.
inline constexpr std::int64_t kPanelRows = 512;

enum class Transpose : std::uint8_t { no, yes };

/// Row-major f32 product C [m, n] = op(A) [m, k] · op(B) [k, n] + beta·C with leading dimensions in elements.
struct GemmArgs {
    Transpose a_transpose = Transpose::no;
    Transpose b_transpose = Transpose::no;
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;
    const float* a = nullptr;
    std::int64_t lda = 0;
    const float* b = nullptr;
    std::int64_t ldb = 0;
    float beta = 0;
    float* c = nullptr;
    std::int64_t ldc = 0;
};

/// The one place that knows the matrix library (oneDNN's sgemm; 3.x keeps the same call).
/// Throws EnvironmentError with the library's code.
void gemm(const GemmArgs& args);

/// "oneDNN 2.6.3"
std::string gemm_library();

}  // namespace tessera::kernels::cpu

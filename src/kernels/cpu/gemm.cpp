#include "kernels/cpu/gemm.h"

#include <dnnl.h>

#include "core/error.h"

namespace tessera::kernels::cpu {

void gemm(const GemmArgs& args) {
    if (args.m == 0 || args.n == 0) return;
    const dnnl_status_t status =
            dnnl_sgemm(args.a_transpose == Transpose::yes ? 'T' : 'N', args.b_transpose == Transpose::yes ? 'T' : 'N',
                       args.m, args.n, args.k, 1.0F, args.a, args.lda, args.b, args.ldb, args.beta, args.c, args.ldc);
    if (status != dnnl_success) {
        core::raise<core::EnvironmentError>("dnnl_sgemm of {} x {} x {} failed with status {}", args.m, args.n, args.k,
                                            static_cast<int>(status));
    }
}

std::string gemm_library() {
    const dnnl_version_t* version = dnnl_version();
    return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

}  // namespace tessera::kernels::cpu

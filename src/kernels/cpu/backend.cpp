#include "kernels/backend.h"

#include <omp.h>

#include "kernels/cpu/families.h"
#include "kernels/cpu/flat.h"
#include "kernels/cpu/gemm.h"

namespace tessera::kernels {
namespace {

class CpuBackend final : public Backend {
public:
    explicit CpuBackend(core::MemoryPool& memory)
        : Backend(memory),
          matmul_(cpu::make_matmul(memory)),
          norm_(cpu::make_norm(memory)),
          attention_(cpu::make_attention(memory)),
          embedding_(cpu::make_embedding()),
          loss_(cpu::make_loss()),
          optimizer_(cpu::make_optimizer()),
          reduction_(cpu::make_reduction()) {}

    core::DeviceType device() const override { return core::DeviceType::cpu; }
    MatmulKernels& matmul() override { return *matmul_; }
    NormKernels& norm() override { return *norm_; }
    AttentionKernels& attention() override { return *attention_; }
    EmbeddingKernels& embedding() override { return *embedding_; }
    LossKernels& loss() override { return *loss_; }
    OptimizerKernels& optimizer() override { return *optimizer_; }
    ReductionKernels& reduction() override { return *reduction_; }
    double modelled_seconds(const Cost& /*cost*/) const override { return 0; }
    std::string description() const override {
        return fmt::format("cpu: {}, Highway {}, {} threads", cpu::gemm_library(), cpu::vector_target(),
                           omp_get_max_threads());
    }

private:
    std::unique_ptr<MatmulKernels> matmul_;
    std::unique_ptr<NormKernels> norm_;
    std::unique_ptr<AttentionKernels> attention_;
    std::unique_ptr<EmbeddingKernels> embedding_;
    std::unique_ptr<LossKernels> loss_;
    std::unique_ptr<OptimizerKernels> optimizer_;
    std::unique_ptr<ReductionKernels> reduction_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(core::MemoryPool& pool) {
    TESSERA_INVARIANT(pool.device() == core::DeviceType::cpu);
    return std::make_unique<CpuBackend>(pool);
}

}  // namespace tessera::kernels

#pragma once
#include <memory>

#include "kernels/backend.h"

namespace tessera::kernels::cpu {

std::unique_ptr<MatmulKernels> make_matmul(core::MemoryPool& pool);
std::unique_ptr<NormKernels> make_norm(core::MemoryPool& pool);
std::unique_ptr<AttentionKernels> make_attention(core::MemoryPool& pool);
std::unique_ptr<EmbeddingKernels> make_embedding();
std::unique_ptr<LossKernels> make_loss();
std::unique_ptr<OptimizerKernels> make_optimizer();
std::unique_ptr<ReductionKernels> make_reduction();

}  // namespace tessera::kernels::cpu

#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "kernels/loss.h"

namespace tessera::kernels::cpu {

/// Raw operands of the cross entropy (kernels/loss.h). Targets have been checked.
struct LossRows {
    core::DType dtype = core::DType::f32;
    std::int64_t tokens = 0;
    std::int64_t columns = 0;  ///< Vp, padding included
    std::int64_t num_valid = 0;
    std::int64_t vocab_begin = 0;
    void* logits = nullptr;
    const std::int32_t* targets = nullptr;
    float* maximum = nullptr;
    float* sum_exp = nullptr;
    float* target_logit = nullptr;
    float* losses = nullptr;
    float grad_scale = 1;
    CrossEntropyMode mode = CrossEntropyMode::losses_and_gradient;
};
void loss_rows_statistics(const LossRows& args);
void loss_rows_finish(const LossRows& args);

}  // namespace tessera::kernels::cpu

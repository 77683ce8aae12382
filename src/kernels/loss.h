#pragma once
#include "core/tensor.h"

namespace tessera::kernels {

class Backend;

/// Local part of a (vocab-parallel) cross entropy over the true vocabulary: for each token, over the local columns that
/// are real, maximum [T], sum_exp [T] = Σ exp(logit - maximum), target_logit [T] (0 if the target is not on this rank),
/// all f32. logits [T, Vp] of a floating dtype; columns >= num_valid (padding) take no part. targets [T] i32 are global
/// ids, -1 = no loss; this rank holds ids vocab_begin .. vocab_begin + num_valid - 1. Throws DataError if a target is
/// >= vocab_size (the global true vocabulary) or < -1.
struct CrossEntropyStatisticsArgs {
    const core::Tensor& logits;
    const core::Tensor& targets;
    std::int64_t vocab_begin = 0;
    std::int64_t num_valid = 0;
    std::int64_t vocab_size = 0;
    core::Tensor& maximum;
    core::Tensor& sum_exp;
    core::Tensor& target_logit;
};

/// losses [T] f32 = log(sum_exp) + maximum - target_logit (0 where the target is -1), and in place of the logits their
/// gradient: (softmax - onehot)·grad_scale for real columns of tokens with a loss, 0 elsewhere (padding columns too).
/// The statistics are the global ones. grad_scale = loss_scale / loss tokens of the global batch.
/// mode losses_only leaves the logits alone (evaluation).
enum class CrossEntropyMode : std::uint8_t { losses_and_gradient, losses_only };
struct CrossEntropyFinishArgs {
    CrossEntropyMode mode = CrossEntropyMode::losses_and_gradient;
    core::Tensor& logits;
    const core::Tensor& targets;
    std::int64_t vocab_begin = 0;
    std::int64_t num_valid = 0;
    const core::Tensor& maximum;
    const core::Tensor& sum_exp;
    const core::Tensor& target_logit;
    float grad_scale = 1;
    core::Tensor& losses;
};

class LossKernels {
public:
    virtual ~LossKernels() = default;
    virtual void cross_entropy_statistics(const CrossEntropyStatisticsArgs& args) = 0;
    virtual void cross_entropy_finish(const CrossEntropyFinishArgs& args) = 0;
};

void cross_entropy_statistics(Backend& backend, core::Stream& stream, const CrossEntropyStatisticsArgs& args);
void cross_entropy_finish(Backend& backend, core::Stream& stream, const CrossEntropyFinishArgs& args);

}  // namespace tessera::kernels

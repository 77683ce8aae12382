#pragma once
#include "layers/context.h"
#include "layers/parameter.h"

namespace tessera::layers {

/// y [T, D] = dropout(word[token] + position[position]), the rows of `word` split over tensor ranks.
class VocabParallelEmbedding {
public:
    /// word [Vp, D]; positions [S, D] or null (rotary models).
    VocabParallelEmbedding(ParameterUnit& unit, Parameter& word, Parameter* positions)
        : unit_(&unit), word_(&word), positions_(positions) {}
    Var forward(const ForwardContext& ctx, const core::Tensor& tokens, double dropout) const;

private:
    ParameterUnit* unit_;
    Parameter* word_;
    Parameter* positions_;
};

/// Cross entropy over the true vocabulary. Writes the logits' gradient in their place when there is a tape and starts
/// backward with it. Returns each token's loss, [T] f32 (0 where the target is -1).
/// grad_scale = loss_scale / loss tokens of the global batch.
core::Tensor vocab_parallel_cross_entropy(const ForwardContext& ctx, const Var& logits, const core::Tensor& targets,
                                          std::int64_t vocab_size, double grad_scale);

}  // namespace tessera::layers

#include "layers/embedding.h"

#include "layers/dropout_sites.h"

namespace tessera::layers {
namespace {

using core::Tensor;

/// Saves the token ids; its only gradient is the weights', a second half.
class EmbeddingNode : public Node {
public:
    EmbeddingNode(Parameter& word, Parameter* positions, Tensor tokens, kernels::TokenMap map, kernels::Dropout dropout,
                  std::int64_t y)
        : word_(word),
          positions_(positions),
          tokens_(std::move(tokens)),
          map_(std::move(map)),
          dropout_(dropout),
          y_(y) {}
    std::string_view name() const override { return "embedding"; }
    void saved(std::vector<Tensor>& out) const override { out.push_back(tokens_); }
    void backward(Tape& tape) override {
        const Tensor dy = tape.take_gradient(y_);
        TESSERA_INVARIANT(dy.defined());
        tape.weight_gradient(
                {tokens_, dy}, [&word = word_, positions = positions_, map = map_, dropout = dropout_,
                                &backend = tape.backend(), &stream = tape.stream()](const std::vector<Tensor>& inputs) {
                    kernels::embedding_backward(backend, stream,
                                                {.tokens = inputs[0],
                                                 .map = map,
                                                 .dropout = dropout,
                                                 .dy = inputs[1],
                                                 .dword = word.main_grad(),
                                                 .dpositions = positions ? &positions->main_grad() : nullptr});
                });
    }

private:
    Parameter& word_;
    Parameter* positions_;
    Tensor tokens_;
    kernels::TokenMap map_;
    kernels::Dropout dropout_;
    std::int64_t y_;
};

/// Keeps the gradient that the forward wrote in place of the logits.
class CrossEntropyNode : public Node {
public:
    CrossEntropyNode(Tensor gradient, std::int64_t logits) : gradient_(std::move(gradient)), logits_(logits) {}
    std::string_view name() const override { return "cross_entropy"; }
    void saved(std::vector<Tensor>& out) const override { out.push_back(gradient_); }
    void backward(Tape& tape) override { tape.add_gradient(logits_, std::move(gradient_)); }

private:
    Tensor gradient_;
    std::int64_t logits_;
};

}  // namespace

Var VocabParallelEmbedding::forward(const ForwardContext& ctx, const Tensor& tokens, double probability) const {
    const ParameterLease lease(*unit_, ctx.stream);
    Var y = ctx.output(ctx.empty({tokens.size(0), word_->shape()[1]}, word_->value().dtype()));
    const kernels::Dropout dropout{.probability = ctx.mode == Mode::train ? static_cast<float>(probability) : 0.0F,
                                   .seed = ctx.seed,
                                   .site = dropout_site(kEmbeddingLayer, DropoutPlace::embedding)};
    kernels::embedding_forward(ctx.backend, ctx.stream,
                               {.tokens = tokens,
                                .word = word_->value(),
                                .positions = positions_ ? &positions_->value() : nullptr,
                                .map = ctx.tokens,
                                .dropout = dropout,
                                .y = y.value});
    if (ctx.tape) {
        ctx.tape->record(std::make_unique<EmbeddingNode>(*word_, positions_, tokens, ctx.tokens, dropout, y.id));
    }
    return y;
}

Tensor vocab_parallel_cross_entropy(const ForwardContext& ctx, const Var& logits, const Tensor& targets,
                                    std::int64_t vocab_size, double grad_scale) {
    const std::int64_t tokens = logits.value.size(0);
    Tensor maximum = ctx.empty({tokens}, core::DType::f32, core::MemoryCategory::workspace);
    Tensor sum_exp = ctx.empty({tokens}, core::DType::f32, core::MemoryCategory::workspace);
    Tensor target_logit = ctx.empty({tokens}, core::DType::f32, core::MemoryCategory::workspace);
    Tensor losses = ctx.empty({tokens}, core::DType::f32, core::MemoryCategory::workspace);
    kernels::cross_entropy_statistics(ctx.backend, ctx.stream,
                                      {.logits = logits.value,
                                       .targets = targets,
                                       .vocab_begin = 0,
                                       .num_valid = vocab_size,
                                       .vocab_size = vocab_size,
                                       .maximum = maximum,
                                       .sum_exp = sum_exp,
                                       .target_logit = target_logit});
    Tensor gradient = logits.value;
    ctx.check_overwrite(gradient);
    kernels::cross_entropy_finish(
            ctx.backend, ctx.stream,
            {.mode = ctx.tape ? kernels::CrossEntropyMode::losses_and_gradient : kernels::CrossEntropyMode::losses_only,
             .logits = gradient,
             .targets = targets,
             .vocab_begin = 0,
             .num_valid = vocab_size,
             .maximum = maximum,
             .sum_exp = sum_exp,
             .target_logit = target_logit,
             .grad_scale = static_cast<float>(grad_scale),
             .losses = losses});
    if (ctx.tape) ctx.tape->record(std::make_unique<CrossEntropyNode>(std::move(gradient), logits.id));
    return losses;
}

}  // namespace tessera::layers

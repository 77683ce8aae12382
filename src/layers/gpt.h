#pragma once
#include <memory>
#include <vector>

#include "layers/attention.h"
#include "layers/embedding.h"
#include "layers/linear.h"
#include "layers/model_config.h"
#include "layers/norm.h"

namespace tessera::layers {

/// One transformer block, pre-norm; owns one parameter unit.
///   h = norm1(x);  a = proj(attention(qkv(h)));  (h, r) = norm2(x + dropout(a + b));  x' = r + dropout(mlp(h) + b)
class TransformerLayer {
public:
    TransformerLayer(const ModelConfig& config, std::int64_t index);
    Var forward(const ForwardContext& ctx, const Var& x) const;
    ParameterUnit& unit() const { return *unit_; }

private:
    ModelConfig config_;
    std::int64_t index_;
    std::unique_ptr<ParameterUnit> unit_;
    NormParameters input_norm_;
    NormParameters post_attention_norm_;
    std::unique_ptr<ColumnParallelLinear> qkv_;
    std::unique_ptr<RowParallelLinear> projection_;
    Parameter* projection_bias_ = nullptr;
    std::unique_ptr<ColumnParallelLinear> fc1_;
    std::unique_ptr<RowParallelLinear> fc2_;
    Parameter* fc2_bias_ = nullptr;
};

/// A GPT of the GPT-2 or Llama family: embedding, blocks, final norm, head (tied to the embedding or its own).
class Gpt {
public:
    /// Throws ConfigError if the sizes do not fit together.
    explicit Gpt(const ModelConfig& config);

    const ModelConfig& config() const { return config_; }
    /// Embedding (with a tied head), one per layer, then the final norm (with an untied head).
    const std::vector<ParameterUnit*>& units() const { return units_; }

    /// tokens [T] i32 -> residual stream after the final norm, [T, D].
    Var forward(const ForwardContext& ctx, const core::Tensor& tokens) const;
    /// hidden [T, D] -> logits [T, Vp]; columns from vocab_size on are padding.
    Var logits(const ForwardContext& ctx, const Var& hidden) const;
    /// Each token's loss, [T] f32; with a tape, backward can start.
    core::Tensor loss(const ForwardContext& ctx, const core::Tensor& tokens, const core::Tensor& targets,
                      double grad_scale) const;

    /// An empty cache for one sequence of at most `capacity` tokens.
    KvCache make_cache(kernels::Backend& backend, std::int64_t capacity) const;

private:
    ModelConfig config_;
    std::unique_ptr<ParameterUnit> embedding_unit_;
    std::unique_ptr<VocabParallelEmbedding> embedding_;
    std::vector<std::unique_ptr<TransformerLayer>> layers_;
    std::unique_ptr<ParameterUnit> output_unit_;
    NormParameters final_norm_;
    std::unique_ptr<ColumnParallelLinear> head_;
    std::vector<ParameterUnit*> units_;
};

}  // namespace tessera::layers

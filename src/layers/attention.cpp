#include "layers/attention.h"

#include <cmath>

#include "layers/dropout_sites.h"

namespace tessera::layers {
namespace {

using core::Tensor;

kernels::HeadLayout head_layout(const ModelConfig& config) {
    return {.num_heads = config.num_attention_heads,
            .num_kv_heads = config.num_kv_heads,
            .head_dim = config.head_dim()};
}

/// Saves nothing: the rotation is undone by its transpose.
class RotaryNode : public Node {
public:
    RotaryNode(const ModelConfig& config, kernels::TokenMap tokens, std::int64_t in, std::int64_t out)
        : heads_(head_layout(config)), theta_(config.rope_theta), tokens_(std::move(tokens)), in_(in), out_(out) {}
    std::string_view name() const override { return "rotary"; }
    void saved(std::vector<Tensor>& /*out*/) const override {}
    void backward(Tape& tape) override {
        Tensor gradient = tape.take_gradient(out_);
        kernels::rotary(tape.backend(), tape.stream(),
                        {.heads = heads_,
                         .theta = theta_,
                         .direction = kernels::RotaryDirection::backward,
                         .tokens = tokens_,
                         .qkv = gradient});
        tape.add_gradient(in_, std::move(gradient));
    }

private:
    kernels::HeadLayout heads_;
    double theta_;
    kernels::TokenMap tokens_;
    std::int64_t in_;
    std::int64_t out_;
};

/// Saves qkv, the output and log-sum-exp of each row: probabilities are computed again tile by tile.
class AttentionNode : public Node {
public:
    AttentionNode(kernels::HeadLayout heads, float scale, kernels::Dropout dropout, kernels::TokenMap tokens, Var qkv,
                  const Var& out, Tensor lse)
        : heads_(heads),
          scale_(scale),
          dropout_(dropout),
          tokens_(std::move(tokens)),
          qkv_(std::move(qkv)),
          out_value_(out.value),
          out_(out.id),
          lse_(std::move(lse)) {}
    std::string_view name() const override { return "attention"; }
    void saved(std::vector<Tensor>& out) const override {
        out.push_back(qkv_.value);
        out.push_back(out_value_);
        out.push_back(lse_);
    }
    void backward(Tape& tape) override {
        const Tensor dout = tape.take_gradient(out_);
        TESSERA_INVARIANT(dout.defined());
        Tensor dqkv = tape.empty_like(qkv_.value);
        kernels::attention_backward(tape.backend(), tape.stream(),
                                    {.heads = heads_,
                                     .scale = scale_,
                                     .tokens = tokens_,
                                     .dropout = dropout_,
                                     .qkv = qkv_.value,
                                     .out = out_value_,
                                     .lse = lse_,
                                     .dout = dout,
                                     .dqkv = dqkv});
        tape.add_gradient(qkv_.id, std::move(dqkv));
    }

private:
    kernels::HeadLayout heads_;
    float scale_;
    kernels::Dropout dropout_;
    kernels::TokenMap tokens_;
    Var qkv_;
    Tensor out_value_;
    std::int64_t out_;
    Tensor lse_;
};

}  // namespace

Var self_attention(const ForwardContext& ctx, const ModelConfig& config, std::int64_t layer, const Var& packed) {
    const kernels::HeadLayout heads = head_layout(config);
    const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(heads.head_dim)));
    Var qkv = packed;
    if (config.family == Family::llama) {
        ctx.check_overwrite(packed.value);
        qkv = ctx.output(packed.value);
        kernels::rotary(ctx.backend, ctx.stream,
                        {.heads = heads, .theta = config.rope_theta, .tokens = ctx.tokens, .qkv = qkv.value});
        if (ctx.tape) ctx.tape->record(std::make_unique<RotaryNode>(config, ctx.tokens, packed.id, qkv.id));
    }
    const std::int64_t tokens = qkv.value.size(0);
    Var out = ctx.output(ctx.empty({tokens, heads.num_heads * heads.head_dim}, qkv.value.dtype()));
    if (ctx.cache) {
        KvCache::Layer& cached = ctx.cache->layers.at(static_cast<std::size_t>(layer));
        kernels::cached_attention(ctx.backend, ctx.stream,
                                  {.heads = heads,
                                   .scale = scale,
                                   .past = ctx.cache->length,
                                   .qkv = qkv.value,
                                   .k_cache = cached.keys,
                                   .v_cache = cached.values,
                                   .out = out.value});
        return out;
    }
    const kernels::Dropout dropout{
            .probability = ctx.mode == Mode::train ? static_cast<float>(config.attention_dropout) : 0.0F,
            .seed = ctx.seed,
            .site = dropout_site(layer, DropoutPlace::attention_probabilities)};
    Tensor lse;
    if (ctx.tape) lse = ctx.empty({heads.num_heads, tokens}, core::DType::f32);
    kernels::attention_forward(ctx.backend, ctx.stream,
                               {.heads = heads,
                                .scale = scale,
                                .tokens = ctx.tokens,
                                .dropout = dropout,
                                .qkv = qkv.value,
                                .out = out.value,
                                .lse = lse.defined() ? &lse : nullptr});
    if (ctx.tape) {
        ctx.tape->record(std::make_unique<AttentionNode>(heads, scale, dropout, ctx.tokens, qkv, out, std::move(lse)));
    }
    return out;
}

}  // namespace tessera::layers

#include "layers/gpt.h"

#include <cmath>

#include "layers/dropout_sites.h"

namespace tessera::layers {
namespace {

using core::Shape;
using kernels::Epilogue;

LogicalSlice whole(std::string name, Shape shape, std::int64_t local_row = 0) {
    const std::int64_t columns = shape.rank() > 1 ? shape[1] : 1;
    return {.name = std::move(name),
            .global_shape = shape,
            .rows = shape[0],
            .columns = columns,
            .local_row = local_row};
}

NormParameters add_norm(ParameterUnit& unit, const ModelConfig& config, const std::string& name) {
    const Shape shape{config.hidden_size};
    NormParameters norm{.unit = &unit, .eps = static_cast<float>(config.norm_eps)};
    norm.gamma = &unit.add(shape, {whole(name + ".weight", shape)}, WeightDecay::none, Initialisation::ones);
    if (config.family == Family::gpt2) {
        norm.beta = &unit.add(shape, {whole(name + ".bias", shape)}, WeightDecay::none, Initialisation::zeros);
    } else {
        norm.kind = kernels::NormKind::rms;
    }
    return norm;
}

Parameter& add_matrix(ParameterUnit& unit, Shape shape, std::vector<LogicalSlice> slices, double std) {
    return unit.add(shape, std::move(slices), WeightDecay::apply, Initialisation::normal, std);
}

Parameter* add_bias(ParameterUnit& unit, const ModelConfig& config, Shape shape, std::vector<LogicalSlice> slices) {
    if (config.family == Family::llama) return nullptr;
    return &unit.add(shape, std::move(slices), WeightDecay::none, Initialisation::zeros);
}

void check_divides(const char* what, std::int64_t value, const char* by, std::int64_t divisor) {
    if (divisor <= 0 || value % divisor != 0) {
        core::raise<core::ConfigError>("{} {} is not divisible by {} {}", what, value, by, divisor);
    }
}

}  // namespace

TransformerLayer::TransformerLayer(const ModelConfig& config, std::int64_t index)
    : config_(config), index_(index), unit_(std::make_unique<ParameterUnit>("layers." + std::to_string(index))) {
    const std::string prefix = unit_->name() + ".";
    const std::int64_t d = config.hidden_size;
    const std::int64_t q = config.num_attention_heads * config.head_dim();
    const std::int64_t kv = config.num_kv_heads * config.head_dim();
    const std::int64_t f = config.ffn_hidden_size;
    const double output_std = config.init_std / std::sqrt(2.0 * static_cast<double>(config.num_layers));

    input_norm_ = add_norm(*unit_, config, prefix + "input_norm");
    auto qkv_slices = [&](const char* kind, bool matrix) {
        auto shape = [&](std::int64_t rows) { return matrix ? Shape{rows, d} : Shape{rows}; };
        return std::vector<LogicalSlice>{whole(prefix + "attention.query." + kind, shape(q), 0),
                                         whole(prefix + "attention.key." + kind, shape(kv), q),
                                         whole(prefix + "attention.value." + kind, shape(kv), q + kv)};
    };
    Parameter& qkv = add_matrix(*unit_, {q + 2 * kv, d}, qkv_slices("weight", true), config.init_std);
    qkv_ = std::make_unique<ColumnParallelLinear>(*unit_, qkv,
                                                  add_bias(*unit_, config, {q + 2 * kv}, qkv_slices("bias", false)));
    projection_ = std::make_unique<RowParallelLinear>(
            *unit_, add_matrix(*unit_, {d, q}, {whole(prefix + "attention.projection.weight", {d, q})}, output_std));
    projection_bias_ = add_bias(*unit_, config, {d}, {whole(prefix + "attention.projection.bias", {d})});

    post_attention_norm_ = add_norm(*unit_, config, prefix + "post_attention_norm");
    if (config.family == Family::gpt2) {
        Parameter& fc1 = add_matrix(*unit_, {f, d}, {whole(prefix + "mlp.fc1.weight", {f, d})}, config.init_std);
        fc1_ = std::make_unique<ColumnParallelLinear>(
                *unit_, fc1, add_bias(*unit_, config, {f}, {whole(prefix + "mlp.fc1.bias", {f})}));
    } else {
        Parameter& gate_up =
                add_matrix(*unit_, {2 * f, d},
                           {whole(prefix + "mlp.gate.weight", {f, d}, 0), whole(prefix + "mlp.up.weight", {f, d}, f)},
                           config.init_std);
        fc1_ = std::make_unique<ColumnParallelLinear>(*unit_, gate_up, nullptr);
    }
    fc2_ = std::make_unique<RowParallelLinear>(
            *unit_, add_matrix(*unit_, {d, f}, {whole(prefix + "mlp.fc2.weight", {d, f})}, output_std));
    fc2_bias_ = add_bias(*unit_, config, {d}, {whole(prefix + "mlp.fc2.bias", {d})});
}

Var TransformerLayer::forward(const ForwardContext& ctx, const Var& x) const {
    const bool gpt2 = config_.family == Family::gpt2;
    const Var qkv = qkv_->forward(ctx, norm(ctx, input_norm_, x), gpt2 ? Epilogue::bias : Epilogue::none);
    const ResidualOutput attended =
            bias_dropout_residual_norm(ctx,
                                       {.x = projection_->forward(ctx, self_attention(ctx, config_, index_, qkv)),
                                        .unit = unit_.get(),
                                        .bias = projection_bias_,
                                        .residual = x,
                                        .dropout = config_.hidden_dropout,
                                        .site = dropout_site(index_, DropoutPlace::attention_output)},
                                       &post_attention_norm_);
    const Var mlp = fc2_->forward(ctx, fc1_->forward(ctx, attended.y, gpt2 ? Epilogue::bias_gelu : Epilogue::swiglu));
    return bias_dropout_residual_norm(ctx,
                                      {.x = mlp,
                                       .unit = unit_.get(),
                                       .bias = fc2_bias_,
                                       .residual = attended.residual,
                                       .dropout = config_.hidden_dropout,
                                       .site = dropout_site(index_, DropoutPlace::mlp_output)},
                                      nullptr)
            .residual;
}

Gpt::Gpt(const ModelConfig& config) : config_(config) {
    check_divides("hidden_size", config.hidden_size, "num_attention_heads", config.num_attention_heads);
    check_divides("num_attention_heads", config.num_attention_heads, "num_kv_heads", config.num_kv_heads);
    if (config.family == Family::llama) check_divides("head_dim (rotary turns pairs)", config.head_dim(), "", 2);
    const std::int64_t d = config.hidden_size;
    const Shape word_shape{config.vocab_size, d};
    const Shape padded_shape{config.padded_vocab_size(), d};

    embedding_unit_ = std::make_unique<ParameterUnit>("embedding");
    Parameter& word =
            add_matrix(*embedding_unit_, padded_shape, {whole("embedding.word.weight", word_shape)}, config.init_std);
    Parameter* positions = nullptr;
    if (config.family == Family::gpt2) {
        const Shape shape{config.seq_length, d};
        positions = &add_matrix(*embedding_unit_, shape, {whole("embedding.position.weight", shape)}, config.init_std);
    }
    embedding_ = std::make_unique<VocabParallelEmbedding>(*embedding_unit_, word, positions);
    units_.push_back(embedding_unit_.get());

    for (std::int64_t index = 0; index < config.num_layers; ++index) {
        layers_.push_back(std::make_unique<TransformerLayer>(config, index));
        units_.push_back(&layers_.back()->unit());
    }

    output_unit_ = std::make_unique<ParameterUnit>("output");
    final_norm_ = add_norm(*output_unit_, config, "final_norm");
    if (config.tie_embeddings) {
        head_ = std::make_unique<ColumnParallelLinear>(*embedding_unit_, word, nullptr, config.vocab_size);
    } else {
        Parameter& head = add_matrix(*output_unit_, padded_shape, {whole("head.weight", word_shape)}, config.init_std);
        head_ = std::make_unique<ColumnParallelLinear>(*output_unit_, head, nullptr, config.vocab_size);
    }
    units_.push_back(output_unit_.get());
}

Var Gpt::forward(const ForwardContext& ctx, const core::Tensor& tokens) const {
    Var x = embedding_->forward(ctx, tokens, config_.hidden_dropout);
    for (const auto& layer : layers_) x = layer->forward(ctx, x);
    return norm(ctx, final_norm_, x);
}

Var Gpt::logits(const ForwardContext& ctx, const Var& hidden) const {
    return head_->forward(ctx, hidden, Epilogue::none, core::MemoryCategory::logits);
}

core::Tensor Gpt::loss(const ForwardContext& ctx, const core::Tensor& tokens, const core::Tensor& targets,
                       double grad_scale) const {
    return vocab_parallel_cross_entropy(ctx, logits(ctx, forward(ctx, tokens)), targets, config_.vocab_size,
                                        grad_scale);
}

KvCache Gpt::make_cache(kernels::Backend& backend, std::int64_t capacity) const {
    KvCache cache{.layers = {}, .capacity = capacity, .length = 0};
    const Shape shape{capacity, config_.num_kv_heads * config_.head_dim()};
    for (std::int64_t layer = 0; layer < config_.num_layers; ++layer) {
        cache.layers.push_back(
                {core::Tensor::empty(backend.pool(), shape, config_.dtype, core::MemoryCategory::buffers),
                 core::Tensor::empty(backend.pool(), shape, config_.dtype, core::MemoryCategory::buffers)});
    }
    return cache;
}

}  // namespace tessera::layers

#include "train/settings.h"

namespace tessera::train {

EngineSettings engine_settings(const Config& config) {
    EngineSettings settings;
    settings.model = {.family = config.model.family == ModelFamily::gpt2 ? layers::Family::gpt2 : layers::Family::llama,
                      .num_layers = config.model.num_layers,
                      .hidden_size = config.model.hidden_size,
                      .num_attention_heads = config.model.num_attention_heads,
                      .num_kv_heads = config.model.num_kv_heads,
                      .ffn_hidden_size = config.model.ffn_hidden_size,
                      .seq_length = config.model.seq_length,
                      .vocab_size = config.model.vocab_size,
                      .tie_embeddings = config.model.tie_embeddings,
                      .norm_eps = config.model.norm_eps,
                      .hidden_dropout = config.model.hidden_dropout,
                      .attention_dropout = config.model.attention_dropout,
                      .rope_theta = config.model.rope_theta,
                      .init_std = config.model.init_std,
                      .dtype = config.precision.dtype};
    settings.optimizer = {.beta1 = config.optimizer.betas[0],
                          .beta2 = config.optimizer.betas[1],
                          .eps = config.optimizer.eps,
                          .weight_decay = config.optimizer.weight_decay,
                          .clip_grad_norm = config.optimizer.clip_grad_norm};
    if (config.precision.dtype == core::DType::f16) {
        const LossScale& scale = config.precision.loss_scale;
        settings.loss_scaler = {.dynamic = scale.dynamic,
                                .initial = scale.dynamic ? config.precision.initial_loss_scale : scale.value,
                                .minimum = 1,
                                .window = config.precision.loss_scale_window,
                                .hysteresis = config.precision.hysteresis};
    }
    settings.seed = static_cast<std::uint64_t>(config.run.seed);
    settings.document_mask = config.data.document_mask ? DocumentMask::on : DocumentMask::off;
    return settings;
}

}  // namespace tessera::train

#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "train/config.h"
#include "train/config_names.h"

// The one list of config keys. Parsing, range checks, suggestions, saving and the reference are visitors of it; a new
// key is one entry here and one member in config.h. Internal to src/train.

namespace tessera::train {

enum class FieldKind : std::uint8_t { value, path, resume_spec };
enum class Presence : std::uint8_t { optional, required };
/// A setting whose other values belong to a later version: they are refused by name.
enum class Availability : std::uint8_t { every_value, default_only };

struct Field {
    std::string_view section;
    std::string_view key;
    std::string_view doc;
    double min = -std::numeric_limits<double>::infinity();
    double max = std::numeric_limits<double>::infinity();
    bool min_excluded = false;
    bool max_excluded = false;
    Presence presence = Presence::optional;
    Availability availability = Availability::every_value;
    FieldKind kind = FieldKind::value;
    std::string_view default_text{};           ///< for the reference, where the default is derived
    std::string_view planned{};                ///< comma-separated values that a later version accepts
    bool (*applies)(const Config&) = nullptr;  ///< null: always
    std::string_view applies_when{};

    std::string name() const { return std::string(section) + "." + std::string(key); }
};

/// Sizes must fit 32-bit indices of kernels and libraries.
inline constexpr double kMaxSize = 2147483647.0;

template <typename R, typename V>
void visit_run(R& run, V& visit) {
    visit(Field{.section = "run", .key = "name", .doc = "name of the run", .default_text = "the config file's name"},
          run.name);
    visit(Field{.section = "run",
                .key = "directory",
                .doc = "folder for everything the run leaves",
                .kind = FieldKind::path,
                .default_text = "`runs/NAME` beside the config file"},
          run.directory);
    visit(Field{.section = "run", .key = "seed", .doc = "key of every random number", .min = 0}, run.seed);
    visit(Field{.section = "run",
                .key = "train_steps",
                .doc = "optimizer steps of the run; give this or train_tokens",
                .min = 1,
                .default_text = "required, or train_tokens"},
          run.train_steps);
    visit(Field{.section = "run",
                .key = "train_tokens",
                .doc = "tokens of the run, rounded up to whole steps",
                .min = 1,
                .default_text = "required, or train_steps"},
          run.train_tokens);
}

template <typename M, typename V>
void visit_model_sizes(M& model, V& visit) {
    visit(Field{.section = "model",
                .key = "family",
                .doc = "gpt2: learned positions, LayerNorm, GELU, biases; llama: rotary, RMSNorm, SwiGLU, no biases"},
          model.family);
    visit(Field{.section = "model",
                .key = "num_layers",
                .doc = "transformer layers",
                .min = 1,
                .max = kMaxSize,
                .presence = Presence::required},
          model.num_layers);
    visit(Field{.section = "model",
                .key = "hidden_size",
                .doc = "width of the model",
                .min = 1,
                .max = kMaxSize,
                .presence = Presence::required},
          model.hidden_size);
    visit(Field{.section = "model",
                .key = "num_attention_heads",
                .doc = "query heads; must divide hidden_size",
                .min = 1,
                .max = kMaxSize,
                .presence = Presence::required},
          model.num_attention_heads);
    visit(Field{.section = "model",
                .key = "num_kv_heads",
                .doc = "key and value heads (grouped-query attention); must divide num_attention_heads",
                .min = 1,
                .max = kMaxSize,
                .default_text = "num_attention_heads"},
          model.num_kv_heads);
    visit(Field{.section = "model",
                .key = "ffn_hidden_size",
                .doc = "inner width of the feed-forward layer",
                .min = 1,
                .max = kMaxSize,
                .default_text = "gpt2: 4 hidden_size; llama: 8/3 hidden_size rounded up to a multiple of 64"},
          model.ffn_hidden_size);
    visit(Field{.section = "model",
                .key = "seq_length",
                .doc = "tokens of a sample",
                .min = 1,
                .max = kMaxSize,
                .presence = Presence::required},
          model.seq_length);
    visit(Field{.section = "model",
                .key = "vocab_size",
                .doc = "true vocabulary; padding is added inside and never trained or saved",
                .min = 1,
                .max = kMaxSize,
                .default_text = "the tokenizer's or the shards'"},
          model.vocab_size);
}

template <typename M, typename V>
void visit_model_numbers(M& model, V& visit) {
    visit(Field{.section = "model", .key = "norm_eps", .doc = "added to the variance", .min = 0, .min_excluded = true},
          model.norm_eps);
    visit(Field{.section = "model",
                .key = "hidden_dropout",
                .doc = "probability of dropping an element of a residual branch or the embedding",
                .min = 0,
                .max = 1,
                .max_excluded = true},
          model.hidden_dropout);
    visit(Field{.section = "model",
                .key = "attention_dropout",
                .doc = "probability of dropping an attention weight",
                .min = 0,
                .max = 1,
                .max_excluded = true},
          model.attention_dropout);
    visit(Field{.section = "model",
                .key = "tie_embeddings",
                .doc = "the output head shares the embedding's matrix",
                .default_text = "gpt2: true; llama: false"},
          model.tie_embeddings);
    visit(Field{.section = "model",
                .key = "rope_theta",
                .doc = "base of the rotary frequencies",
                .min = 0,
                .min_excluded = true,
                .applies = [](const Config& config) { return config.model.family == ModelFamily::llama; },
                .applies_when = "with model.family = \"llama\""},
          model.rope_theta);
    visit(Field{.section = "model",
                .key = "init_std",
                .doc = "standard deviation of initial weights; output projections divide it by sqrt(2 num_layers)",
                .min = 0},
          model.init_std);
}

template <typename D, typename B, typename V>
void visit_data(D& data, B& batch, V& visit) {
    visit(Field{.section = "data",
                .key = "train",
                .doc = "token shards: a path, or a list of paths and {path, weight} tables",
                .presence = Presence::required},
          data.train);
    visit(Field{.section = "data",
                .key = "validation",
                .doc = "as train, for evaluation",
                .default_text = "no evaluation"},
          data.validation);
    visit(Field{.section = "data",
                .key = "tokenizer",
                .doc = "SentencePiece model; needed for bits per byte and generation",
                .kind = FieldKind::path,
                .default_text = "none"},
          data.tokenizer);
    visit(Field{.section = "data", .key = "document_mask", .doc = "tokens attend only inside their own document"},
          data.document_mask);
    visit(Field{.section = "data",
                .key = "tokens_dataset",
                .doc = "name of the HDF5 dataset with the tokens, for shards that others wrote"},
          data.tokens_dataset);
    visit(Field{.section = "batch",
                .key = "global_batch_size",
                .doc = "samples per optimizer step",
                .min = 1,
                .max = kMaxSize,
                .presence = Presence::required},
          batch.global_batch_size);
    visit(Field{.section = "batch",
                .key = "micro_batch_size",
                .doc = "samples per forward and backward; must divide global_batch_size",
                .min = 1,
                .max = kMaxSize,
                .default_text = "global_batch_size"},
          batch.micro_batch_size);
}

template <typename O, typename V>
void visit_optimizer(O& optimizer, V& visit) {
    visit(Field{.section = "optimizer",
                .key = "name",
                .doc = "AdamW (Loshchilov, Hutter 2019)",
                .planned = "adam,sgd,lamb,lion,muon"},
          optimizer.name);
    visit(Field{.section = "optimizer",
                .key = "lr",
                .doc = "peak learning rate",
                .min = 0,
                .presence = Presence::required},
          optimizer.lr);
    visit(Field{.section = "optimizer", .key = "min_lr", .doc = "where the schedule ends", .min = 0}, optimizer.min_lr);
    visit(Field{.section = "optimizer",
                .key = "betas",
                .doc = "decay rates of the two moments",
                .min = 0,
                .max = 1,
                .max_excluded = true},
          optimizer.betas);
    visit(Field{.section = "optimizer",
                .key = "eps",
                .doc = "added to the root of the second moment",
                .min = 0,
                .min_excluded = true},
          optimizer.eps);
    visit(Field{.section = "optimizer",
                .key = "weight_decay",
                .doc = "decoupled decay of matrices and embeddings; biases and norm gains have none",
                .min = 0},
          optimizer.weight_decay);
    visit(Field{.section = "optimizer",
                .key = "clip_grad_norm",
                .doc = "gradients are scaled down to this global norm; 0: never",
                .min = 0},
          optimizer.clip_grad_norm);
}

template <typename S, typename V>
void visit_schedule(S& schedule, V& visit) {
    visit(Field{.section = "schedule", .key = "style", .doc = "shape of the learning rate after the warmup"},
          schedule.style);
    visit(Field{.section = "schedule", .key = "warmup_steps", .doc = "updates of linear warmup", .min = 0},
          schedule.warmup_steps);
    visit(Field{.section = "schedule",
                .key = "decay_steps",
                .doc = "the update at which min_lr is reached",
                .min = 1,
                .default_text = "the steps of the run",
                .applies =
                        [](const Config& config) {
                            return config.schedule.style != ScheduleStyle::constant &&
                                   config.schedule.style != ScheduleStyle::inverse_sqrt;
                        },
                .applies_when = "with schedule.style = \"linear\", \"cosine\" or \"wsd\""},
          schedule.decay_steps);
    visit(Field{.section = "schedule",
                .key = "decay_fraction",
                .doc = "last part of decay_steps, in which the rate falls",
                .min = 0,
                .max = 1,
                .min_excluded = true,
                .applies = [](const Config& config) { return config.schedule.style == ScheduleStyle::wsd; },
                .applies_when = "with schedule.style = \"wsd\""},
          schedule.decay_fraction);
}

inline bool has_f16(const Config& config) {
    return config.precision.dtype == core::DType::f16;
}
inline bool has_dynamic_loss_scale(const Config& config) {
    return has_f16(config) && config.precision.loss_scale.dynamic;
}

template <typename P, typename V>
void visit_precision(P& precision, V& visit) {
    constexpr std::string_view kDynamic = "with precision.dtype = \"f16\" and precision.loss_scale = \"dynamic\"";
    visit(Field{.section = "precision",
                .key = "dtype",
                .doc = "of parameters and activations; main parameters, moments, softmax, norms and loss are f32"},
          precision.dtype);
    visit(Field{.section = "precision",
                .key = "grad_dtype",
                .doc = "of accumulated and reduced gradients",
                .availability = Availability::default_only,
                .planned = "model"},
          precision.grad_dtype);
    visit(Field{.section = "precision",
                .key = "loss_scale",
                .doc = "\"dynamic\" or a number",
                .min = 1,
                .applies = has_f16,
                .applies_when = "with precision.dtype = \"f16\""},
          precision.loss_scale);
    visit(Field{.section = "precision",
                .key = "initial_loss_scale",
                .doc = "where the dynamic scale starts",
                .min = 1,
                .applies = has_dynamic_loss_scale,
                .applies_when = kDynamic},
          precision.initial_loss_scale);
    visit(Field{.section = "precision",
                .key = "loss_scale_window",
                .doc = "clean steps before the scale doubles",
                .min = 1,
                .applies = has_dynamic_loss_scale,
                .applies_when = kDynamic},
          precision.loss_scale_window);
    visit(Field{.section = "precision",
                .key = "hysteresis",
                .doc = "overflows before the scale halves",
                .min = 1,
                .applies = has_dynamic_loss_scale,
                .applies_when = kDynamic},
          precision.hysteresis);
}

template <typename P, typename V>
void visit_parallel(P& parallel, V& visit) {
    constexpr auto kOnly = Availability::default_only;
    visit(Field{.section = "parallel",
                .key = "tensor",
                .doc = "tensor-parallel ranks",
                .min = 1,
                .availability = kOnly},
          parallel.tensor);
    visit(Field{.section = "parallel", .key = "pipeline", .doc = "pipeline stages", .min = 1, .availability = kOnly},
          parallel.pipeline);
    visit(Field{.section = "parallel",
                .key = "virtual_stages",
                .doc = "model chunks per pipeline stage",
                .min = 1,
                .availability = kOnly},
          parallel.virtual_stages);
    visit(Field{.section = "parallel",
                .key = "context",
                .doc = "context-parallel ranks",
                .min = 1,
                .availability = kOnly},
          parallel.context);
    visit(Field{.section = "parallel",
                .key = "sequence_parallel",
                .doc = "split norms and dropout by tokens",
                .availability = kOnly},
          parallel.sequence_parallel);
    visit(Field{.section = "parallel",
                .key = "schedule",
                .doc = "order of forwards and backwards over the stages",
                .planned = "gpipe,interleaved,zero_bubble"},
          parallel.schedule);
}

template <typename Z, typename R, typename V>
void visit_zero(Z& zero, R& recompute, V& visit) {
    visit(Field{.section = "zero",
                .key = "stage",
                .doc = "what data-parallel ranks share out: 0 nothing, 1 optimizer, 2 + gradients, 3 + parameters",
                .min = 0,
                .max = 3,
                .availability = Availability::default_only},
          zero.stage);
    visit(Field{.section = "zero",
                .key = "offload_optimizer",
                .doc = "where optimizer state lives",
                .planned = "cpu,nvme"},
          zero.offload_optimizer);
    visit(Field{.section = "zero",
                .key = "offload_parameters",
                .doc = "where idle parameters live",
                .planned = "cpu,nvme"},
          zero.offload_parameters);
    visit(Field{.section = "recompute",
                .key = "granularity",
                .doc = "activations computed again in backward instead of kept",
                .planned = "selective,full,budget"},
          recompute.granularity);
}

template <typename C, typename V>
void visit_checkpoint(C& checkpoint, V& visit) {
    visit(Field{.section = "checkpoint",
                .key = "directory",
                .doc = "folder of the checkpoints",
                .kind = FieldKind::path,
                .default_text = "`checkpoints` in run.directory"},
          checkpoint.directory);
    visit(Field{.section = "checkpoint",
                .key = "interval",
                .doc = "steps between saves; 0: only at the end and on a signal",
                .min = 0},
          checkpoint.interval);
    visit(Field{.section = "checkpoint", .key = "keep", .doc = "how many of the newest stay; 0: all", .min = 0},
          checkpoint.keep);
    visit(Field{.section = "checkpoint",
                .key = "keep_every",
                .doc = "checkpoints whose step is a multiple of this stay for ever; 0: none",
                .min = 0},
          checkpoint.keep_every);
    visit(Field{.section = "checkpoint",
                .key = "resume",
                .doc = "\"auto\": the newest complete checkpoint if there is one; \"none\": start anew; a step number "
                       "or a "
                       "checkpoint folder: that one, or an error",
                .kind = FieldKind::resume_spec},
          checkpoint.resume);
}

template <typename E, typename L, typename D, typename V>
void visit_surroundings(E& evaluation, L& log, D& device, V& visit) {
    visit(Field{.section = "evaluation",
                .key = "interval",
                .doc = "steps between evaluations; 0: only at the end",
                .min = 0,
                .applies = [](const Config& config) { return !config.data.validation.empty(); },
                .applies_when = "with data.validation"},
          evaluation.interval);
    visit(Field{.section = "evaluation",
                .key = "steps",
                .doc = "global batches per evaluation; 0: the whole validation set",
                .min = 0,
                .applies = [](const Config& config) { return !config.data.validation.empty(); },
                .applies_when = "with data.validation"},
          evaluation.steps);
    visit(Field{.section = "log", .key = "interval", .doc = "steps between log lines", .min = 1}, log.interval);
    visit(Field{.section = "log",
                .key = "progress",
                .doc = "bar, log lines or none; auto: bar on a terminal, lines elsewhere"},
          log.progress);
    visit(Field{.section = "log", .key = "loss_curve", .doc = "draw loss_curve.svg at the end"}, log.loss_curve);
    visit(Field{.section = "device", .key = "backend", .doc = "where kernels run", .planned = "cuda"}, device.backend);
    visit(Field{.section = "device",
                .key = "threads",
                .doc = "CPU threads; 0: every core this process may use",
                .min = 0},
          device.threads);
}

/// Calls visit(const Field&, member) for every key, in the order of the file. C is Config or const Config.
template <typename C, typename V>
void for_each_field(C& config, V&& visit) {
    visit_run(config.run, visit);
    visit_model_sizes(config.model, visit);
    visit_model_numbers(config.model, visit);
    visit_data(config.data, config.batch, visit);
    visit_optimizer(config.optimizer, visit);
    visit_schedule(config.schedule, visit);
    visit_precision(config.precision, visit);
    visit_parallel(config.parallel, visit);
    visit_zero(config.zero, config.recompute, visit);
    visit_checkpoint(config.checkpoint, visit);
    visit_surroundings(config.evaluation, config.log, config.device, visit);
}

}  // namespace tessera::train

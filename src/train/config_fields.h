#pragma once
#include "train/config_field.h"
#include "train/config_fields_layout.h"
#include "train/config_fields_surroundings.h"
#include "train/config_fields_training.h"
#include "train/config_names.h"

// The one list of config keys. Parsing, range checks, suggestions, saving and the reference are visitors of it; a new
// key is one entry here (or in the part of its section) and one member in config.h. Internal to src/train.

namespace tessera::train {

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
    visit(Field{.section = "run",
                .key = "exit_minutes",
                .doc = "minutes of wall time after which the step is finished, a checkpoint saved and the program left "
                       "with exit code 75, as on SIGTERM; at least one step is made; leave room for the save",
                .min = 0,
                .min_excluded = true,
                .default_text = "never"},
          run.exit_minutes);
    visit(Field{.section = "run",
                .key = "non_finite",
                .doc = "what a loss or gradient norm that is NaN or infinite does: stop the run, or skip the update "
                       "and "
                       "count it; overflows of f16 are the dynamic loss scale's until it is at its floor"},
          run.non_finite);
    visit(Field{.section = "run",
                .key = "max_non_finite",
                .doc = "steps in a row that may be skipped so; the next one stops the run",
                .min = 1,
                .applies = [](const Config& config) { return config.run.non_finite == NonFinitePolicy::skip; },
                .applies_when = "with run.non_finite = \"skip\""},
          run.max_non_finite);
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
                .doc = "samples per forward and backward; must divide global_batch_size and every size of a ramp",
                .min = 1,
                .max = kMaxSize,
                .default_text = "global_batch_size; with rampup the largest that divides every size"},
          batch.micro_batch_size);
    visit(Field{.section = "batch",
                .key = "rampup",
                .doc = "[start, increment, samples]: the batch grows from start by increment to global_batch_size, "
                       "evenly over the first so many consumed samples",
                .min = 1,
                .default_text = "none"},
          batch.rampup);
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

#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"

namespace tessera::train {

// One struct per section of the config file (docs/design.md section 5). The keys, their ranges and what they mean are
// listed once, in config_fields.h; parsing, printing, the reference and saving all follow that list.

enum class ModelFamily : std::uint8_t { gpt2, llama };
enum class OptimizerName : std::uint8_t { adamw };
enum class ScheduleStyle : std::uint8_t { constant, linear, cosine, wsd, inverse_sqrt };
enum class NonFinitePolicy : std::uint8_t { stop, skip };
enum class ProgressStyle : std::uint8_t { automatic, bar, lines, none };
enum class BackendChoice : std::uint8_t { automatic, cpu };
enum class OffloadTarget : std::uint8_t { none };
enum class RecomputeGranularity : std::uint8_t { none };
enum class PipelineScheduleName : std::uint8_t { one_forward_one_backward };

struct RunConfig {
    std::string name;       ///< default: the config file's name without .toml
    std::string directory;  ///< default: runs/NAME beside the config file
    std::int64_t seed = 1234;
    std::int64_t train_steps = 0;  ///< exactly one of train_steps and train_tokens is set; see total_steps()
    std::int64_t train_tokens = 0;
    double exit_minutes = 0;  ///< 0: never
    NonFinitePolicy non_finite = NonFinitePolicy::stop;
    std::int64_t max_non_finite = 10;
};

struct ModelConfig {
    ModelFamily family = ModelFamily::gpt2;
    std::int64_t num_layers = 0;
    std::int64_t hidden_size = 0;
    std::int64_t num_attention_heads = 0;
    std::int64_t num_kv_heads = 0;     ///< resolved: num_attention_heads
    std::int64_t ffn_hidden_size = 0;  ///< resolved: 4 hidden (gpt2), 8/3 hidden rounded up to a multiple of 64 (llama)
    std::int64_t seq_length = 0;
    std::int64_t vocab_size = 0;  ///< 0: what the tokenizer or the shards say (the trainer fills it in)
    double norm_eps = 1e-5;
    double hidden_dropout = 0.0;
    double attention_dropout = 0.0;
    bool tie_embeddings = true;  ///< when loaded: true for gpt2, false for llama, unless given
    double rope_theta = 10000.0;
    double init_std = 0.02;
};

struct DataSource {
    std::string path;
    double weight = 1.0;
};

struct DataConfig {
    std::vector<DataSource> train;
    std::vector<DataSource> validation;
    std::string tokenizer;
    bool document_mask = false;
    std::string tokens_dataset = "tokens";
};

/// Steps begin with `start` samples and grow by `increment` up to global_batch_size, evenly over `samples` consumed
/// samples (BatchPlan).
struct BatchRampup {
    std::int64_t start = 0;
    std::int64_t increment = 0;
    std::int64_t samples = 0;

    bool given() const { return samples > 0; }
};

struct BatchConfig {
    std::int64_t global_batch_size = 0;  ///< samples per step
    std::int64_t micro_batch_size = 0;   ///< samples per forward; resolved: global_batch_size, or what divides a ramp
    BatchRampup rampup;                  ///< not given: every step has global_batch_size
};

struct OptimizerConfig {
    OptimizerName name = OptimizerName::adamw;
    double lr = 0.0;
    double min_lr = 0.0;
    std::array<double, 2> betas{0.9, 0.95};
    double eps = 1e-8;
    double weight_decay = 0.1;
    double clip_grad_norm = 1.0;  ///< 0: no clipping
};

struct ScheduleConfig {
    ScheduleStyle style = ScheduleStyle::cosine;
    std::int64_t warmup_steps = 0;
    std::int64_t warmup_tokens = 0;  ///< instead of warmup_steps
    std::int64_t decay_steps = 0;    ///< the update at which min_lr is reached; resolved: the steps of the run
    std::int64_t decay_tokens = 0;   ///< instead of decay_steps; resolved with warmup_tokens: the tokens of the run
    double decay_fraction = 0.2;     ///< wsd: the last part of the decay's length, in which the rate falls

    /// Whether the schedule counts consumed tokens; otherwise it counts updates.
    bool in_tokens() const { return warmup_tokens > 0 || decay_tokens > 0; }
};

/// f16: `dynamic` starts at initial_loss_scale; otherwise `value` is used throughout.
struct LossScale {
    bool dynamic = true;
    double value = 0.0;
};

struct PrecisionConfig {
    core::DType dtype = core::DType::f32;       ///< of parameters and activations
    core::DType grad_dtype = core::DType::f32;  ///< of accumulated gradients
    LossScale loss_scale;
    double initial_loss_scale = 65536.0;
    std::int64_t loss_scale_window = 1000;  ///< clean steps before the scale doubles
    std::int64_t hysteresis = 2;            ///< overflows before the scale halves
};

struct ParallelConfig {
    std::int64_t tensor = 1;
    std::int64_t pipeline = 1;
    std::int64_t virtual_stages = 1;
    std::int64_t context = 1;
    bool sequence_parallel = false;
    PipelineScheduleName schedule = PipelineScheduleName::one_forward_one_backward;
};

struct ZeroConfig {
    std::int64_t stage = 0;
    OffloadTarget offload_optimizer = OffloadTarget::none;
    OffloadTarget offload_parameters = OffloadTarget::none;
};

struct RecomputeConfig {
    RecomputeGranularity granularity = RecomputeGranularity::none;
};

struct CheckpointConfig {
    std::string directory;         ///< resolved: RUN/checkpoints
    std::int64_t interval = 1000;  ///< steps between saves; 0: only at the end and on a signal
    std::int64_t keep = 5;         ///< how many of the newest stay; 0: all
    std::int64_t keep_every = 0;   ///< steps that are a multiple of this stay for ever; 0: none
    std::string resume = "auto";   ///< auto | none | a step number | a folder of one checkpoint, of several or of a run
    std::string weights;           ///< where a fresh start takes its parameters from; empty: drawn
};

struct EvaluationConfig {
    std::int64_t interval = 0;  ///< steps between evaluations; 0: only at the end
    std::int64_t steps = 0;     ///< batches per evaluation; 0: the whole validation set
    bool at_start = false;      ///< also before the first step
};

struct LogConfig {
    std::int64_t interval = 1;
    ProgressStyle progress = ProgressStyle::automatic;
    bool loss_curve = true;
    bool tensorboard = true;
    std::string tensorboard_directory;  ///< empty: RUN/tensorboard
};

struct DeviceConfig {
    BackendChoice backend = BackendChoice::automatic;
    std::int64_t threads = 0;  ///< 0: every core this process may use
};

struct Config {
    RunConfig run;
    ModelConfig model;
    DataConfig data;
    BatchConfig batch;
    OptimizerConfig optimizer;
    ScheduleConfig schedule;
    PrecisionConfig precision;
    ParallelConfig parallel;
    ZeroConfig zero;
    RecomputeConfig recompute;
    CheckpointConfig checkpoint;
    EvaluationConfig evaluation;
    LogConfig log;
    DeviceConfig device;

    /// Where each key was set: "model.hidden_size" -> "gpt2.toml:14" or "command line". Keys left at their default are
    /// absent.
    std::map<std::string, std::string, std::less<>> origins;

    bool is_set(std::string_view key) const { return origins.find(key) != origins.end(); }
};

/// Reads a TOML file strictly, applies the overrides in order, fills in the derived defaults and validates the result.
/// path       a byte order mark at its start is skipped.
/// overrides  "--section.key=value" (the dashes may be absent); the value is TOML, but text needs no quotes.
/// Relative paths are taken from the config file's folder (from the working directory for overrides); a leading ~ is
/// the home folder.
/// Throws ConfigError, one line: every unknown key with the nearest known one, every value of a wrong type or out of
/// range, every missing key, each with file and line.
Config load_config(const std::string& path, const std::vector<std::string>& overrides = {});

/// As load_config, from text. `name` stands for the file in messages and its folder for relative paths.
Config parse_config(std::string_view text, const std::string& name, const std::vector<std::string>& overrides = {});

/// Fills in what follows from other keys: num_kv_heads, ffn_hidden_size, micro_batch_size, decay_steps
/// or decay_tokens, run.directory, checkpoint.directory. Keys that are set stay. load_config has done this already.
void resolve_defaults(Config& config);

/// Optimizer steps of the run: train_steps, or as many as train_tokens take, rounded up. `step` and `consumed_samples`:
/// what a resumed run has done already, with batches of whatever size.
std::int64_t total_steps(const Config& config, std::int64_t step = 0, std::int64_t consumed_samples = 0);

/// Tokens of the run: those of all its steps.
std::int64_t total_tokens(const Config& config);

/// The config as TOML, every applicable key written: what is saved with a run. parse_config reads it back to the same.
std::string to_toml(const Config& config);

/// Markdown tables of every key: meaning, type, default, for README.
std::string config_reference();

std::string_view name_of(ModelFamily value);
std::string_view name_of(OptimizerName value);
std::string_view name_of(ScheduleStyle value);
std::string_view name_of(NonFinitePolicy value);
std::string_view name_of(ProgressStyle value);
std::string_view name_of(BackendChoice value);
std::string_view name_of(OffloadTarget value);
std::string_view name_of(RecomputeGranularity value);
std::string_view name_of(PipelineScheduleName value);

}  // namespace tessera::train

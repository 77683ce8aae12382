#include "train/config.h"

#include <filesystem>
#include <numeric>

#include "core/error.h"
#include "core/rounding.h"
#include "train/batch_plan.h"
#include "train/config_fields.h"
#include "train/durable_file.h"

namespace tessera::train {
namespace {

template <typename E>
std::string_view spelling(E value) {
    for (const auto& entry : EnumNames<E>::kAll) {
        if (entry.value == value) return entry.name;
    }
    return "?";
}

}  // namespace

Config load_config(const std::string& path, const std::vector<std::string>& overrides) {
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    if (!std::filesystem::exists(status)) {
        core::raise<core::ConfigError>("config file '{}' does not exist (working directory {})", path,
                                       std::filesystem::current_path(error).string());
    }
    if (std::filesystem::is_directory(status)) {
        core::raise<core::ConfigError>("config file '{}' is a folder; name the .toml file in it", path);
    }
    return parse_config(read_text_file(path), path, overrides);
}

void resolve_defaults(Config& config) {
    ModelConfig& model = config.model;
    if (model.num_kv_heads == 0) model.num_kv_heads = model.num_attention_heads;
    if (model.ffn_hidden_size == 0) {
        model.ffn_hidden_size = model.family == ModelFamily::gpt2 ? 4 * model.hidden_size
                                                                  : core::round_up((8 * model.hidden_size + 2) / 3, 64);
    }
    BatchConfig& batch = config.batch;
    if (batch.micro_batch_size == 0) {
        batch.micro_batch_size =
                batch.rampup.given() ? std::gcd(batch.rampup.start, batch.rampup.increment) : batch.global_batch_size;
    }
    ScheduleConfig& schedule = config.schedule;
    if (schedule.decay_steps == 0 && schedule.decay_tokens == 0) {
        if (schedule.in_tokens()) {
            schedule.decay_tokens = std::max(total_tokens(config), schedule.warmup_tokens + 1);
        } else {
            schedule.decay_steps = std::max(total_steps(config), schedule.warmup_steps + 1);
        }
    }
    if (config.run.directory.empty()) config.run.directory = "runs/" + config.run.name;
    if (config.checkpoint.directory.empty()) {
        config.checkpoint.directory = (std::filesystem::path(config.run.directory) / "checkpoints").string();
    }
}

std::int64_t total_steps(const Config& config, std::int64_t step, std::int64_t consumed_samples) {
    if (config.run.train_steps > 0) return config.run.train_steps;
    if (config.batch.global_batch_size <= 0 || config.model.seq_length <= 0) return 0;
    const std::int64_t samples = core::ceil_div(config.run.train_tokens, config.model.seq_length);
    return step + BatchPlan(config.batch).steps_until(consumed_samples, samples);
}

std::int64_t total_tokens(const Config& config) {
    return BatchPlan(config.batch).samples_after(0, total_steps(config)) * config.model.seq_length;
}

std::string_view name_of(ModelFamily value) {
    return spelling(value);
}
std::string_view name_of(OptimizerName value) {
    return spelling(value);
}
std::string_view name_of(ScheduleStyle value) {
    return spelling(value);
}
std::string_view name_of(NonFinitePolicy value) {
    return spelling(value);
}
std::string_view name_of(ProgressStyle value) {
    return spelling(value);
}
std::string_view name_of(BackendChoice value) {
    return spelling(value);
}
std::string_view name_of(OffloadTarget value) {
    return spelling(value);
}
std::string_view name_of(RecomputeGranularity value) {
    return spelling(value);
}
std::string_view name_of(PipelineScheduleName value) {
    return spelling(value);
}

}  // namespace tessera::train

#include "train/validate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>
#include <string_view>

#include "core/error.h"
#include "train/config_fields.h"

namespace tessera::train {
namespace {

/// "model.num_attention_heads in gpt2.toml:14"
std::string place_of(const Config& config, const std::string& key) {
    const auto origin = config.origins.find(key);
    if (origin == config.origins.end()) return key;
    return fmt::format("{} {} {}", key, origin->second == "the command line" ? "on" : "in", origin->second);
}

/// The divisors of `whole` next to `wanted`: "10, 20".
std::string nearest_divisors(std::int64_t whole, std::int64_t wanted) {
    std::int64_t below = 0;
    std::int64_t above = 0;
    for (std::int64_t i = 1; i * i <= whole; ++i) {
        if (whole % i != 0) continue;
        for (const std::int64_t divisor : {i, whole / i}) {
            if (divisor <= wanted && divisor > below) below = divisor;
            if (divisor >= wanted && (above == 0 || divisor < above)) above = divisor;
        }
    }
    std::vector<std::int64_t> found;
    if (below != 0) found.push_back(below);
    if (above != 0 && above != below) found.push_back(above);
    return fmt::format("{}", fmt::join(found, ", "));
}

void check_divides(const Config& config, const std::string& whole_key, std::int64_t whole, const std::string& part_key,
                   std::int64_t part, std::vector<std::string>& problems) {
    if (whole <= 0 || part <= 0 || whole % part == 0) return;
    const auto short_name = [](const std::string& key) { return key.substr(key.find('.') + 1); };
    problems.push_back(fmt::format("{} {} is not divisible by {} {} ({}); nearest that divide: {}",
                                   short_name(whole_key), whole, short_name(part_key), part, place_of(config, part_key),
                                   nearest_divisors(whole, part)));
}

void check_positive(const Config& config, std::vector<std::string>& problems) {
    const auto check = [&](const char* key, std::int64_t value) {
        if (value <= 0)
            problems.push_back(fmt::format("{} = {} is out of range: at least 1", place_of(config, key), value));
    };
    check("model.num_layers", config.model.num_layers);
    check("model.hidden_size", config.model.hidden_size);
    check("model.num_attention_heads", config.model.num_attention_heads);
    check("model.num_kv_heads", config.model.num_kv_heads);
    check("model.ffn_hidden_size", config.model.ffn_hidden_size);
    check("model.seq_length", config.model.seq_length);
    check("batch.global_batch_size", config.batch.global_batch_size);
    check("batch.micro_batch_size", config.batch.micro_batch_size);
}

void check_model(const Config& config, std::vector<std::string>& problems) {
    const ModelConfig& model = config.model;
    check_divides(config, "model.hidden_size", model.hidden_size, "model.num_attention_heads",
                  model.num_attention_heads, problems);
    check_divides(config, "model.num_attention_heads", model.num_attention_heads, "model.num_kv_heads",
                  model.num_kv_heads, problems);
    const bool divides = model.num_attention_heads > 0 && model.hidden_size % model.num_attention_heads == 0;
    if (model.family == ModelFamily::llama && divides && (model.hidden_size / model.num_attention_heads) % 2 != 0) {
        problems.push_back(
                fmt::format("head_dim {} = hidden_size {} / num_attention_heads {} ({}) is odd; rotary positions turn "
                            "pairs, so that it "
                            "must be even",
                            model.hidden_size / model.num_attention_heads, model.hidden_size, model.num_attention_heads,
                            place_of(config, "model.num_attention_heads")));
    }
}

void check_rampup(const Config& config, std::vector<std::string>& problems) {
    const BatchConfig& batch = config.batch;
    const BatchRampup& rampup = batch.rampup;
    if (!rampup.given() || batch.global_batch_size <= 0) return;
    const std::string place = place_of(config, "batch.rampup");
    if (rampup.start <= 0 || rampup.increment <= 0) {
        problems.push_back(fmt::format("the start {} and the increment {} of rampup ({}) must be at least 1",
                                       rampup.start, rampup.increment, place));
        return;
    }
    const std::int64_t growth = batch.global_batch_size - rampup.start;
    if (growth <= 0) {
        problems.push_back(
                fmt::format("the start {} of rampup ({}) is not below global_batch_size {} ({}); remove it "
                            "or start lower",
                            rampup.start, place, batch.global_batch_size, place_of(config, "batch.global_batch_size")));
    } else if (growth % rampup.increment != 0) {
        problems.push_back(
                fmt::format("global_batch_size {} - start {} = {} is not a multiple of the increment {} of "
                            "rampup ({}); nearest that divide: {}",
                            batch.global_batch_size, rampup.start, growth, rampup.increment, place,
                            nearest_divisors(growth, rampup.increment)));
    }
    const std::int64_t common = std::gcd(rampup.start, rampup.increment);
    if (batch.micro_batch_size > 0 && common % batch.micro_batch_size != 0) {
        problems.push_back(
                fmt::format("micro_batch_size {} ({}) does not divide every batch size of rampup {}, {}, … "
                            "({}); nearest that divide: {}",
                            batch.micro_batch_size, place_of(config, "batch.micro_batch_size"), rampup.start,
                            rampup.start + rampup.increment, place, nearest_divisors(common, batch.micro_batch_size)));
    }
}

void check_batch(const Config& config, std::vector<std::string>& problems) {
    const BatchConfig& batch = config.batch;
    check_rampup(config, problems);
    if (batch.micro_batch_size > batch.global_batch_size) {
        problems.push_back(
                fmt::format("micro_batch_size {} ({}) is larger than global_batch_size {} ({}); use at most {}",
                            batch.micro_batch_size, place_of(config, "batch.micro_batch_size"), batch.global_batch_size,
                            place_of(config, "batch.global_batch_size"), batch.global_batch_size));
        return;
    }
    check_divides(config, "batch.global_batch_size", batch.global_batch_size, "batch.micro_batch_size",
                  batch.micro_batch_size, problems);
}

struct Length {
    std::string key;
    std::int64_t value = 0;
};

/// "warmup_steps 3 (schedule.warmup_steps in gpt2.toml:14)"
std::string described(const Config& config, const Length& length) {
    return fmt::format("{} {} ({})", length.key.substr(length.key.find('.') + 1), length.value,
                       place_of(config, length.key));
}

void check_given_once(const Config& config, const Length& one, const Length& other,
                      std::vector<std::string>& problems) {
    if (one.value <= 0 || other.value <= 0) return;
    problems.push_back(
            fmt::format("both {} and {} are given; remove one", described(config, one), described(config, other)));
}

void check_length(const Config& config, std::vector<std::string>& problems) {
    const RunConfig& run = config.run;
    check_given_once(config, {"run.train_steps", run.train_steps}, {"run.train_tokens", run.train_tokens}, problems);
    if (run.train_steps <= 0 && run.train_tokens <= 0) {
        problems.emplace_back("neither run.train_steps nor run.train_tokens is given; set one");
    }
}

void check_schedule(const Config& config, std::vector<std::string>& problems) {
    const ScheduleConfig& schedule = config.schedule;
    if (config.optimizer.min_lr > config.optimizer.lr) {
        problems.push_back(fmt::format("min_lr {} ({}) is more than lr {} ({})", config.optimizer.min_lr,
                                       place_of(config, "optimizer.min_lr"), config.optimizer.lr,
                                       place_of(config, "optimizer.lr")));
    }
    const Length warmup_steps{"schedule.warmup_steps", schedule.warmup_steps};
    const Length warmup_tokens{"schedule.warmup_tokens", schedule.warmup_tokens};
    const Length decay_steps{"schedule.decay_steps", schedule.decay_steps};
    const Length decay_tokens{"schedule.decay_tokens", schedule.decay_tokens};
    check_given_once(config, warmup_steps, warmup_tokens, problems);
    check_given_once(config, decay_steps, decay_tokens, problems);
    const auto check_units = [&](const Length& in_steps, const Length& in_tokens) {
        if (in_steps.value <= 0 || in_tokens.value <= 0) return;
        problems.push_back(fmt::format("{} counts updates, but {} counts tokens; give both in one unit",
                                       described(config, in_steps), described(config, in_tokens)));
    };
    if (schedule.warmup_tokens <= 0) check_units(warmup_steps, decay_tokens);
    if (schedule.decay_tokens <= 0) check_units(decay_steps, warmup_tokens);
    const auto check_room = [&](const Length& warmup, const Length& decay) {
        if (!config.is_set(decay.key) || warmup.value < decay.value) return;
        problems.push_back(fmt::format("{} leaves nothing of {}; use fewer than {}", described(config, warmup),
                                       described(config, decay), decay.value));
    };
    check_room(warmup_steps, decay_steps);
    check_room(warmup_tokens, decay_tokens);
}

void check_start(const Config& config, std::vector<std::string>& problems) {
    const CheckpointConfig& checkpoint = config.checkpoint;
    if (checkpoint.weights.empty() || checkpoint.resume == "auto" || checkpoint.resume == "none") return;
    problems.push_back(fmt::format("resume \"{}\" ({}) continues a run, but weights \"{}\" ({}) begins one; remove one",
                                   checkpoint.resume, place_of(config, "checkpoint.resume"), checkpoint.weights,
                                   place_of(config, "checkpoint.weights")));
}

void check_applicable(const Config& config, std::vector<std::string>& problems) {
    for_each_field(config, [&](const Field& field, const auto&) {
        if (field.applies == nullptr || !config.is_set(field.name()) || field.applies(config)) return;
        problems.push_back(fmt::format("{} has no effect; it is only used {}", place_of(config, field.name()),
                                       field.applies_when));
    });
}

}  // namespace

std::vector<std::string> find_contradictions(const Config& config) {
    std::vector<std::string> problems;
    check_positive(config, problems);
    check_model(config, problems);
    check_batch(config, problems);
    check_length(config, problems);
    check_schedule(config, problems);
    check_start(config, problems);
    check_applicable(config, problems);
    return problems;
}

void validate(const Config& config) {
    const std::vector<std::string> problems = find_contradictions(config);
    if (!problems.empty()) throw core::ConfigError(fmt::format("{}", fmt::join(problems, "; ")));
}

}  // namespace tessera::train

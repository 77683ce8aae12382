#include "train/config_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "train/config_fields.h"

namespace tessera::train {
namespace {

struct Alias {
    std::string_view name;
    std::string_view key;
};

// What these settings are called elsewhere.
constexpr std::array kAliases = {
        Alias{"learning_rate", "optimizer.lr"},
        Alias{"max_lr", "optimizer.lr"},
        Alias{"minimum_learning_rate", "optimizer.min_lr"},
        Alias{"min_learning_rate", "optimizer.min_lr"},
        Alias{"grad_clip", "optimizer.clip_grad_norm"},
        Alias{"clip_grad", "optimizer.clip_grad_norm"},
        Alias{"max_grad_norm", "optimizer.clip_grad_norm"},
        Alias{"gradient_clipping", "optimizer.clip_grad_norm"},
        Alias{"wd", "optimizer.weight_decay"},
        Alias{"beta1", "optimizer.betas"},
        Alias{"beta2", "optimizer.betas"},
        Alias{"adam_beta1", "optimizer.betas"},
        Alias{"adam_beta2", "optimizer.betas"},
        Alias{"adam_eps", "optimizer.eps"},
        Alias{"epsilon", "optimizer.eps"},
        Alias{"optimizer", "optimizer.name"},
        Alias{"n_layer", "model.num_layers"},
        Alias{"n_layers", "model.num_layers"},
        Alias{"layers", "model.num_layers"},
        Alias{"num_hidden_layers", "model.num_layers"},
        Alias{"n_embd", "model.hidden_size"},
        Alias{"d_model", "model.hidden_size"},
        Alias{"dim", "model.hidden_size"},
        Alias{"n_head", "model.num_attention_heads"},
        Alias{"n_heads", "model.num_attention_heads"},
        Alias{"heads", "model.num_attention_heads"},
        Alias{"num_heads", "model.num_attention_heads"},
        Alias{"num_query_groups", "model.num_kv_heads"},
        Alias{"n_kv_heads", "model.num_kv_heads"},
        Alias{"num_key_value_heads", "model.num_kv_heads"},
        Alias{"intermediate_size", "model.ffn_hidden_size"},
        Alias{"ffn_size", "model.ffn_hidden_size"},
        Alias{"block_size", "model.seq_length"},
        Alias{"context_length", "model.seq_length"},
        Alias{"sequence_length", "model.seq_length"},
        Alias{"seq_len", "model.seq_length"},
        Alias{"max_position_embeddings", "model.seq_length"},
        Alias{"vocabulary_size", "model.vocab_size"},
        Alias{"dropout", "model.hidden_dropout"},
        Alias{"rotary_base", "model.rope_theta"},
        Alias{"init_method_std", "model.init_std"},
        Alias{"layer_norm_eps", "model.norm_eps"},
        Alias{"rms_norm_eps", "model.norm_eps"},
        Alias{"tie_word_embeddings", "model.tie_embeddings"},
        Alias{"model_type", "model.family"},
        Alias{"batch_size", "batch.global_batch_size"},
        Alias{"train_batch_size", "batch.global_batch_size"},
        Alias{"rampup_batch_size", "batch.rampup"},
        Alias{"gradient_accumulation_steps", "batch.micro_batch_size"},
        Alias{"max_steps", "run.train_steps"},
        Alias{"max_iters", "run.train_steps"},
        Alias{"train_iters", "run.train_steps"},
        Alias{"steps", "run.train_steps"},
        Alias{"output_dir", "run.directory"},
        Alias{"out_dir", "run.directory"},
        Alias{"lr_decay_style", "schedule.style"},
        Alias{"lr_scheduler", "schedule.style"},
        Alias{"warmup", "schedule.warmup_steps"},
        Alias{"warmup_iters", "schedule.warmup_steps"},
        Alias{"lr_warmup_iters", "schedule.warmup_steps"},
        Alias{"lr_decay_iters", "schedule.decay_steps"},
        Alias{"lr_warmup_samples", "schedule.warmup_tokens"},
        Alias{"lr_decay_samples", "schedule.decay_tokens"},
        Alias{"fp16", "precision.dtype"},
        Alias{"bf16", "precision.dtype"},
        Alias{"save_interval", "checkpoint.interval"},
        Alias{"save", "checkpoint.directory"},
        Alias{"load", "checkpoint.resume"},
        Alias{"finetune", "checkpoint.weights"},
        Alias{"init_from", "checkpoint.weights"},
        Alias{"exit_duration_in_mins", "run.exit_minutes"},
        Alias{"keep_last", "checkpoint.keep"},
        Alias{"eval_interval", "evaluation.interval"},
        Alias{"eval_iters", "evaluation.steps"},
        Alias{"log_interval", "log.interval"},
        Alias{"device", "device.backend"},
        Alias{"num_threads", "device.threads"},
        Alias{"train_data", "data.train"},
        Alias{"data_path", "data.train"},
        Alias{"valid", "data.validation"},
        Alias{"valid_data", "data.validation"},
};

constexpr std::array<std::string_view, 6> kPlannedKeys = {
        "run.bitwise_across_layouts", "zero.bucket_bytes", "zero.offload_path",
        "recompute.layers",           "recompute.bytes",   "checkpoint.async"};

std::string normalised(std::string_view name) {
    std::string result(name);
    for (char& c : result) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return result;
}

struct Candidate {
    std::string key;      // section.key
    double distance = 0;  // less than a whole step apart: the same section wins
};

Candidate nearest(std::string_view section, std::string_view key) {
    const std::string wanted_section = normalised(section);
    const std::string wanted = normalised(key);
    Candidate best{"", 1e9};
    const auto offer = [&](std::string_view full_name, std::string_view name) {
        const bool same_section = full_name.substr(0, full_name.find('.')) == wanted_section;
        const double distance = static_cast<double>(edit_distance(wanted, name)) + (same_section ? 0.0 : 0.5);
        if (distance < best.distance) best = {std::string(full_name), distance};
    };
    const Config defaults;
    for_each_field(defaults, [&](const Field& field, const auto&) { offer(field.name(), field.key); });
    for (const Alias& alias : kAliases) offer(alias.key, alias.name);
    return best;
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
    const std::size_t columns = b.size() + 1;
    std::vector<std::size_t> table((a.size() + 1) * columns);
    const auto at = [&](std::size_t i, std::size_t j) -> std::size_t& { return table[i * columns + j]; };
    for (std::size_t i = 0; i <= a.size(); ++i) at(i, 0) = i;
    for (std::size_t j = 0; j <= b.size(); ++j) at(0, j) = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replaced = at(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1);
            at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, replaced});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
            }
        }
    }
    return table.back();
}

std::vector<std::string> section_names() {
    std::vector<std::string> names;
    const Config defaults;
    for_each_field(defaults, [&](const Field& field, const auto&) {
        if (names.empty() || names.back() != field.section) names.emplace_back(field.section);
    });
    return names;
}

bool is_planned_key(std::string_view section, std::string_view key) {
    const std::string name = fmt::format("{}.{}", section, key);
    return std::find(kPlannedKeys.begin(), kPlannedKeys.end(), name) != kPlannedKeys.end();
}

std::string suggestion_for(std::string_view section, std::string_view key) {
    const std::vector<std::string> sections = section_names();
    const bool known_section = std::find(sections.begin(), sections.end(), section) != sections.end();
    if (!key.empty()) {
        const Candidate best = nearest(section, key);
        const auto allowed = std::max<std::size_t>(2, key.size() / 3);
        if (best.distance < static_cast<double>(std::min(allowed, key.size() - 1)) + 0.75) {
            return fmt::format("did you mean {}?", best.key);
        }
    }
    if (!known_section) {
        const std::string wanted = normalised(section);
        for (const std::string& name : sections) {
            if (edit_distance(wanted, name) <= 2) return fmt::format("did you mean [{}]?", name);
        }
        return fmt::format("sections are {}", fmt::join(sections, ", "));
    }
    std::vector<std::string_view> keys;
    const Config defaults;
    for_each_field(defaults, [&](const Field& field, const auto&) {
        if (field.section == section) keys.push_back(field.key);
    });
    return fmt::format("[{}] has {}", section, fmt::join(keys, ", "));
}

}  // namespace tessera::train

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <type_traits>

#include "core/error.h"
#include "core/log.h"
#include "data/utf8.h"
#include "train/config.h"
#include "train/config_assign.h"
#include "train/config_fields.h"
#include "train/config_keys.h"
#include "train/validate.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

class Parser {
public:
    Parser(Config& config, std::string file) : config_(config), file_(std::move(file)) {
        folder_ = fs::absolute(fs::path(file_)).parent_path();
    }

    void read_file(std::string_view text) {
        constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
        if (text.substr(0, kByteOrderMark.size()) == kByteOrderMark) text.remove_prefix(kByteOrderMark.size());
        try {
            const toml::table root = toml::parse(text, file_);
            for (const auto& [section, node] : root) read_section(section.str(), node, line_of(section.source()));
        } catch (const toml::parse_error& error) {
            core::raise<core::ConfigError>("{}:{}:{}: {}", file_, error.source().begin.line,
                                           error.source().begin.column, error.description());
        }
    }

    void read_override(std::string_view text) {
        const std::string_view original = text;
        while (!text.empty() && text.front() == '-') text.remove_prefix(1);
        const std::size_t equals = text.find('=');
        const std::string_view name = text.substr(0, equals);
        const std::size_t dot = name.find('.');
        if (dot == std::string_view::npos || dot == 0 || dot + 1 == name.size()) {
            problems_.push_back(fmt::format("'{}' is not an override; write --section.key=value", original));
            return;
        }
        if (equals == std::string_view::npos) {
            problems_.push_back(fmt::format("override '{}' has no value; write --{}=VALUE", original, name));
            return;
        }
        const Place place{fmt::format("--{}", name), fs::current_path(), Source::command_line};
        const std::string value(text.substr(equals + 1));
        const std::string trial = "value = " + value;
        std::optional<toml::table> parsed;
        try {
            parsed = toml::parse(trial);
            if (parsed->size() != 1 || value.find('\n') != std::string::npos) parsed.reset();
        } catch (const toml::parse_error& error) {
            if (!value.empty() && std::string_view("[{\"'").find(value.front()) != std::string_view::npos) {
                problems_.push_back(fmt::format("{}: {}", original, error.description()));
                return;
            }
        }
        if (!parsed) parsed = toml::table{{"value", value}};
        read_key(name.substr(0, dot), name.substr(dot + 1), *parsed->get("value"), place, value);
    }

    void finish() {
        drop_replaced_lengths();
        std::vector<std::string> missing;
        for_each_field(config_, [&](const Field& field, const auto&) {
            if (field.presence == Presence::required && !config_.is_set(field.name())) missing.push_back(field.name());
        });
        if (!config_.is_set("run.train_steps") && !config_.is_set("run.train_tokens")) {
            missing.emplace_back("run.train_steps (or run.train_tokens)");
        }
        if (!missing.empty()) {
            problems_.push_back(fmt::format("{}: missing {}", file_, fmt::join(missing, ", ")));
        }
        if (!problems_.empty()) throw core::ConfigError(fmt::format("{}", fmt::join(problems_, "; ")));
        if (!config_.is_set("run.name")) config_.run.name = fs::path(file_).stem().string();
        if (!config_.is_set("run.directory")) {
            config_.run.directory = (folder_ / "runs" / config_.run.name).lexically_normal().string();
        }
        if (!config_.is_set("model.tie_embeddings")) {
            config_.model.tie_embeddings = config_.model.family == ModelFamily::gpt2;
        }
    }

private:
    std::string line_of(const toml::source_region& source) const {
        return fmt::format("{}:{}", file_, source.begin.line);
    }

    void read_section(std::string_view section, const toml::node& node, const std::string& where) {
        const std::vector<std::string> sections = section_names();
        const bool known = std::find(sections.begin(), sections.end(), section) != sections.end();
        const toml::table* table = node.as_table();
        if (table == nullptr) {
            if (known) {
                problems_.push_back(fmt::format("{}: {} is a section; write [{}]", where, section, section));
            } else {
                problems_.push_back(fmt::format("{}: unknown key {} outside of any section; {}", where, section,
                                                suggestion_for("", section)));
            }
            return;
        }
        if (!known) {
            problems_.push_back(
                    fmt::format("{}: unknown section [{}]; {}", where, section, suggestion_for(section, "")));
            return;
        }
        for (const auto& [key, value] : *table) {
            const Place place{line_of(key.source()), folder_, Source::file};
            read_key(section, key.str(), value, place, {});
        }
    }

    void read_key(std::string_view section, std::string_view key, const toml::node& node, const Place& place,
                  std::string_view raw) {
        bool found = false;
        for_each_field(config_, [&](const Field& field, auto& target) {
            if (field.section != section || field.key != key) return;
            found = true;
            std::string& origin = config_.origins[field.name()];
            origin = place.source == Source::file ? place.where : "the command line";
            assign(field, target, node, place, raw);
        });
        if (found) return;
        if (is_planned_key(section, key)) {
            problems_.push_back(
                    fmt::format("{}: {}.{} is not available in this version; remove it", place.where, section, key));
        } else {
            problems_.push_back(
                    fmt::format("{}: unknown key {}.{}; {}", place.where, section, key, suggestion_for(section, key)));
        }
    }

    template <typename T>
    void assign(const Field& field, T& target, const toml::node& node, const Place& place, std::string_view raw) {
        // On the command line text needs no quotes: what reads as a number or a date is still text for a text key.
        constexpr bool kIsText = std::is_same_v<T, std::string> || std::is_enum_v<T>;
        const T before = target;
        std::string problem;
        if (kIsText && place.source == Source::command_line && !node.is_string()) {
            problem = assign_value(field, target, toml::value<std::string>{std::string(raw)}, place);
        } else {
            problem = assign_value(field, target, node, place);
        }
        if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
            if (problem.empty() && field.availability == Availability::default_only && target != before) {
                problem = fmt::format("{} = {} is not available in this version; use {}", field.name(), written(target),
                                      written(before));
            }
        }
        if (!problem.empty()) problems_.push_back(fmt::format("{}: {}", place.where, problem));
    }

    /// A length given on the command line replaces the file's, in whichever unit.
    void drop_replaced_lengths() {
        const auto drop = [&](const char* from_file, const char* given, std::int64_t& value) {
            const auto in_file = config_.origins.find(from_file);
            const auto on_line = config_.origins.find(given);
            if (in_file == config_.origins.end() || on_line == config_.origins.end()) return;
            if (in_file->second == "the command line" || on_line->second != "the command line") return;
            config_.origins.erase(in_file);
            value = 0;
        };
        drop("run.train_tokens", "run.train_steps", config_.run.train_tokens);
        drop("run.train_steps", "run.train_tokens", config_.run.train_steps);
        ScheduleConfig& schedule = config_.schedule;
        drop("schedule.warmup_tokens", "schedule.warmup_steps", schedule.warmup_tokens);
        drop("schedule.warmup_steps", "schedule.warmup_tokens", schedule.warmup_steps);
        drop("schedule.decay_tokens", "schedule.decay_steps", schedule.decay_tokens);
        drop("schedule.decay_steps", "schedule.decay_tokens", schedule.decay_steps);
    }

    Config& config_;
    std::string file_;
    fs::path folder_;
    std::vector<std::string> problems_;
};

/// TOML is UTF-8: anything else, which a folder's name or an override may hold, could be saved with a run but not read
/// back.
void refuse_invalid_utf8(const Config& config, const std::string& file) {
    for_each_field(config, [&](const Field& field, const auto& value) {
        data::Utf8Repair repair;
        std::string readable;
        repair.append(written(value), readable);
        repair.finish(readable);
        if (repair.replaced() > 0) {
            core::raise<core::ConfigError>("{}: {} = {} is not UTF-8 text", file, field.name(), readable);
        }
    });
}

}  // namespace

Config parse_config(std::string_view text, const std::string& name, const std::vector<std::string>& overrides) {
    Config config;
    Parser parser(config, name);
    parser.read_file(text);
    for (const std::string& override_text : overrides) parser.read_override(override_text);
    parser.finish();
    resolve_defaults(config);
    refuse_invalid_utf8(config, name);
    validate(config);
    const auto warn_of_warmup = [](const char* unit, std::int64_t warmup, std::int64_t run) {
        if (warmup < run) return;
        core::log_warning(fmt::format("schedule.warmup_{} {} is not shorter than the run of {} {}: all of it is warmup",
                                      unit, warmup, run, unit));
    };
    warn_of_warmup("steps", config.schedule.warmup_steps, total_steps(config));
    if (config.schedule.in_tokens()) warn_of_warmup("tokens", config.schedule.warmup_tokens, total_tokens(config));
    return config;
}

}  // namespace tessera::train

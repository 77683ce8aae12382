#include "train/config_assign.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "train/config_keys.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

std::string describe(const toml::node& node) {
    if (const auto* text = node.as_string()) return fmt::format("the text {}", written(text->get()));
    if (const auto* integer = node.as_integer()) return fmt::format("{}", integer->get());
    if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
    if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
    if (node.is_array()) return "a list";
    if (node.is_table()) return "a table";
    return "a date or time";
}

std::string wrong_type(const Field& field, std::string_view wanted, const toml::node& node) {
    std::string message = fmt::format("{} wants {}, not {}", field.name(), wanted, describe(node));
    const auto* text = node.as_string();
    if (text != nullptr && wanted.find("number") != std::string_view::npos && !text->get().empty()) {
        char* end = nullptr;
        std::strtod(text->get().c_str(), &end);
        if (*end == '\0') message += "; remove the quotes";
    }
    return message;
}

std::string out_of_range(const Field& field, double value) {
    const bool low = field.min_excluded ? value <= field.min : value < field.min;
    const bool high = field.max_excluded ? value >= field.max : value > field.max;
    if (std::isfinite(value) && !low && !high) return {};
    const std::string range = range_text(field);
    return fmt::format("{} = {} is out of range: {}", field.name(), value,
                       std::isfinite(value) || range.empty() ? (range.empty() ? "a finite number is wanted" : range)
                                                             : "a finite number, " + range);
}

/// A finite number within the field's range; `problem` says why not.
double number_of(const Field& field, const toml::node& node, std::string_view wanted, std::string& problem) {
    double value = 0;
    if (const auto* number = node.as_floating_point()) {
        value = number->get();
    } else if (const auto* integer = node.as_integer()) {
        value = static_cast<double>(integer->get());
    } else {
        problem = wrong_type(field, wanted, node);
        return 0;
    }
    problem = out_of_range(field, value);
    return value;
}

std::string absolute_path(const std::string& text, const fs::path& folder) {
    if (text == "~" || text.rfind("~/", 0) == 0) {
        const char* home = std::getenv("HOME");
        if (home != nullptr)
            return (fs::path(home) / fs::path(text.substr(std::min<std::size_t>(2, text.size()))))
                    .lexically_normal()
                    .string();
    }
    return (folder / fs::path(text)).lexically_normal().string();
}

bool is_step_number(const std::string& text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

std::string read_source(const Field& field, DataSource& source, const toml::node& node, const Place& place) {
    if (const auto* text = node.as_string()) {
        if (text->get().empty()) return fmt::format("{} has an empty path", field.name());
        source = {absolute_path(text->get(), place.folder), 1.0};
        return {};
    }
    const toml::table* table = node.as_table();
    if (table == nullptr) {
        return fmt::format("{} wants paths or {{path = \"…\", weight = 1.0}} tables, not {}", field.name(),
                           describe(node));
    }
    for (const auto& [key, value] : *table) {
        if (key == "path" && value.is_string()) {
            source.path = absolute_path(value.as_string()->get(), place.folder);
        } else if (key == "weight") {
            const Field weight{.section = field.section, .key = "weight", .doc = {}, .min = 0, .min_excluded = true};
            std::string problem;
            source.weight = number_of(weight, value, "a number", problem);
            if (!problem.empty()) return problem;
        } else if (key == "path") {
            return fmt::format("path in {} wants text, not {}", field.name(), describe(value));
        } else {
            return fmt::format("unknown key '{}' in a table of {}; it has path, weight", key.str(), field.name());
        }
    }
    return source.path.empty() ? fmt::format("a table in {} has no path", field.name()) : std::string{};
}

}  // namespace

std::string range_text(const Field& field) {
    const bool low = std::isfinite(field.min);
    const bool high = std::isfinite(field.max) && field.max != kMaxSize;
    if (low && high) {
        return fmt::format("between {} and {}{}", field.min, field.max,
                           field.min_excluded && field.max_excluded ? " (both excluded)"
                           : field.max_excluded                     ? fmt::format(" ({} excluded)", field.max)
                           : field.min_excluded                     ? fmt::format(" ({} excluded)", field.min)
                                                                    : "");
    }
    if (low) return fmt::format("{} {}", field.min_excluded ? "more than" : "at least", field.min);
    return {};
}

std::string assign_value(const Field& field, std::string& target, const toml::node& node, const Place& place) {
    const auto* text = node.as_string();
    if (text == nullptr) return wrong_type(field, "text", node);
    const std::string& value = text->get();
    if (value.empty()) return fmt::format("{} is empty", field.name());
    switch (field.kind) {
        case FieldKind::value:
            target = value;
            break;
        case FieldKind::path:
            target = absolute_path(value, place.folder);
            break;
        case FieldKind::resume_spec:
            target = value == "auto" || value == "none" || is_step_number(value) ? value
                                                                                 : absolute_path(value, place.folder);
            break;
    }
    return {};
}

std::string assign_value(const Field& field, std::int64_t& target, const toml::node& node, const Place&) {
    const auto* integer = node.as_integer();
    if (integer == nullptr) {
        std::string message = wrong_type(field, "a whole number", node);
        const auto* number = node.as_floating_point();
        if (number != nullptr && std::abs(number->get()) < 1e15 && number->get() == std::floor(number->get())) {
            message += fmt::format("; write {}", static_cast<std::int64_t>(number->get()));
        }
        return message;
    }
    const std::int64_t value = integer->get();
    const double max = std::min(field.max, 0x1p53);
    if (static_cast<double>(value) < field.min) {
        return fmt::format("{} = {} is out of range: {}", field.name(), value, range_text(field));
    }
    if (static_cast<double>(value) > max) {
        return fmt::format("{} = {} is out of range: at most {}", field.name(), value, static_cast<std::int64_t>(max));
    }
    target = value;
    return {};
}

std::string assign_value(const Field& field, double& target, const toml::node& node, const Place&) {
    std::string problem;
    const double value = number_of(field, node, "a number", problem);
    if (problem.empty()) target = value;
    return problem;
}

std::string assign_value(const Field& field, bool& target, const toml::node& node, const Place&) {
    const auto* flag = node.as_boolean();
    if (flag == nullptr) return wrong_type(field, "true or false", node);
    target = flag->get();
    return {};
}

std::string assign_value(const Field& field, std::array<double, 2>& target, const toml::node& node, const Place&) {
    constexpr std::string_view kWanted = "a list of two numbers";
    const toml::array* list = node.as_array();
    if (list == nullptr) return wrong_type(field, kWanted, node);
    if (list->size() != 2) return fmt::format("{} wants {}, not {}", field.name(), kWanted, list->size());
    for (std::size_t i = 0; i < 2; ++i) {
        std::string problem;
        target[i] = number_of(field, *list->get(i), kWanted, problem);
        if (!problem.empty()) return problem;
    }
    return {};
}

std::string assign_value(const Field& field, std::vector<DataSource>& target, const toml::node& node,
                         const Place& place) {
    std::vector<DataSource> sources;
    if (const toml::array* list = node.as_array()) {
        for (const toml::node& element : *list) {
            std::string problem = read_source(field, sources.emplace_back(), element, place);
            if (!problem.empty()) return problem;
        }
    } else {
        std::string problem = read_source(field, sources.emplace_back(), node, place);
        if (!problem.empty()) return problem;
    }
    if (sources.empty() && field.presence == Presence::required)
        return fmt::format("{} is an empty list", field.name());
    target = std::move(sources);
    return {};
}

std::string assign_value(const Field& field, LossScale& target, const toml::node& node, const Place&) {
    if (const auto* text = node.as_string(); text != nullptr && text->get() == "dynamic") {
        target = LossScale{};
        return {};
    }
    std::string problem;
    const double value = number_of(field, node, "\"dynamic\" or a number", problem);
    if (problem.empty()) target = LossScale{.dynamic = false, .value = value};
    return problem;
}

std::string assign_value(const Field& field, BatchRampup& target, const toml::node& node, const Place& place) {
    constexpr std::string_view kWanted = "[start, increment, samples]";
    const toml::array* list = node.as_array();
    if (list == nullptr) return wrong_type(field, kWanted, node);
    if (list->size() != 3) return fmt::format("{} wants {}, not {} values", field.name(), kWanted, list->size());
    BatchRampup rampup;
    std::int64_t* const values[] = {&rampup.start, &rampup.increment, &rampup.samples};
    for (std::size_t i = 0; i < 3; ++i) {
        std::string problem = assign_value(field, *values[i], *list->get(i), place);
        if (!problem.empty()) return problem;
    }
    target = rampup;
    return {};
}

Choice choose(const Field& field, const std::vector<std::string_view>& choices, const toml::node& node) {
    std::vector<std::string> quoted;
    for (std::string_view choice : choices) quoted.push_back(fmt::format("\"{}\"", choice));
    const auto* text = node.as_string();
    if (text == nullptr) return {wrong_type(field, fmt::format("{}", fmt::join(quoted, ", ")), node), 0};
    const std::string& value = text->get();
    const auto found = std::find(choices.begin(), choices.end(), value);
    if (found != choices.end()) return {{}, static_cast<std::size_t>(found - choices.begin())};
    std::string_view planned = field.planned;
    while (!planned.empty()) {
        const std::size_t comma = std::min(planned.find(','), planned.size());
        if (planned.substr(0, comma) == value) {
            return {fmt::format("{} = \"{}\" is not available in this version; use {}", field.name(), value,
                                fmt::join(quoted, " or ")),
                    0};
        }
        planned.remove_prefix(std::min(comma + 1, planned.size()));
    }
    std::string message = fmt::format("{} = {} is unknown; ", field.name(), written(value));
    for (std::string_view choice : choices) {
        if (edit_distance(value, choice) <= 2 && choices.size() > 1) {
            message += fmt::format("did you mean \"{}\"? ", choice);
            break;
        }
    }
    return {message + fmt::format("use {}", fmt::join(quoted, " or ")), 0};
}

}  // namespace tessera::train

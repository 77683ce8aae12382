#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "train/config.h"
#include "train/config_assign.h"
#include "train/config_fields.h"

namespace tessera::train {
namespace {

/// True where a value stands for "not given": it is left out when the config is written.
bool is_unset(const Field& field, std::int64_t value) {
    return value == 0 && field.min > 0;
}
bool is_unset(const Field& field, double value) {
    return value == 0 && field.min == 0 && field.min_excluded;
}
bool is_unset(const Field&, const std::string& value) {
    return value.empty();
}
bool is_unset(const Field&, const std::vector<DataSource>& value) {
    return value.empty();
}
bool is_unset(const Field&, const BatchRampup& value) {
    return !value.given();
}
template <typename T>
bool is_unset(const Field&, const T&) {
    return false;
}

std::string with_range(const Field& field, std::string type) {
    const std::string range = range_text(field);
    return range.empty() ? type : type + " " + range;
}

std::string type_text(const Field& field, const std::string&) {
    return field.kind == FieldKind::path ? "path" : "text";
}
std::string type_text(const Field& field, std::int64_t) {
    return with_range(field, "whole number");
}
std::string type_text(const Field& field, double) {
    return with_range(field, "number");
}
std::string type_text(const Field&, bool) {
    return "true or false";
}
std::string type_text(const Field& field, const std::array<double, 2>&) {
    return with_range(field, "two numbers");
}
std::string type_text(const Field&, const std::vector<DataSource>&) {
    return "path or list";
}
std::string type_text(const Field& field, const LossScale&) {
    return with_range(field, "\"dynamic\" or a number");
}
std::string type_text(const Field&, const BatchRampup&) {
    return "three whole numbers";
}
template <typename E>
requires std::is_enum_v<E> std::string type_text(const Field&, E) {
    std::vector<std::string_view> names;
    for (const auto& entry : EnumNames<E>::kAll) names.push_back(entry.name);
    return fmt::format("{}", fmt::join(names, ", "));
}

template <typename T>
std::string default_of(const Field& field, const T& value) {
    if (field.presence == Presence::required) return "required";
    if (!field.default_text.empty()) return std::string(field.default_text);
    return fmt::format("`{}`", written(value));
}

}  // namespace

std::string written(std::int64_t value) {
    return fmt::format("{}", value);
}

std::string written(double value) {
    std::string text = fmt::format("{}", value);
    if (std::isfinite(value) && text.find_first_of(".e") == std::string::npos) text += ".0";
    return text;
}

std::string written(bool value) {
    return value ? "true" : "false";
}

std::string written(const std::string& value) {
    std::string text = "\"";
    for (const char c : value) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            text += '\\';
            text += c;
        } else if (c == '\n') {
            text += "\\n";
        } else if (c == '\t') {
            text += "\\t";
        } else if (byte < 0x20 || byte == 0x7f) {
            text += fmt::format("\\u{:04X}", byte);
        } else {
            text += c;
        }
    }
    return text + "\"";
}

std::string written(const std::array<double, 2>& value) {
    return fmt::format("[{}, {}]", written(value[0]), written(value[1]));
}

std::string written(const std::vector<DataSource>& value) {
    std::vector<std::string> parts;
    for (const DataSource& source : value) {
        parts.push_back(source.weight == 1.0 ? written(source.path)
                                             : fmt::format("{{path = {}, weight = {}}}", written(source.path),
                                                           written(source.weight)));
    }
    return fmt::format("[{}]", fmt::join(parts, ", "));
}

std::string written(const LossScale& value) {
    return value.dynamic ? "\"dynamic\"" : written(value.value);
}

std::string written(const BatchRampup& value) {
    return fmt::format("[{}, {}, {}]", value.start, value.increment, value.samples);
}

std::string to_toml(const Config& config) {
    std::string text;
    std::string_view section;
    for_each_field(config, [&](const Field& field, const auto& value) {
        if (is_unset(field, value) || (field.applies != nullptr && !field.applies(config))) return;
        if (field.section != section) {
            section = field.section;
            text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
        }
        text += fmt::format("{} = {}\n", field.key, written(value));
    });
    return text;
}

std::string config_reference() {
    std::string text;
    std::string_view section;
    const Config defaults;
    for_each_field(defaults, [&](const Field& field, const auto& value) {
        if (field.section != section) {
            section = field.section;
            text += fmt::format("{}**`[{}]`**\n\n| Key | Value | Default | Meaning |\n|---|---|---|---|\n",
                                text.empty() ? "" : "\n", section);
        }
        std::string type = type_text(field, value);
        std::string doc(field.doc);
        if (!field.applies_when.empty()) doc += fmt::format(" (only {})", field.applies_when);
        if (field.availability == Availability::default_only)
            type = fmt::format("only {} in this version", written(value));
        text += fmt::format("| `{}` | {} | {} | {} |\n", field.key, type, default_of(field, value), doc);
    });
    return text;
}

}  // namespace tessera::train

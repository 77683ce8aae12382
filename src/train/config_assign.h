#pragma once
#include <toml++/toml.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <type_traits>
#include <vector>

#include "train/config.h"
#include "train/config_fields.h"

// From a TOML value to a member of Config. Internal to src/train.

namespace tessera::train {

enum class Source : std::uint8_t { file, command_line };

struct Place {
    std::string where;             ///< "gpt2.toml:14" or "--model.num_layers"
    std::filesystem::path folder;  ///< relative paths start here
    Source source = Source::file;
};

/// Each sets the target and returns nothing, or says what is wrong with the value.
std::string assign_value(const Field& field, std::string& target, const toml::node& node, const Place& place);
std::string assign_value(const Field& field, std::int64_t& target, const toml::node& node, const Place& place);
std::string assign_value(const Field& field, double& target, const toml::node& node, const Place& place);
std::string assign_value(const Field& field, bool& target, const toml::node& node, const Place& place);
std::string assign_value(const Field& field, std::array<double, 2>& target, const toml::node& node, const Place& place);
std::string assign_value(const Field& field, std::vector<DataSource>& target, const toml::node& node,
                         const Place& place);
std::string assign_value(const Field& field, LossScale& target, const toml::node& node, const Place& place);
std::string assign_value(const Field& field, BatchRampup& target, const toml::node& node, const Place& place);

/// `choices` are the spellings of the type's values; the index of the one given.
struct Choice {
    std::string problem;
    std::size_t index = 0;
};
Choice choose(const Field& field, const std::vector<std::string_view>& choices, const toml::node& node);

template <typename E>
requires std::is_enum_v<E> std::string assign_value(const Field& field, E& target, const toml::node& node,
                                                    const Place&) {
    std::vector<std::string_view> choices;
    for (const auto& entry : EnumNames<E>::kAll) choices.push_back(entry.name);
    Choice choice = choose(field, choices, node);
    if (choice.problem.empty()) target = EnumNames<E>::kAll[choice.index].value;
    return choice.problem;
}

/// As it would stand in a config file.
std::string written(std::int64_t value);
std::string written(double value);
std::string written(bool value);
std::string written(const std::string& value);
std::string written(const std::array<double, 2>& value);
std::string written(const std::vector<DataSource>& value);
std::string written(const LossScale& value);
std::string written(const BatchRampup& value);
template <typename E>
requires std::is_enum_v<E> std::string written(E value) {
    for (const auto& entry : EnumNames<E>::kAll) {
        if (entry.value == value) return written(std::string(entry.name));
    }
    return "?";
}

/// "at least 1", "between 0 and 1 (1 excluded)"; empty if there is no limit.
std::string range_text(const Field& field);

}  // namespace tessera::train

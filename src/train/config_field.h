#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "train/config.h"

// What the list of config keys says of each key. Internal to src/train.

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

}  // namespace tessera::train

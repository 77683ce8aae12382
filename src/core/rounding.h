#pragma once
#include <cstdint>

namespace tessera::core {

/// The smallest multiple of `multiple` (> 0) that is at least `value` (>= 0).
constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

/// How many times `part` (> 0) is needed to hold `whole` (>= 0).
constexpr std::int64_t ceil_div(std::int64_t whole, std::int64_t part) {
    return (whole + part - 1) / part;
}

}  // namespace tessera::core

#pragma once
#include <CLI/CLI.hpp>
#include <charconv>
#include <limits>
#include <string>

namespace tessera::apps {

/// Accepts a whole number from `least` to the largest that T holds. CLI11 by itself wraps -1 to the largest unsigned
/// number and caps what does not fit.
template <typename T>
CLI::Validator whole_number(T least) {
    return {[least](std::string& text) -> std::string {
                T value{};
                const char* end = text.data() + text.size();
                const auto [stop, error] = std::from_chars(text.data(), end, value);
                if (error == std::errc() && stop == end && value >= least) return "";
                return "'" + text + "' is not a whole number from " + std::to_string(least) + " to " +
                       std::to_string(std::numeric_limits<T>::max());
            },
            ""};
}

}  // namespace tessera::apps

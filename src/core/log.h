#pragma once
#include <string_view>

namespace tessera::core {

/// Messages for people go to stderr; results go to stdout and never through here.
enum class LogLevel { debug, info, warning, error };

void log(LogLevel level, std::string_view message);
inline void log_info(std::string_view message) {
    log(LogLevel::info, message);
}
inline void log_warning(std::string_view message) {
    log(LogLevel::warning, message);
}

}  // namespace tessera::core

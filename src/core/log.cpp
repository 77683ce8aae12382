#include "core/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace tessera::core {
namespace {

spdlog::logger& logger() {
    static const auto instance = [] {
        auto made = spdlog::stderr_color_mt("tessera");
        made->set_pattern("[%Y-%m-%d %H:%M:%S] %^%l%$: %v");
        return made;
    }();
    return *instance;
}

}  // namespace

void log(LogLevel level, std::string_view message) {
    switch (level) {
        case LogLevel::debug:
            logger().debug(message);
            break;
        case LogLevel::info:
            logger().info(message);
            break;
        case LogLevel::warning:
            logger().warn(message);
            break;
        case LogLevel::error:
            logger().error(message);
            break;
    }
}

}  // namespace tessera::core

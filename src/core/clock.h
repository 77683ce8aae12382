#pragma once
#include <chrono>

namespace tessera::core {

/// Seconds of a clock that never goes back.
inline double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace tessera::core

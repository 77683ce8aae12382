#pragma once
#include <cstdint>
#include <string_view>

namespace tessera::core {

/// Where a tensor lives. `meta` counts memory and work and computes nothing.
enum class DeviceType : std::uint8_t { cpu, meta };

std::string_view name_of(DeviceType type);

}  // namespace tessera::core

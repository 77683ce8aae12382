#include "core/philox.h"

#include <cmath>
#include <numbers>

namespace tessera::core {

double normal_at(std::uint64_t seed, std::uint64_t tensor_hash, std::uint64_t index) {
    // A pair of elements shares one radius and one angle. 32 bits of radius reach 6.6 standard deviations.
    const std::uint64_t pair = index / 2;
    const auto hash32 = static_cast<std::uint32_t>(tensor_hash ^ (tensor_hash >> 32));
    const auto words = philox4x32_10({static_cast<std::uint32_t>(pair), static_cast<std::uint32_t>(pair >> 32), hash32,
                                      static_cast<std::uint32_t>(RandomPurpose::initialisation) << 24},
                                     philox_key(seed));
    const double radius = std::sqrt(-2.0 * std::log(uniform_open_closed(words[0])));
    const double angle = 2.0 * std::numbers::pi * uniform_open_closed(words[1]);
    return radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

}  // namespace tessera::core

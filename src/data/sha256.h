#pragma once
#include <string>
#include <string_view>

namespace tessera::data {

/// SHA-256 (FIPS 180-4, section 6.2) of `bytes`, as 64 lower-case hexadecimal digits.
std::string sha256_hex(std::string_view bytes);

}  // namespace tessera::data

#pragma once
#include <string>
#include <string_view>

namespace tessera::data::test {

/// One gzip member.
std::string gzip_of(std::string_view text);
/// One zstd frame with a checksum.
std::string zstd_of(std::string_view text);

}  // namespace tessera::data::test

#pragma once

namespace tessera::train {

/// The program's version, saved with every checkpoint.
inline constexpr const char* kVersion = TESSERA_VERSION;

}  // namespace tessera::train

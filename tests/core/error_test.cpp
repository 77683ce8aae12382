#include "core/error.h"

#include <gtest/gtest.h>

namespace tessera::core {
namespace {

TEST(Error, IsOneLineWhateverItQuotes) {
    try {
        raise<ConfigError>("unknown key '{}' in '{}'", "run.[data]\ntrain\r", "naïve\t\x1b[31m.toml");
    } catch (const ConfigError& error) {
        EXPECT_STREQ(error.what(), "unknown key 'run.[data] train ' in 'naïve  [31m.toml'");
        EXPECT_EQ(error.exit_code(), ExitCode::user_error);
    }
}

}  // namespace
}  // namespace tessera::core

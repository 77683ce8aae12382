#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "train/config.h"

namespace tessera::train {
namespace {

TEST(Readme, HoldsTheConfigReferenceAsItIs) {
    std::ifstream in(std::string(TESSERA_SOURCE_DIR) + "/README.md");
    const std::string readme{std::istreambuf_iterator<char>(in), {}};
    const std::string begin = "<!-- config reference: begin -->\n";
    const std::size_t first = readme.find(begin);
    const std::size_t last = readme.find("<!-- config reference: end -->");
    ASSERT_NE(first, std::string::npos);
    ASSERT_NE(last, std::string::npos);
    EXPECT_EQ(readme.substr(first + begin.size(), last - first - begin.size()), config_reference())
            << "run scripts/update_readme";
}

}  // namespace
}  // namespace tessera::train

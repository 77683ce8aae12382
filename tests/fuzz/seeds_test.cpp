// Every kept seed through its fuzzer's harness, without the fuzzer: an input that once broke something does not again.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace tessera {
namespace {

TEST(Seeds, NoneBreaksTheReader) {
    std::vector<std::filesystem::path> seeds;
    for (const auto& entry : std::filesystem::directory_iterator(TESSERA_SEEDS)) seeds.push_back(entry.path());
    std::sort(seeds.begin(), seeds.end());
    EXPECT_GE(seeds.size(), 5U) << TESSERA_SEEDS;
    for (const std::filesystem::path& seed : seeds) {
        // A harness ends the program where a law is broken: the last line names the input.
        std::fprintf(stderr, "%s\n", seed.c_str());
        std::ifstream in(seed, std::ios::binary);
        const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
        // A copy of the exact size: the address sanitizer sees a read beyond it.
        const std::vector<std::uint8_t> exact(bytes.begin(), bytes.end());
        EXPECT_EQ(LLVMFuzzerTestOneInput(exact.data(), exact.size()), 0) << seed;
    }
}

}  // namespace
}  // namespace tessera

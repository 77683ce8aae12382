#include "data/tokenizer_model_check.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace tessera::data {
namespace {

/// A model of the fuzzer's seeds that SentencePiece made with rules of its own: é becomes e, Ⅳ IV, Ａ A.
std::string normalised_model() {
    std::ifstream in(std::string(TESSERA_SOURCE_DIR) + "/tests/fuzz/seeds/tokenizer/normalised", std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

std::string field(int number, const std::string& content) {
    std::string bytes(1, static_cast<char>(number << 3 | 2));
    for (std::size_t size = content.size(); true; size >>= 7) {
        bytes += static_cast<char>((size & 0x7F) | (size > 0x7F ? 0x80 : 0));
        if (size <= 0x7F) break;
    }
    return bytes + content;
}

/// A model that is nothing but rules: a trie of these units, and strings.
std::string rules(std::vector<std::uint32_t> units, const std::string& text) {
    units.resize((units.size() + 255) / 256 * 256, 1U << 31);
    std::string map;
    const auto put = [&](std::uint32_t value) {
        for (int k = 0; k < 4; ++k) map += static_cast<char>(value >> (8 * k));
    };
    put(static_cast<std::uint32_t>(4 * units.size()));
    for (const std::uint32_t unit : units) put(unit);
    return field(3, field(2, map + text));
}

constexpr std::uint32_t kRuleEnds = 1U << 8;
constexpr std::uint32_t offset(std::uint32_t value) {
    return value << 10;
}

/// "a" becomes the string at byte 0: the root leads to base 1, its child by 'a' stands at 1 ^ 'a', whose base is 2.
std::vector<std::uint32_t> one_rule() {
    std::vector<std::uint32_t> units(256, 1U << 31);
    units[0] = offset(1);
    units[1 ^ 'a'] = 'a' | kRuleEnds | offset(1 ^ 'a' ^ 2);
    units[2] = 1U << 31;
    return units;
}

const std::string kText("x\0", 2);

TEST(TokenizerModelCheck, RealRulesAreSound) {
    EXPECT_GT(normalised_model().size(), 5000U);
    EXPECT_EQ(tokenizer_model_fault(normalised_model()), "");
    EXPECT_EQ(tokenizer_model_fault(rules(one_rule(), kText)), "");
    EXPECT_EQ(tokenizer_model_fault(""), "");
}

TEST(TokenizerModelCheck, ATrieThatLeadsOutsideIsRefused) {
    std::vector<std::uint32_t> units = one_rule();
    units[1 ^ 'a'] = 'a' | offset(1 << 15);
    EXPECT_NE(tokenizer_model_fault(rules(units, kText)), "");
    units = one_rule();
    units[0] = offset(256);
    EXPECT_NE(tokenizer_model_fault(rules(units, kText)), "");
}

TEST(TokenizerModelCheck, ATrieWithoutEndIsRefused) {
    std::vector<std::uint32_t> units = one_rule();
    // By 'a' one comes back to the base one came from.
    units[1 ^ 'a'] = 'a' | offset('a');
    EXPECT_NE(tokenizer_model_fault(rules(units, kText)), "");
}

TEST(TokenizerModelCheck, ARuleWithoutAStringIsRefused) {
    std::vector<std::uint32_t> units = one_rule();
    units[2] = 1U << 31 | 2;
    EXPECT_NE(tokenizer_model_fault(rules(units, kText)), "");
    EXPECT_NE(tokenizer_model_fault(rules(one_rule(), "x")), "");
}

/// The library keeps 32 rules for one place of a text, whatever the trie says.
TEST(TokenizerModelCheck, MoreRulesForOnePlaceThanTheLibraryHoldsAreRefused) {
    for (const std::uint32_t length : {32U, 33U}) {
        // "a", "aa", "aaa", ... are rules: base k leads to base k + 1 by 'a'. Bases stay apart in steps of 256.
        std::vector<std::uint32_t> units(256 * 40, 1U << 31);
        units[0] = offset(256);
        for (std::uint32_t k = 1; k <= length; ++k) {
            const std::uint32_t at = (256 * k) ^ 'a';
            units[at] = 'a' | kRuleEnds | offset(at ^ (256 * (k + 1)));
        }
        EXPECT_EQ(tokenizer_model_fault(rules(units, kText)).empty(), length == 32) << length;
    }
}

TEST(TokenizerModelCheck, DamagedRulesAreSeen) {
    const std::string sound = normalised_model();
    std::int64_t refused = 0;
    for (std::size_t at = 0; at < sound.size(); at += 7) {
        std::string damaged = sound;
        damaged[at] = static_cast<char>(damaged[at] ^ 0x5A);
        refused += tokenizer_model_fault(damaged).empty() ? 0 : 1;
    }
    EXPECT_GT(refused, 10);
}

}  // namespace
}  // namespace tessera::data

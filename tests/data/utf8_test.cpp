#include "data/utf8.h"

#include <gtest/gtest.h>

namespace tessera::data {
namespace {

struct Repaired {
    std::string text;
    std::int64_t replaced;
    std::int64_t first_offset;
};

Repaired repaired(std::string_view bytes, std::size_t piece_bytes) {
    Utf8Repair repair;
    std::string text;
    for (std::size_t at = 0; at < bytes.size(); at += piece_bytes) repair.append(bytes.substr(at, piece_bytes), text);
    repair.finish(text);
    return {text, repair.replaced(), repair.first_offset()};
}

TEST(Utf8Repair, result_does_not_depend_on_the_cuts) {
    const std::string bytes =
            "ab\xFFzw\xC3\xA9\x80 \xED\xA0\x80 \xF0\x9F\x98\x80\xE2\x82 long enough ascii run here \xF4\x90\x80\x80 "
            "end\xE2\x96";
    const Repaired whole = repaired(bytes, bytes.size());
    for (std::size_t piece = 1; piece < bytes.size(); ++piece) {
        const Repaired cut = repaired(bytes, piece);
        EXPECT_EQ(cut.text, whole.text) << piece;
        EXPECT_EQ(cut.replaced, whole.replaced) << piece;
        EXPECT_EQ(cut.first_offset, 2) << piece;
    }
}

TEST(Utf8Repair, valid_text_of_every_length_passes) {
    const std::string text =
            "a\xC2\x80\xDF\xBF\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF\xF0\x90\x80\x80\xF4\x8F\xBF\xBF\xE2\x96"
            "\x81";
    EXPECT_EQ(repaired(text, 1).text, text);
    EXPECT_EQ(repaired(text, 1).replaced, 0);
    EXPECT_EQ(repaired(text, 1).first_offset, -1);
    EXPECT_EQ(repaired("", 1).text, "");
}

TEST(Utf8Repair, maximal_subparts_become_one_character) {
    EXPECT_EQ(repaired("\xF0\x9F\x98|", 9).text, "\uFFFD|");
    EXPECT_EQ(repaired("\xC0\xAF|", 9).text, "\uFFFD\uFFFD|");
    EXPECT_EQ(repaired("\xE0\x80\x80|", 9).replaced, 3);
    EXPECT_EQ(repaired("\xED\xBF\xBF|", 9).replaced, 1);
    EXPECT_EQ(repaired("\xE2\x82", 9).text, "\uFFFD");
}

TEST(Utf8, blank_text) {
    EXPECT_TRUE(is_blank(""));
    EXPECT_TRUE(is_blank(" \n\t\r\n"));
    EXPECT_FALSE(is_blank(" \n.\n"));
}

}  // namespace
}  // namespace tessera::data

#include "train/event_file.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace tessera::train {
namespace {

using namespace std::string_literals;

std::string ascending(int count) {
    std::string bytes;
    for (int i = 0; i < count; ++i) bytes += static_cast<char>(i);
    return bytes;
}

/// RFC 3720, appendix B.4, and the check value of the catalogue of CRCs.
TEST(EventFile, Crc32cOfKnownTexts) {
    EXPECT_EQ(crc32c(""), 0U);
    EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
    EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
    EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
    EXPECT_EQ(crc32c(ascending(32)), 0x46dd794eU);
    const std::string forward = ascending(32);
    EXPECT_EQ(crc32c(std::string(forward.rbegin(), forward.rend())), 0x113fdb5cU);
}

TEST(EventFile, ARecordFramesItsData) {
    const std::string record = tf_record("abc");
    ASSERT_EQ(record.size(), 8U + 4U + 3U + 4U);
    EXPECT_EQ(record.substr(0, 8), "\x03\0\0\0\0\0\0\0"s);
    EXPECT_EQ(record.substr(12, 3), "abc");
    const auto word_at = [&](std::size_t at) {
        std::uint32_t word = 0;
        for (std::size_t i = 0; i < 4; ++i) {
            word |= static_cast<std::uint32_t>(static_cast<unsigned char>(record[at + i])) << (8 * i);
        }
        return word;
    };
    const auto unmasked = [](std::uint32_t masked) {
        const std::uint32_t rotated = masked - 0xa282ead8U;
        return (rotated >> 17U) | (rotated << 15U);
    };
    EXPECT_EQ(unmasked(word_at(8)), crc32c(record.substr(0, 8)));
    EXPECT_EQ(unmasked(word_at(15)), crc32c("abc"));
}

/// Bytes worked out by hand from the protocol buffers' encoding; 1.5 is 0x3ff8000000000000, 0.25f is 0x3e800000.
TEST(EventFile, EventsAreTheseBytes) {
    const std::string wall = "\x09\0\0\0\0\0\0\xf8\x3f"s;
    EXPECT_EQ(file_version_event(1.5), wall + "\x1a\x0d" + "brain.Event:2");
    EXPECT_EQ(session_start_event(1.5, 300), wall + "\x10\xac\x02" + "\x3a\x02\x08\x01");
    const std::array<Scalar, 2> scalars = {{{"a", 0.25}, {"lm loss", -2}}};
    EXPECT_EQ(scalars_event(1.5, 7, scalars), wall + "\x10\x07" + "\x2a\x1a" +
                                                      "\x0a\x08\x0a\x01"
                                                      "a\x15\x00\x00\x80\x3e"s +
                                                      "\x0a\x0e\x0a\x07lm loss\x15\x00\x00\x00\xc0"s);
}

TEST(EventFile, LongLengthsTakeMoreBytes) {
    const std::string tag(200, 't');
    const std::array<Scalar, 1> scalars = {{{tag, 1}}};
    const std::string event = scalars_event(0, 0, scalars);
    // The summary holds one value of 208 bytes, the value a tag of 200: each length needs two bytes.
    EXPECT_NE(event.find("\x2a\xd3\x01\x0a\xd0\x01\x0a\xc8\x01ttt"), std::string::npos);
}

}  // namespace
}  // namespace tessera::train

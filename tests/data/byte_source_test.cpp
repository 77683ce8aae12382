#include "data/byte_source.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "data/data_support.h"
#include "data/packed_support.h"

namespace tessera::data {
namespace {

using test::gzip_of;
using test::message_of;
using test::TemporaryFolder;
using test::zstd_of;
using ::testing::HasSubstr;

std::string content_of(const std::string& path, std::size_t step = 1000) {
    ByteSource source(path);
    std::string content;
    std::string block(step, '\0');
    for (std::size_t count = source.read(block); count > 0; count = source.read(block)) content.append(block, 0, count);
    EXPECT_EQ(source.read(block), 0U) << "the end stays the end";
    EXPECT_EQ(source.file_bytes_read(), static_cast<std::int64_t>(test::read_file(path).size()));
    return content;
}

/// Text that does not pack well, so that a packed file has many blocks.
std::string varied_text(std::size_t bytes) {
    std::string text(bytes, '\0');
    std::uint32_t state = 1;
    for (char& c : text) {
        state = state * 1664525U + 1013904223U;
        c = static_cast<char>('a' + (state >> 24) % 26);
    }
    return text;
}

TEST(ByteSource, any_packing_gives_the_same_content_for_any_size_of_read) {
    const TemporaryFolder folder;
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{70000}, std::size_t{3} << 20}) {
        const std::string text = varied_text(bytes);
        const std::string half = text.substr(0, bytes / 2);
        const std::string rest = text.substr(bytes / 2);
        // The second frame is one to skip.
        const std::string skipped("\x5A\x2A\x4D\x18\x03\x00\x00\x00xyz", 11);
        const std::string files[] = {folder.file("plain", text),
                                     folder.file("one.gz", gzip_of(text)),
                                     folder.file("two.gz", gzip_of(half) + gzip_of("") + gzip_of(rest)),
                                     folder.file("padded.gz", gzip_of(text) + std::string(600000, '\0')),
                                     folder.file("one.zst", zstd_of(text)),
                                     folder.file("two.zst", zstd_of(half) + skipped + zstd_of("") + zstd_of(rest)),
                                     folder.file("skip_first.zst", skipped + zstd_of(text))};
        for (const std::string& path : files) {
            for (const std::size_t step : {std::size_t{1000}, std::size_t{1} << 20}) {
                EXPECT_TRUE(content_of(path, step) == text) << path << " of " << bytes << " in steps of " << step;
            }
            EXPECT_EQ(unpacked_bytes(path), static_cast<std::int64_t>(bytes)) << path;
        }
    }
}

TEST(ByteSource, a_file_cut_anywhere_is_an_error_that_names_its_end) {
    const TemporaryFolder folder;
    const std::string text = varied_text(300000);
    for (const std::string& packed : {gzip_of(text), zstd_of(text)}) {
        for (const std::size_t kept :
             {std::size_t{4}, std::size_t{9}, packed.size() / 2, packed.size() - 9, packed.size() - 1}) {
            const std::string path = folder.file("cut", packed.substr(0, kept));
            EXPECT_THAT(message_of<core::DataError>([&] { content_of(path); }),
                        HasSubstr(fmt::format("{} is cut off: it ends at byte {}", path, kept)));
        }
    }
}

std::int64_t offset_in(const std::string& message) {
    const std::size_t at = message.find("at byte ");
    return at == std::string::npos ? -1 : std::stoll(message.substr(at + 8));
}

TEST(ByteSource, a_damage_is_located) {
    const TemporaryFolder folder;
    const std::string text = varied_text(600000);
    for (const std::string& packed : {gzip_of(text), zstd_of(text)}) {
        std::string damaged = packed;
        for (std::size_t k = 0; k < 200; ++k) damaged[packed.size() / 2 + k] ^= 0x55;
        const std::string path = folder.file("damaged", damaged);
        const std::string message = message_of<core::DataError>([&] { content_of(path); });
        EXPECT_THAT(message, HasSubstr(path + " holds damaged "));
        // A bit stream may make sense for a while longer, until its checksum at the latest.
        EXPECT_GT(offset_in(message), static_cast<std::int64_t>(packed.size() / 2) - (128 << 10)) << message;
        EXPECT_LE(offset_in(message), static_cast<std::int64_t>(packed.size())) << message;
    }
}

TEST(ByteSource, a_wrong_checksum_and_bytes_after_the_end_are_errors) {
    const TemporaryFolder folder;
    std::string wrong = gzip_of("some text");
    wrong[wrong.size() - 8] ^= 1;
    EXPECT_THAT(message_of<core::DataError>([&] { content_of(folder.file("a", wrong)); }),
                HasSubstr("incorrect data check"));
    wrong = zstd_of("some text");
    wrong[wrong.size() - 1] ^= 1;
    EXPECT_THAT(message_of<core::DataError>([&] { content_of(folder.file("a", wrong)); }), HasSubstr("damaged zstd"));
    const std::string followed = gzip_of("some text") + "more than nothing";
    EXPECT_EQ(offset_in(message_of<core::DataError>([&] { content_of(folder.file("a", followed)); })),
              static_cast<std::int64_t>(gzip_of("some text").size()) + 2);
    EXPECT_THAT(
            message_of<core::DataError>([&] { content_of(folder.file("a", zstd_of("text") + "more than nothing")); }),
            HasSubstr("damaged zstd"));
}

TEST(ByteSource, other_packings_are_named) {
    const TemporaryFolder folder;
    const std::pair<std::string, const char*> cases[] = {{std::string("\xFD\x37\x7A\x58\x5A\x00", 6), "xz"},
                                                         {"BZh9\x31\x41\x59\x26\x53\x59", "bzip2"},
                                                         {"\x04\x22\x4D\x18", "lz4"},
                                                         {"PK\x03\x04", "zip"}};
    for (const auto& [head, name] : cases) {
        const std::string path = folder.file("packed", head + "...");
        EXPECT_EQ(message_of<core::DataError>([&] { ByteSource{path}; }).find(path + " is packed with " + name), 0U);
    }
    for (const char* text : {"BZh is a name", "PK", "\x1F"}) EXPECT_EQ(content_of(folder.file("plain", text)), text);
}

}  // namespace
}  // namespace tessera::data

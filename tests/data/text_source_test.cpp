#include "data/text_source.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "data/data_support.h"
#include "data/packed_support.h"

namespace tessera::data {
namespace {

using test::message_of;
using test::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Documents {
    std::vector<std::string> texts;
    TextCounts counts;
};

Documents documents_of(const TextSourceArgs& args) {
    TextSource source(args);
    Documents all;
    std::string document;
    while (source.next(document)) all.texts.push_back(document);
    EXPECT_EQ(source.bytes_read(), source.total_bytes());
    all.counts = source.counts();
    return all;
}

TEST(TextSource, separates_documents_and_keeps_their_text_exactly) {
    const TemporaryFolder folder;
    const std::string path = folder.file("a.txt", "one\n two\n\n\tthree  \n\nfour\n");
    EXPECT_THAT(documents_of({.paths = {path}}).texts, ElementsAre("one\n two", "\tthree  ", "four"));
    EXPECT_THAT(documents_of({.paths = {path}, .separator = ""}).texts,
                ElementsAre("one\n two\n\n\tthree  \n\nfour\n"));
    EXPECT_THAT(documents_of({.paths = {path, path}, .separator = " two"}).texts,
                ElementsAre("one\n", "\n\n\tthree  \n\nfour\n", "one\n", "\n\n\tthree  \n\nfour\n"));
}

TEST(TextSource, documents_longer_than_a_read_and_separators_across_reads) {
    const TemporaryFolder folder;
    for (const std::size_t length :
         {(std::size_t{1} << 20) - 1, std::size_t{1} << 20, (std::size_t{1} << 20) + 1, std::size_t{3} << 20}) {
        const std::string path = folder.file("big.txt", std::string(length, 'x') + "\n\ny");
        const Documents all = documents_of({.paths = {path}});
        ASSERT_EQ(all.texts.size(), 2U);
        EXPECT_EQ(all.texts[0].size(), length);
        EXPECT_EQ(all.texts[1], "y");
    }
}

TEST(TextSource, DA_01_empty_documents_are_skipped_and_counted) {
    const TemporaryFolder folder;
    const std::string path = folder.file("a.jsonl",
                                         "{\"text\":\"\"}\n{\"text\":\"a\"}\n{\"text\":\"\"}\n{\"text\":\"  "
                                         "\\n\"}\n{\"text\":\"b\"}\n{\"text\":\"\"}\n");
    const Documents all = documents_of({.paths = {path}});
    EXPECT_THAT(all.texts, ElementsAre("a", "b"));
    EXPECT_EQ(all.counts.empty_documents, 4);
    EXPECT_EQ(all.counts.documents, 2);
    EXPECT_EQ(all.counts.text_bytes, 2);
    EXPECT_EQ(documents_of({.paths = {folder.file("b.txt", "\n\n\n\na\n\n  \n\nb\n\n")}}).counts.empty_documents, 3);
}

TEST(TextSource, TX_04_nul_does_not_cut_the_text) {
    const TemporaryFolder folder;
    const std::string raw("ab\0cd", 5);
    EXPECT_THAT(documents_of({.paths = {folder.file("a.txt", raw)}}).texts, ElementsAre(raw));
    EXPECT_THAT(documents_of({.paths = {folder.file("a.jsonl", "{\"text\":\"ab\\u0000cd\"}")}}).texts,
                ElementsAre(raw));
}

TEST(TextSource, TX_07_bad_utf8_is_replaced_counted_and_located) {
    const TemporaryFolder folder;
    const std::string path = folder.file("a.txt",
                                         "good\xFF"
                                         "one\n\ntwo\x80\n\nthree\xED\xA0\x80 four\n\ncut\xE2\x82");
    const Documents all = documents_of({.paths = {path}});
    EXPECT_THAT(all.texts, ElementsAre("good\uFFFDone", "two\uFFFD", "three\uFFFD four", "cut\uFFFD"));
    EXPECT_EQ(all.counts.invalid_utf8, 4);
    EXPECT_EQ(all.counts.first_invalid_utf8, path + " at byte 4");
    const std::string refusal =
            message_of<core::DataError>([&] { documents_of({.paths = {path}, .invalid_utf8 = InvalidUtf8::refuse}); });
    EXPECT_THAT(refusal, HasSubstr(path + " at byte 4"));
}

TEST(TextSource, TX_07_lone_surrogate_escapes_in_json_are_replaced) {
    const TemporaryFolder folder;
    const std::string path =
            folder.file("a.jsonl", "{\"text\":\"x\\ud83d y\"}\n{\"text\":\"\\ud83d\\ude00 \\\\ud83d\"}\n");
    const Documents all = documents_of({.paths = {path}});
    EXPECT_THAT(all.texts, ElementsAre("x\uFFFD y", "\xF0\x9F\x98\x80 \\ud83d"));
    EXPECT_EQ(all.counts.invalid_utf8, 1);
}

TEST(TextSource, TX_08_byte_order_mark_is_dropped) {
    const TemporaryFolder folder;
    EXPECT_THAT(documents_of({.paths = {folder.file("a.txt", "\xEF\xBB\xBFone\n\ntwo")}}).texts,
                ElementsAre("one", "two"));
    EXPECT_THAT(documents_of({.paths = {folder.file("a.jsonl", "\xEF\xBB\xBF{\"text\":\"one\"}")}}).texts,
                ElementsAre("one"));
}

TEST(TextSource, TX_09_json_that_is_not_one_object_per_line_is_located) {
    const TemporaryFolder folder;
    const auto refusal = [&](const std::string& content) {
        const std::string path = folder.file("a.jsonl", content);
        const std::string message = message_of<core::DataError>([&] { documents_of({.paths = {path}}); });
        EXPECT_THAT(message, HasSubstr("one JSON object per line is expected"));
        return message.substr(std::min(message.size(), path.size()));
    };
    EXPECT_THAT(refusal("{\n  \"text\": \"a\"\n}\n"), HasSubstr(":1:2: "));
    EXPECT_THAT(refusal("[{\"text\": \"a\"}]\n"), HasSubstr(":1:1: this line is an array"));
    EXPECT_THAT(refusal("{\"text\":\"a\"}\n\n{\"text\":\"b"), HasSubstr(":3:11: "));
    EXPECT_THAT(refusal("{\"text\":5}"), HasSubstr("a string is expected"));
}

TEST(TextSource, TX_09_blank_and_long_lines_are_fine_and_malformed_ones_can_be_skipped) {
    const TemporaryFolder folder;
    const std::string path = folder.file(
            "a.jsonl", fmt::format("{{\"text\":\"a\"}}\r\n\n   \n{{\"text\":\"{}\"}}\nbroken\n{{\"text\":\"z\"}}",
                                   std::string(5000000, 'x')));
    const Documents all = documents_of({.paths = {path}, .malformed_jsonl = MalformedJsonl::skip});
    ASSERT_EQ(all.texts.size(), 3U);
    EXPECT_EQ(all.texts[1].size(), 5000000U);
    EXPECT_EQ(all.texts[2], "z");
    EXPECT_EQ(all.counts.malformed_lines, 1);
    EXPECT_EQ(all.counts.empty_documents, 0);
}

TEST(TextSource, TX_10_the_chosen_key_is_read) {
    const TemporaryFolder folder;
    const std::string path = folder.file(
            "a.jsonl",
            "{\"text\":\"t\",\"content\":\"c1\"}\n{\"text\":\"t\"}\n{\"content\":null}\n{\"content\":\"c2\"}\n");
    const Documents all = documents_of({.paths = {path}, .text_key = "content"});
    EXPECT_THAT(all.texts, ElementsAre("c1", "c2"));
    EXPECT_EQ(all.counts.lines_without_key, 2);
    const std::string refusal =
            message_of<core::DataError>([&] { documents_of({.paths = {path}, .text_key = "body"}); });
    EXPECT_THAT(refusal, HasSubstr("\"body\""));
    EXPECT_THAT(refusal, HasSubstr("content, text"));
}

TEST(TextSource, all_unreadable_paths_are_named_at_once) {
    const TemporaryFolder folder;
    const std::string packed = folder.file("packed.txt", "PK\x03\x04");
    const std::string message = message_of<core::DataError>([&] {
        TextSource({.paths = {folder.path("none"), packed, folder.path("")}});
    });
    EXPECT_THAT(message, HasSubstr(folder.path("none") + " no such file"));
    EXPECT_THAT(message, HasSubstr("packed.txt is packed with zip"));
    EXPECT_THAT(message, HasSubstr("is a folder"));
    EXPECT_THROW(TextSource({.paths = {}}), core::UsageError);
}

TEST(TextSource, packed_files_give_the_documents_of_plain_ones) {
    const TemporaryFolder folder;
    const std::string text = test::sample_text(500) + "\n\nbad \xFF";
    const std::string lines = "{\"text\":\"one\"}\n{\"text\":\"two\"}\n";
    const Documents plain = documents_of({.paths = {folder.file("a.txt", text)}});
    for (const std::string& path :
         {folder.file("a.txt.gz", test::gzip_of(text)), folder.file("a.zst", test::zstd_of(text)),
          folder.file("renamed.txt", test::zstd_of(text))}) {
        const Documents packed = documents_of({.paths = {path}});
        EXPECT_EQ(packed.texts, plain.texts);
        EXPECT_EQ(packed.counts.first_invalid_utf8,
                  fmt::format("{} at byte {} of the unpacked text", path, text.size() - 1));
    }
    for (const std::string& path :
         {folder.file("b.jsonl.gz", test::gzip_of(lines)), folder.file("b.ndjson.zst", test::zstd_of(lines)),
          folder.file("b.jsonl", test::gzip_of("\xEF\xBB\xBF" + lines))}) {
        EXPECT_THAT(documents_of({.paths = {path}}).texts, ElementsAre("one", "two")) << path;
    }
}

TEST(TextSource, escapes_of_separators) {
    EXPECT_EQ(unescaped("\\n\\t\\\\x\\x41"), "\n\t\\xA");
    EXPECT_EQ(unescaped("\\0").size(), 1U);
    EXPECT_THROW(unescaped("a\\q"), core::UsageError);
    EXPECT_THROW(unescaped("a\\"), core::UsageError);
}

}  // namespace
}  // namespace tessera::data

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "core/error.h"
#include "data/data_support.h"
#include "data/shard.h"

namespace tessera::data {
namespace {

using test::ForeignShard;
using test::Layout;
using test::message_of;
using test::TemporaryFolder;
using test::write_foreign;
using test::write_shard;
using ::testing::HasSubstr;
using ::testing::Not;

ShardReader open_one(const std::string& path, const ShardNames& names = {}) {
    return ShardReader::open(path, names, std::make_shared<OpenDatasets>());
}

std::vector<std::int32_t> all_tokens(const ShardReader& shard, std::int64_t vocab_size) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(shard.num_tokens()));
    shard.read(0, tokens, vocab_size);
    return tokens;
}

TEST(ShardReader, shards_of_others_are_read) {
    const TemporaryFolder folder;
    const std::vector<std::int64_t> values = test::counting(60, 100);
    write_foreign(folder.path("a.h5"), values,
                  {.dataset = "input_ids", .type = "i64", .layout = Layout::compressed, .row_length = 20});
    write_foreign(folder.path("b.h5"), values, {.dataset = "ids", .type = "u32be"});
    write_foreign(folder.path("c.h5"), values, {.dataset = "ids", .type = "i32"});
    const std::vector<std::int32_t> expected(values.begin(), values.end());
    EXPECT_EQ(all_tokens(open_one(folder.path("a.h5")), 100), expected);
    EXPECT_EQ(all_tokens(open_one(folder.path("b.h5"), {.tokens = "ids"}), 100), expected);
    EXPECT_EQ(all_tokens(open_one(folder.path("c.h5"), {.tokens = "ids"}), 100), expected);
    EXPECT_EQ(open_one(folder.path("a.h5")).num_documents(), -1);
    EXPECT_THAT(message_of<core::DataError>([&] { open_one(folder.path("c.h5")); }),
                HasSubstr("neither a dataset 'tokens' nor 'input_ids'"));
}

TEST(ShardReader, DA_09_opens_read_only_files_in_read_only_folders) {
    const TemporaryFolder folder;
    write_shard(folder.path("a.h5"), {{1, 2, 3}}, 10, 0);
    chmod(folder.path("a.h5").c_str(), 0444);
    chmod(folder.path("").c_str(), 0555);
    EXPECT_EQ(all_tokens(open_one(folder.path("a.h5")), 10), (std::vector<std::int32_t>{1, 2, 3, 0}));
    // Root may write whatever the modes say; a child process becomes somebody who may not.
    const pid_t child = fork();
    if (child == 0) {
        if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(3);
        if (access(folder.path("a.h5").c_str(), W_OK) == 0) _exit(4);
        _exit(all_tokens(open_one(folder.path("a.h5")), 10).size() == 4 ? 0 : 5);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    chmod(folder.path("").c_str(), 0755);
}

TEST(ShardReader, DA_10_all_bad_shards_are_listed_with_reasons) {
    const TemporaryFolder folder;
    std::vector<std::string> paths;
    for (int k = 0; k < 20; ++k) {
        paths.push_back(folder.path(fmt::format("s{:02}.h5", k)));
        write_shard(paths.back(), {std::vector<std::int32_t>(500, k)}, 100, 0);
    }
    std::filesystem::resize_file(paths[7], std::filesystem::file_size(paths[7]) / 2);
    std::filesystem::resize_file(paths[11], 0);
    folder.file("s13.h5", "just text\n");
    std::filesystem::remove(paths[15]);
    write_foreign(paths[16], {1, 2}, {.type = "f32"});
    write_foreign(paths[17], {});
    const std::string message = message_of<core::DataError>([&] { open_shards(paths, {}); });
    EXPECT_THAT(message, HasSubstr("6 of 20 shards"));
    EXPECT_THAT(message, HasSubstr(paths[7] + " is not a readable HDF5 file: truncated file"));
    EXPECT_THAT(message, HasSubstr(paths[11] + " is empty (0 bytes)"));
    EXPECT_THAT(message, HasSubstr(paths[13] + " is not a readable HDF5 file"));
    EXPECT_THAT(message, HasSubstr(paths[15] + " does not exist"));
    EXPECT_THAT(message, HasSubstr(paths[16] + " dataset 'tokens' does not hold integers"));
    EXPECT_THAT(message, HasSubstr(paths[17] + " holds no tokens"));
    EXPECT_THAT(message, Not(HasSubstr("\n")));
    EXPECT_THAT(message, Not(HasSubstr("s08.h5")));
}

TEST(ShardReader, DA_06_ids_beyond_the_vocabulary_are_located) {
    const TemporaryFolder folder;
    write_foreign(folder.path("a.h5"), {1, 2, 3, 4, 64, 5}, {.document_offsets = {0, 3, 6}});
    const ShardReader shard = open_one(folder.path("a.h5"));
    const std::string message = message_of<core::DataError>([&] { all_tokens(shard, 64); });
    EXPECT_THAT(message, HasSubstr("token id 64 in shard " + folder.path("a.h5") +
                                   ", document 1, offset 1 (token 4 of the shard)"));
    EXPECT_THAT(message, HasSubstr("vocabulary of 64"));
    EXPECT_EQ(all_tokens(shard, 65)[4], 64);
    write_foreign(folder.path("b.h5"), {1, -1}, {.type = "i32"});
    EXPECT_THAT(message_of<core::DataError>([&] { all_tokens(open_one(folder.path("b.h5")), 64); }),
                HasSubstr("token id -1"));
}

TEST(ShardReader, DA_13_offsets_must_cover_the_tokens) {
    const TemporaryFolder folder;
    write_foreign(folder.path("a.h5"), {1, 2, 3, 4}, {.document_offsets = {0, 3}});
    EXPECT_THAT(message_of<core::DataError>([&] { open_one(folder.path("a.h5")); }),
                HasSubstr("from 0 to 3, but must go from 0 to the number of tokens, 4"));
    write_foreign(folder.path("b.h5"), {1, 2, 3, 4}, {.document_offsets = {0, 3, 2, 4}});
    EXPECT_THROW(open_one(folder.path("b.h5")).check(), core::DataError);
}

TEST(ShardReader, documents_are_found_from_tokens) {
    const TemporaryFolder folder;
    write_shard(folder.path("a.h5"), {{1}, {1, 1, 1}, {}, {1, 1}}, 10, 0);
    const ShardReader shard = open_one(folder.path("a.h5"));
    ASSERT_EQ(shard.num_tokens(), 10);
    EXPECT_EQ(shard.document_starts(0, 10), (std::vector<std::int64_t>{0, 2, 6, 7}));
    EXPECT_EQ(shard.document_starts(2, 6), (std::vector<std::int64_t>{2}));
    EXPECT_EQ(shard.document_starts(3, 6), (std::vector<std::int64_t>{}));
    EXPECT_EQ(shard.document_starts(8, 10), (std::vector<std::int64_t>{}));
    const std::int64_t document_of_token[] = {0, 0, 1, 1, 1, 1, 2, 3, 3, 3};
    for (std::int64_t token = 0; token < 10; ++token)
        EXPECT_EQ(shard.place_of(token).document, document_of_token[token]);
    EXPECT_EQ(shard.place_of(4).offset, 2);
}

TEST(ShardReader, newer_formats_are_refused) {
    const TemporaryFolder folder;
    write_shard(folder.path("a.h5"), {{1}}, 10, 0);
    const hid_t file = H5Fopen(folder.path("a.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    const hid_t attribute = H5Aopen(file, "format_version", H5P_DEFAULT);
    const std::int64_t version = 2;
    H5Awrite(attribute, H5T_NATIVE_INT64, &version);
    H5Aclose(attribute);
    H5Fclose(file);
    EXPECT_THAT(message_of<core::DataError>([&] { open_one(folder.path("a.h5")); }),
                HasSubstr("format version 2, this program reads up to 1"));
}

TEST(ShardReader, any_range_of_a_table_is_read) {
    const TemporaryFolder folder;
    const std::vector<std::int64_t> values = test::counting(35, 100);
    write_foreign(folder.path("a.h5"), values, {.layout = Layout::chunked, .row_length = 7});
    const ShardReader shard = open_one(folder.path("a.h5"));
    EXPECT_FALSE(shard.is_mapped());
    for (std::size_t first = 0; first < values.size(); ++first) {
        for (std::size_t count = 0; first + count <= values.size(); ++count) {
            std::vector<std::int32_t> tokens(count);
            shard.read(static_cast<std::int64_t>(first), tokens, 100);
            EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), values.begin() + static_cast<std::ptrdiff_t>(first)))
                    << first << " " << count;
        }
    }
}

/// Shards that nobody should write: what they claim is neither believed nor allocated.
TEST(ShardReader, absurd_claims_are_refused) {
    const std::string folder = std::string(TESSERA_SOURCE_DIR) + "/tests/fuzz/seeds/shard/";
    for (const auto& [name, part] : std::vector<std::pair<std::string, std::string>>{
                 {"string_array", "attribute 'tokenizer_sha256' is not one string"},
                 {"variable_string_array", "attribute 'tokenizer_sha256' is not one string"},
                 {"integer_array_attribute", "attribute 'eod_id' is not one integer"},
                 {"overflowing_extent", "claims 1099511627776 x 1099511627776 elements of 2 bytes"}}) {
        EXPECT_THAT(message_of<core::DataError>([&] { open_one(folder + name); }), HasSubstr(part)) << name;
    }
    const ShardReader wide = open_one(folder + "sparse_wide_rows");
    std::vector<std::int32_t> tokens(5, 1);
    wide.read(wide.num_tokens() - 5, tokens, 10);
    EXPECT_EQ(tokens, std::vector<std::int32_t>(5, 0));
}

/// The library would read beyond its memory: it believes the sizes inside an attribute.
TEST(ShardReader, attributes_that_claim_too_much_are_refused) {
    const TemporaryFolder folder;
    write_shard(folder.path("sound.h5"), {{1, 2, 3}, {4, 5}}, 10, 0);
    const std::string sound = test::read_file(folder.path("sound.h5"));
    const std::size_t name = sound.find(std::string("eod_id\0", 7));
    ASSERT_NE(name, std::string::npos);
    // Before the name stand the bytes of name, type and extent; the type's message, 8 bytes on, holds the element size.
    for (const auto& [at, part] :
         std::vector<std::pair<std::size_t, std::string>>{{name - 4, "for its name, type and extent"},
                                                          {name - 2, "for its name, type and extent"},
                                                          {name + 8 + 4, "bytes are left for them"}}) {
        std::string damaged = sound;
        damaged[at] = static_cast<char>(damaged[at] + 64);
        const std::string path = folder.file("damaged.h5", damaged);
        EXPECT_THAT(message_of<core::DataError>([&] { open_one(path); }), HasSubstr(part)) << at - name;
    }
}

/// Metadata, tokens, offsets: whichever byte the disk gave back wrong, the shard is refused or read, and if what it
/// holds has changed, check() says so.
TEST(ShardReader, any_damaged_byte_is_survived) {
    const TemporaryFolder folder;
    write_shard(folder.path("sound.h5"), {{1, 2, 3}, {4, 5}}, 10, 0);
    const std::string sound = test::read_file(folder.path("sound.h5"));
    const std::vector<std::int32_t> tokens = all_tokens(open_one(folder.path("sound.h5")), 10);
    std::size_t refused = 0;
    // All of them pass; a third of them takes a third of the time.
    for (std::size_t at = 0; at < sound.size(); at += 3) {
        std::string damaged = sound;
        damaged[at] = static_cast<char>(damaged[at] ^ 0xFF);
        folder.file("damaged.h5", damaged);
        try {
            const ShardReader shard = open_one(folder.path("damaged.h5"));
            shard.check();
            EXPECT_EQ(all_tokens(shard, 10), tokens) << at;
        } catch (const core::Error&) {
            ++refused;
        }
    }
    EXPECT_GT(refused, 100U);
    EXPECT_LT(refused, sound.size() / 3);
}

}  // namespace
}  // namespace tessera::data

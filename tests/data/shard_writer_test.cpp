#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>

#include "core/error.h"
#include "data/data_support.h"
#include "data/shard.h"

namespace tessera::data {
namespace {

using test::message_of;
using test::TemporaryFolder;
using test::write_shard;
using ::testing::HasSubstr;

std::vector<std::int32_t> written(const std::string& path, std::int64_t vocab_size) {
    const ShardReader shard = ShardReader::open(path, {}, std::make_shared<OpenDatasets>());
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(shard.num_tokens()));
    shard.read(0, tokens, vocab_size);
    shard.check();
    return tokens;
}

TEST(ShardWriter, what_was_written_is_read_and_mapped) {
    const TemporaryFolder folder;
    write_shard(folder.path("a.h5"), {{5, 6}, {7}}, 65536, 65535, std::string(64, 'b'));
    EXPECT_EQ(written(folder.path("a.h5"), 65536), (std::vector<std::int32_t>{5, 6, 65535, 7, 65535}));
    const ShardReader shard = ShardReader::open(folder.path("a.h5"), {}, std::make_shared<OpenDatasets>());
    EXPECT_TRUE(shard.is_mapped());
    EXPECT_EQ(shard.storage_name(), "uint16");
    EXPECT_EQ(shard.num_documents(), 2);
    EXPECT_EQ(shard.identity().vocab_size, 65536);
    EXPECT_EQ(shard.identity().eod_id, 65535);
    EXPECT_EQ(shard.identity().tokenizer_sha256, std::string(64, 'b'));
    EXPECT_EQ(shard.text_bytes(), 9);
    EXPECT_EQ(folder.names(), std::vector<std::string>{"a.h5"});
}

TEST(ShardWriter, large_shards_are_mapped_too) {
    const TemporaryFolder folder;
    const std::vector<std::int32_t> document(200003, 3);
    write_shard(folder.path("a.h5"), {document, document}, 100, 0);
    EXPECT_EQ(written(folder.path("a.h5"), 100).size(), 400008U);
}

TEST(ShardWriter, DA_05_storage_follows_the_vocabulary) {
    const TemporaryFolder folder;
    write_shard(folder.path("a.h5"), {{65541}}, 70000, 0);
    EXPECT_EQ(written(folder.path("a.h5"), 70000)[0], 65541);
    EXPECT_EQ(ShardReader::open(folder.path("a.h5"), {}, std::make_shared<OpenDatasets>()).storage_name(), "uint32");

    ShardWriter narrow({.path = folder.path("b.h5"),
                        .identity = {.vocab_size = 70000, .eod_id = 0},
                        .storage = TokenStorage::u16});
    const std::vector<std::int32_t> document = {1, 65541};
    const std::string message = message_of<core::DataError>([&] { narrow.append_document(document, 1); });
    EXPECT_THAT(message, HasSubstr("token id 65541 at token 1 of document 0"));
    EXPECT_THAT(message, HasSubstr("65536"));
    EXPECT_EQ(narrow.num_tokens(), 0);
    ShardWriter wide({.path = folder.path("c.h5"), .identity = {.vocab_size = 70000, .eod_id = 0}});
    EXPECT_THROW(wide.append_document(std::vector<std::int32_t>{70000}, 1), core::DataError);
    EXPECT_THROW(wide.append_document(std::vector<std::int32_t>{-1}, 1), core::DataError);
}

TEST(ShardWriter, DA_13_every_document_ends_in_exactly_one_end_token) {
    const TemporaryFolder folder;
    write_shard(folder.path("a.h5"), {{1, 2}, {3}, {4, 5, 6}}, 10, 0);
    EXPECT_EQ(written(folder.path("a.h5"), 10), (std::vector<std::int32_t>{1, 2, 0, 3, 0, 4, 5, 6, 0}));
    write_shard(folder.path("b.h5"), {{1, 0}}, 10, 0);
    EXPECT_THAT(message_of<core::DataError>([&] { written(folder.path("b.h5"), 10); }),
                HasSubstr("document 0 holds 2 end-of-document tokens"));
}

TEST(ShardWriter, damage_is_found_by_the_checksum) {
    const TemporaryFolder folder;
    write_shard(folder.path("a.h5"), {{1, 2}, {3}}, 10, 0);
    const hid_t file = H5Fopen(folder.path("a.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    const hid_t data = H5Dopen2(file, "tokens", H5P_DEFAULT);
    const std::int64_t tokens[] = {1, 2, 0, 4, 0};
    H5Dwrite(data, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, tokens);
    H5Dclose(data);
    H5Fclose(file);
    EXPECT_THAT(message_of<core::DataError>([&] { written(folder.path("a.h5"), 10); }), HasSubstr("checksum"));
}

TEST(ShardWriter, nothing_stays_of_a_shard_that_was_not_published) {
    const TemporaryFolder folder;
    {
        ShardWriter writer({.path = folder.path("a.h5"), .identity = {.vocab_size = 10, .eod_id = 0}});
        writer.append_document(std::vector<std::int32_t>{1}, 1);
        writer.close();
        EXPECT_EQ(folder.names().size(), 1U);
        EXPECT_NE(folder.names()[0], "a.h5");
    }
    EXPECT_TRUE(folder.names().empty());
    ShardWriter nowhere({.path = folder.path("none/a.h5"), .identity = {.vocab_size = 10, .eod_id = 0}});
    nowhere.append_document(std::vector<std::int32_t>{1}, 1);
    EXPECT_THROW(nowhere.close(), core::EnvironmentError);
    EXPECT_THROW(ShardWriter({.path = "x", .identity = {.vocab_size = 10, .eod_id = 10}}), core::DataError);
    EXPECT_THROW(ShardWriter({.path = "x", .identity = {}}), core::DataError);
}

}  // namespace
}  // namespace tessera::data

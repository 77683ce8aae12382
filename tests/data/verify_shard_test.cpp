#include "data/verify_shard.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>

#include <filesystem>

#include "data/data_support.h"

namespace tessera::data {
namespace {

using test::TemporaryFolder;
using test::write_foreign;
using test::write_shard;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Verdict {
    std::vector<std::string> faults;
    std::vector<std::string> not_checked;
};

Verdict verdict_on(const std::string& path, const Tokenizer* tokenizer = nullptr) {
    Verdict verdict;
    const ShardReport report =
            verify_shard({.path = path, .tokenizer = tokenizer, .on_fault = [&](const ShardFault& fault) {
                              verdict.faults.push_back(to_string(fault));
                          }});
    EXPECT_EQ(report.num_faults, static_cast<std::int64_t>(verdict.faults.size()));
    verdict.not_checked = report.not_checked;
    return verdict;
}

void overwrite(const std::string& path, const char* dataset, hsize_t index, std::int64_t value) {
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    const hid_t data = H5Dopen2(file, dataset, H5P_DEFAULT);
    const hid_t space = H5Dget_space(data);
    const hsize_t one = 1;
    const hid_t memory = H5Screate_simple(1, &one, nullptr);
    H5Sselect_elements(space, H5S_SELECT_SET, 1, &index);
    EXPECT_GE(H5Dwrite(data, H5T_NATIVE_INT64, memory, space, H5P_DEFAULT, &value), 0);
    H5Sclose(memory);
    H5Sclose(space);
    H5Dclose(data);
    H5Fclose(file);
}

void overwrite_attribute(const std::string& path, const char* name, std::int64_t value) {
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    const hid_t attribute = H5Aopen(file, name, H5P_DEFAULT);
    EXPECT_GE(H5Awrite(attribute, H5T_NATIVE_INT64, &value), 0);
    H5Aclose(attribute);
    H5Fclose(file);
}

void remove_attribute(const std::string& path, const char* name) {
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    EXPECT_GE(H5Adelete(file, name), 0);
    H5Fclose(file);
}

/// 1 2 3 0 | 4 0 | 5 6 7 0 of a vocabulary of 10; 0 ends documents.
class VerifyShard : public ::testing::Test {
protected:
    std::string sound(std::int64_t vocab_size = 10) const {
        const std::string path = folder.path("a.h5");
        write_shard(path, {{1, 2, 3}, {4}, {5, 6, 7}}, vocab_size, 0);
        return path;
    }
    TemporaryFolder folder;
};

TEST_F(VerifyShard, a_sound_shard_has_no_fault_and_nothing_is_left_unchecked) {
    for (const std::int64_t vocab_size : {10, 70000}) {
        const Verdict verdict = verdict_on(sound(vocab_size));
        EXPECT_THAT(verdict.faults, IsEmpty());
        EXPECT_THAT(verdict.not_checked, IsEmpty());
    }
}

TEST_F(VerifyShard, one_flipped_token_breaks_the_checksum) {
    const std::string path = sound();
    overwrite(path, "tokens", 1, 9);
    EXPECT_THAT(verdict_on(path).faults, ElementsAre(HasSubstr("was stored when they were written")));
}

TEST_F(VerifyShard, every_id_outside_the_vocabulary_is_located) {
    const std::string path = sound();
    overwrite(path, "tokens", 1, 10);
    overwrite(path, "tokens", 7, 11);
    overwrite(path, "tokens", 8, 12);
    EXPECT_THAT(verdict_on(path).faults,
                ElementsAre("document 0, offset 1 (token 1 of the shard): token id 10 is outside the vocabulary of 10",
                            "document 2, offset 1 (token 7 of the shard): token id 11 is outside the vocabulary of 10, "
                            "and so are the 1 ids after it",
                            HasSubstr("checksum")));
}

TEST_F(VerifyShard, every_document_without_exactly_one_end_is_located) {
    const std::string path = sound();
    overwrite(path, "tokens", 1, 0);
    overwrite(path, "tokens", 5, 4);
    overwrite(path, "tokens", 9, 1);
    EXPECT_THAT(verdict_on(path).faults,
                ElementsAre("document 0, offset 1 (token 1 of the shard): the end-of-document token 0 stands before "
                            "the end",
                            "document 1, offset 1 (token 5 of the shard): ends in token id 4, not in the "
                            "end-of-document token 0",
                            "document 2, offset 3 (token 9 of the shard): ends in token id 1, not in the "
                            "end-of-document token 0",
                            HasSubstr("checksum")));
}

TEST_F(VerifyShard, an_empty_document_lacks_its_end) {
    const std::string path = sound();
    overwrite(path, "document_offsets", 1, 0);
    EXPECT_THAT(verdict_on(path).faults,
                ElementsAre("document 0: is empty, without its end-of-document token 0",
                            HasSubstr("document 1, offset 3 (token 3 of the shard): the end-of-document token")));
}

TEST_F(VerifyShard, offsets_that_do_not_ascend_from_0_to_the_end) {
    const std::string path = sound();
    overwrite(path, "document_offsets", 0, 1);
    overwrite(path, "document_offsets", 2, 3);
    overwrite(path, "document_offsets", 3, 9);
    const Verdict verdict = verdict_on(path);
    EXPECT_THAT(verdict.faults,
                ElementsAre("the first document starts at token 1, not 0", "document 1: goes from token 4 to 3 of 10",
                            "the last document ends at token 9, but there are 10"));
    EXPECT_THAT(verdict.not_checked, ElementsAre(HasSubstr("ends of documents: it is not sound")));
    overwrite(path, "document_offsets", 3, 1000);
    EXPECT_THAT(verdict_on(path).faults, Contains("document 2: goes from token 3 to 1000 of 10"));
}

TEST_F(VerifyShard, document_bytes_must_add_up) {
    std::string path = sound();
    overwrite(path, "document_bytes", 1, 4);
    EXPECT_THAT(verdict_on(path).faults, ElementsAre("document_bytes add up to 22, but text_bytes is 21"));
    path = sound();
    overwrite_attribute(path, "text_bytes", 5);
    EXPECT_THAT(verdict_on(path).faults, ElementsAre("document_bytes add up to 21, but text_bytes is 5"));
}

TEST_F(VerifyShard, an_identity_that_cannot_be) {
    const std::string path = sound();
    overwrite_attribute(path, "eod_id", 10);
    EXPECT_THAT(verdict_on(path).faults, Contains("eod_id 10 is outside the vocabulary of 10"));
    overwrite_attribute(path, "eod_id", 0);
    overwrite_attribute(path, "format_version", 2);
    EXPECT_THAT(verdict_on(path).faults, ElementsAre("has format version 2, this program knows up to 1"));
    overwrite_attribute(path, "vocab_size", 0);
    EXPECT_THAT(verdict_on(path).faults, Contains("vocab_size is 0, it must be positive"));
}

TEST_F(VerifyShard, another_tokenizer_is_a_fault_and_none_stored_is_told) {
    const Tokenizer tokenizer = test::small_tokenizer(folder);
    const std::string ours = folder.path("ours.h5");
    write_shard(ours, {{5, 6}}, tokenizer.vocab_size(), tokenizer.eod_id(), tokenizer.sha256());
    EXPECT_THAT(verdict_on(ours, &tokenizer).faults, IsEmpty());
    EXPECT_THAT(verdict_on(sound(), &tokenizer).faults,
                ElementsAre(AllOf(HasSubstr("was made with the tokenizer aaaaaaaaaaaa..."), HasSubstr("small.model")),
                            AllOf(HasSubstr("vocab_size is 10"), HasSubstr("has 400 pieces"))));
    write_foreign(folder.path("foreign.h5"), {1, 2, 400}, {.type = "i64"});
    const Verdict foreign = verdict_on(folder.path("foreign.h5"), &tokenizer);
    EXPECT_THAT(foreign.faults, ElementsAre("token 2 of the shard: token id 400 is outside the vocabulary of 400"));
    EXPECT_THAT(foreign.not_checked, Contains(HasSubstr("the tokenizer: the shard does not name")));
}

TEST_F(VerifyShard, shards_of_others_are_checked_as_far_as_they_go) {
    const std::string path = folder.path("foreign.h5");
    write_foreign(path, {1, 2, 3, 4, -5, 6}, {.type = "i32", .layout = test::Layout::compressed});
    const Verdict plain = verdict_on(path);
    EXPECT_THAT(plain.faults, ElementsAre("token 4 of the shard: token id -5 is negative"));
    EXPECT_THAT(plain.not_checked, ElementsAre(HasSubstr("documents: "), HasSubstr("the upper bound of ids: "),
                                               HasSubstr("the checksum: "), HasSubstr("ends of documents: ")));
    write_foreign(path, {1, 2, 3, 4}, {.document_offsets = {0, 3, 2}});
    EXPECT_THAT(verdict_on(path).faults, ElementsAre("document 1: goes from token 3 to 2 of 4",
                                                     "the last document ends at token 2, but there are 4"));
}

TEST_F(VerifyShard, a_stored_checksum_holds_after_repacking) {
    const std::string path = sound();
    remove_attribute(path, "vocab_size");
    EXPECT_THAT(verdict_on(path).faults, IsEmpty());
    EXPECT_THAT(verdict_on(path).not_checked, ElementsAre(HasSubstr("the upper bound of ids")));
    // The same tokens in chunks, as h5repack leaves them, are read through HDF5 and not mapped.
    const std::string repacked = folder.path("repacked.h5");
    write_foreign(repacked, {1, 2, 3, 0, 4, 0, 5, 6, 7, 0}, {.layout = test::Layout::compressed});
    const hid_t from = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    const hid_t attribute = H5Aopen(from, "tokens_xxh64", H5P_DEFAULT);
    std::uint64_t stored = 0;
    H5Aread(attribute, H5T_NATIVE_UINT64, &stored);
    H5Aclose(attribute);
    H5Fclose(from);
    const hid_t to = H5Fopen(repacked.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    const hid_t scalar = H5Screate(H5S_SCALAR);
    const hid_t copy = H5Acreate2(to, "tokens_xxh64", H5T_STD_U64LE, scalar, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(copy, H5T_NATIVE_UINT64, &stored);
    H5Aclose(copy);
    H5Sclose(scalar);
    H5Fclose(to);
    EXPECT_THAT(verdict_on(repacked).faults, IsEmpty());
    overwrite(repacked, "tokens", 3, 1);
    EXPECT_THAT(verdict_on(repacked).faults, ElementsAre(HasSubstr("checksum")));
}

TEST_F(VerifyShard, files_that_cannot_be_opened_are_faults_too) {
    const std::string path = sound();
    std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
    EXPECT_THAT(verdict_on(path).faults, ElementsAre(HasSubstr("truncated file")));
    EXPECT_THAT(verdict_on(folder.path("none.h5")).faults, ElementsAre("does not exist"));
    EXPECT_THAT(verdict_on(folder.file("empty.h5", "")).faults, ElementsAre("is empty (0 bytes)"));
    EXPECT_THAT(verdict_on(folder.file("text.h5", "just text")).faults, ElementsAre(HasSubstr("not a readable HDF5")));
    write_foreign(folder.path("other.h5"), {1}, {.dataset = "other"});
    EXPECT_THAT(verdict_on(folder.path("other.h5")).faults, ElementsAre(HasSubstr("neither a dataset 'tokens'")));
    write_foreign(folder.path("float.h5"), {1}, {.type = "f32"});
    EXPECT_THAT(verdict_on(folder.path("float.h5")).faults, ElementsAre(HasSubstr("does not hold integers")));
}

TEST_F(VerifyShard, a_damaged_chunk_is_a_fault_and_what_follows_is_not_checked) {
    const std::string path = folder.path("chunks.h5");
    write_foreign(path, std::vector<std::int64_t>(2000, 5), {.type = "i64", .layout = test::Layout::compressed});
    std::string bytes = test::read_file(path);
    std::int64_t damaged = 0;
    // The start of every deflated chunk.
    for (std::size_t at = bytes.find("\x78\x9C"); at != std::string::npos; at = bytes.find("\x78\x9C", at + 1)) {
        bytes[at] = '\x11';
        ++damaged;
    }
    ASSERT_GT(damaged, 0);
    folder.file("chunks.h5", bytes);
    const Verdict verdict = verdict_on(path);
    EXPECT_THAT(verdict.faults, ElementsAre(HasSubstr("reading 2000 elements at 0")));
    EXPECT_THAT(verdict.not_checked, Contains("everything that follows"));
}

}  // namespace
}  // namespace tessera::data

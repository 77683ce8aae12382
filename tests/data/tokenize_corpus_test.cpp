#include "data/tokenize_corpus.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "data/data_support.h"
#include "data/packed_support.h"
#include "data/shard.h"

namespace tessera::data {
namespace {

using test::message_of;
using test::read_file;
using test::TemporaryFolder;
using ::testing::HasSubstr;

TokenizeArgs args_for(const TemporaryFolder& folder, const std::string& corpus,
                      const std::string& name = "corpus.txt") {
    test::small_tokenizer(folder);
    TokenizeArgs args;
    args.source.paths = {folder.file(name, corpus)};
    args.tokenizer_path = folder.path("small.model");
    args.output_prefix = folder.path("out/c");
    return args;
}

std::vector<std::string> documents_of(const std::vector<std::string>& shards, const Tokenizer& tokenizer) {
    std::vector<std::string> documents;
    for (const ShardReader& shard : open_shards(shards, {})) {
        shard.check();
        for (std::int64_t d = 0; d < shard.num_documents(); ++d) {
            std::vector<std::int32_t> tokens(
                    static_cast<std::size_t>(shard.document_offset(d + 1) - shard.document_offset(d)));
            shard.read(shard.document_offset(d), tokens, tokenizer.vocab_size());
            EXPECT_EQ(tokens.back(), tokenizer.eod_id());
            documents.push_back(tokenizer.decode(tokens));
        }
    }
    return documents;
}

TEST(TokenizeCorpus, every_document_comes_back_from_the_shards) {
    const TemporaryFolder folder;
    TokenizeArgs args = args_for(folder, " one\n\ntwo\u2581 <|endoftext|>\n\n\n\nthree\n   x\n");
    args.max_tokens_per_shard = 20;
    const TokenizeSummary summary = tokenize_corpus(args);
    EXPECT_EQ(documents_of(summary.train.shards, Tokenizer::load(args.tokenizer_path)),
              (std::vector<std::string>{" one", "two\u2581 <|endoftext|>", "three\n   x"}));
    EXPECT_GT(summary.train.shards.size(), 1U);
    EXPECT_EQ(summary.counts.empty_documents, 1);
    EXPECT_EQ(summary.train.documents, 3);
    EXPECT_EQ(summary.train.text_bytes, summary.counts.text_bytes);
}

TEST(TokenizeCorpus, shards_do_not_depend_on_the_number_of_threads) {
    const TemporaryFolder folder;
    TokenizeArgs args = args_for(folder, test::sample_text(3000));
    args.validation_fraction = 0.1;
    args.validation_text_path = folder.path("validation_1.txt");
    args.max_tokens_per_shard = 40000;
    args.output_prefix = folder.path("one");
    const TokenizeSummary one = tokenize_corpus(args);
    args.output_prefix = folder.path("two");
    args.num_threads = 2;
    args.validation_text_path = folder.path("validation_2.txt");
    const TokenizeSummary two = tokenize_corpus(args);
    ASSERT_EQ(one.train.shards.size(), two.train.shards.size());
    EXPECT_GT(one.train.shards.size(), 1U);
    for (std::size_t k = 0; k < one.train.shards.size(); ++k)
        EXPECT_TRUE(read_file(one.train.shards[k]) == read_file(two.train.shards[k]));
    EXPECT_TRUE(read_file(one.validation.shards[0]) == read_file(two.validation.shards[0]));
    EXPECT_TRUE(read_file(folder.path("validation_1.txt")) == read_file(folder.path("validation_2.txt")));
    EXPECT_NEAR(static_cast<double>(one.validation.documents), 300, 90);
    EXPECT_EQ(one.train.documents + one.validation.documents, 3000);
}

TEST(TokenizeCorpus, validation_text_is_the_held_out_documents) {
    const TemporaryFolder folder;
    TokenizeArgs args = args_for(folder, test::sample_text(100));
    args.validation_fraction = 0.2;
    args.validation_text_path = folder.path("validation.txt");
    const TokenizeSummary summary = tokenize_corpus(args);
    const auto documents = documents_of(summary.validation.shards, Tokenizer::load(args.tokenizer_path));
    EXPECT_EQ(read_file(folder.path("validation.txt")), fmt::format("{}", fmt::join(documents, "\n\n")));
    args.seed = 2;
    args.existing = ExistingShards::replace;
    EXPECT_NE(documents_of(tokenize_corpus(args).validation.shards, Tokenizer::load(args.tokenizer_path)), documents);
}

TEST(TokenizeCorpus, DA_02_an_empty_part_is_named_with_its_counts) {
    const TemporaryFolder folder;
    TokenizeArgs args = args_for(folder, "a\n\nb\n\nc\n\nd\n\ne\n\nf\n\ng\n\nh\n\ni\n\nj");
    args.validation_fraction = 0.0001;
    const std::string message = message_of<core::DataError>([&] { tokenize_corpus(args); });
    EXPECT_THAT(message,
                HasSubstr("the validation part is empty: of 10 documents 10 went to training and 0 to validation"));
    args.validation_fraction = 1;
    EXPECT_THROW(tokenize_corpus(args), core::UsageError);
    args.validation_fraction = 0;
    args.source.paths = {folder.file("blank.txt", " \n\n\n\n \n")};
    EXPECT_THAT(message_of<core::DataError>([&] { tokenize_corpus(args); }), HasSubstr("no document holds text"));
}

TEST(TokenizeCorpus, TX_09_nothing_is_left_after_an_error) {
    const TemporaryFolder folder;
    std::string lines;
    for (int k = 0; k < 200000; ++k) lines += "{\"text\":\"some words of a horse\"}\n";
    TokenizeArgs args = args_for(folder, lines + "{\"text\":", "a.jsonl");
    args.max_tokens_per_shard = 10000;
    args.output_prefix = folder.path("c");
    EXPECT_THAT(message_of<core::DataError>([&] { tokenize_corpus(args); }), HasSubstr(":200001:"));
    EXPECT_EQ(folder.names(), (std::vector<std::string>{"a.jsonl", "small.model", "tokenizer_corpus.txt"}));
}

TEST(TokenizeCorpus, packed_text_gives_the_same_shards) {
    const TemporaryFolder folder;
    const std::string text = test::sample_text(3000);
    TokenizeArgs args = args_for(folder, text);
    args.validation_fraction = 0.1;
    const TokenizeSummary plain = tokenize_corpus(args);
    const std::string packed[] = {
            folder.file("corpus.txt.gz", test::gzip_of(text.substr(0, 90000)) + test::gzip_of(text.substr(90000))),
            folder.file("corpus.txt.zst", test::zstd_of(text.substr(0, 1234)) + test::zstd_of(text.substr(1234)))};
    for (const std::string& path : packed) {
        args.source.paths = {path};
        args.output_prefix = folder.path("packed/c");
        args.existing = ExistingShards::replace;
        const TokenizeSummary other = tokenize_corpus(args);
        EXPECT_TRUE(read_file(other.train.shards[0]) == read_file(plain.train.shards[0])) << path;
        EXPECT_TRUE(read_file(other.validation.shards[0]) == read_file(plain.validation.shards[0])) << path;
    }
}

TEST(TokenizeCorpus, a_signal_stops_it_and_nothing_is_left) {
    const TemporaryFolder folder;
    TokenizeArgs args = args_for(folder, test::sample_text(50));
    args.output_prefix = folder.path("c");
    const std::atomic<bool> stop = true;
    args.stop = &stop;
    EXPECT_THROW(tokenize_corpus(args), core::RunError);
    EXPECT_EQ(folder.names(), (std::vector<std::string>{"corpus.txt", "small.model", "tokenizer_corpus.txt"}));
}

TEST(TokenizeCorpus, older_shards_of_the_prefix_are_refused_or_replaced) {
    const TemporaryFolder folder;
    TokenizeArgs args = args_for(folder, test::sample_text(50));
    args.max_tokens_per_shard = 1000;
    const TokenizeSummary first = tokenize_corpus(args);
    ASSERT_GT(first.train.shards.size(), 1U);
    EXPECT_THAT(message_of<core::UsageError>([&] { tokenize_corpus(args); }), HasSubstr("exist already"));
    args.max_tokens_per_shard = 1000000;
    args.existing = ExistingShards::replace;
    EXPECT_EQ(tokenize_corpus(args).train.shards.size(), 1U);
    EXPECT_THROW(ShardReader::open(first.train.shards[1], {}, std::make_shared<OpenDatasets>()), core::DataError);
}

TEST(TokenizeCorpus, DA_01_TX_08_empty_documents_and_a_byte_order_mark_change_no_token) {
    const TemporaryFolder folder;
    TokenizeArgs args = args_for(folder, "{\"text\":\"a horse\"}\n{\"text\":\"in water\"}\n", "a.jsonl");
    const TokenizeSummary plain = tokenize_corpus(args);
    args.source.paths = {
            folder.file("b.jsonl",
                        "\xEF\xBB\xBF{\"text\":\"\"}\n{\"text\":\"a horse\"}\n{\"text\":\"\"}\n{\"text\":\" "
                        "\\n\"}\n{\"text\":\"in water\"}\n{\"text\":\"\"}\n")};
    args.output_prefix = folder.path("out/d");
    const TokenizeSummary other = tokenize_corpus(args);
    EXPECT_EQ(other.counts.empty_documents, 4);
    EXPECT_TRUE(read_file(plain.train.shards[0]) == read_file(other.train.shards[0]));
}

}  // namespace
}  // namespace tessera::data

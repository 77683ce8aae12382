#include "data/tokenizer_training.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "data/data_support.h"
#include "data/packed_support.h"
#include "data/tokenizer.h"

namespace tessera::data {
namespace {

using test::message_of;
using test::TemporaryFolder;
using ::testing::HasSubstr;

TrainTokenizerArgs args_for(const TemporaryFolder& folder, const std::string& corpus, std::int64_t vocab_size) {
    TrainTokenizerArgs args;
    args.source.paths = {folder.file("corpus.txt", corpus)};
    args.output_path = folder.path("out.model");
    args.vocab_size = vocab_size;
    return args;
}

TEST(TokenizerTraining, TX_01_long_lines_are_learned_from) {
    const TemporaryFolder folder;
    std::string corpus = "short line\n\n";
    for (int line = 0; line < 10; ++line) {
        for (int k = 0; k < 2000; ++k) corpus += fmt::format("{}µ∂∑ ", k % 7);
        corpus += "\n\n";
    }
    train_tokenizer(args_for(folder, corpus, 300));
    const Tokenizer tokenizer = Tokenizer::load(folder.path("out.model"));
    // Characters that occur in long lines only have pieces of their own: fewer tokens than bytes.
    EXPECT_LE(tokenizer.encode("µ∂∑").size(), 3U);
}

TEST(TokenizerTraining, TX_02_lines_beyond_65535_characters_do_not_abort) {
    for (const TokenizerModel model : {TokenizerModel::bpe, TokenizerModel::unigram}) {
        const TemporaryFolder folder;
        std::string corpus = test::sample_text(50);
        for (const int length : {65535, 65536, 200000}) {
            corpus += "\n\n";
            for (int k = 0; k < length; ++k) corpus += static_cast<char>('a' + std::int64_t{k} * k % 23);
        }
        TrainTokenizerArgs args = args_for(folder, corpus, 330);
        args.model = model;
        EXPECT_EQ(train_tokenizer(args).vocab_size, 330);
    }
}

TEST(TokenizerTraining, TX_03_too_large_a_vocabulary_names_the_largest) {
    const TemporaryFolder folder;
    const std::string corpus = test::sample_text(8).substr(0, 1000);
    for (const TokenizerModel model : {TokenizerModel::bpe, TokenizerModel::unigram}) {
        TrainTokenizerArgs args = args_for(folder, corpus, 32000);
        args.model = model;
        const std::string message = message_of<core::DataError>([&] { train_tokenizer(args); });
        EXPECT_THAT(message, HasSubstr("32000 is too large"));
        const std::string mark = "ask for at most ";
        ASSERT_NE(message.find(mark), std::string::npos) << message;
        const std::int64_t largest = std::stoll(message.substr(message.find(mark) + mark.size()));
        EXPECT_GT(largest, 258);
        EXPECT_LT(largest, 1500);
        EXPECT_EQ(folder.names(), std::vector<std::string>{"corpus.txt"}) << "nothing is left behind";
    }
    TrainTokenizerArgs args = args_for(folder, corpus, 32000);
    args.limit = VocabularyLimit::soft;
    const std::int64_t made = train_tokenizer(args).vocab_size;
    EXPECT_GT(made, 258);
    EXPECT_EQ(Tokenizer::load(args.output_path).vocab_size(), made);
}

TEST(TokenizerTraining, too_small_a_vocabulary_names_the_smallest) {
    const TemporaryFolder folder;
    const std::string message =
            message_of<core::DataError>([&] { train_tokenizer(args_for(folder, test::sample_text(50), 100)); });
    EXPECT_THAT(message, HasSubstr("a vocabulary of 100 is too small"));
}

TEST(TokenizerTraining, TX_04_reserved_characters_in_the_corpus_do_not_stop_training) {
    const TemporaryFolder folder;
    const std::string corpus =
            test::sample_text(100) + std::string("\0\0 x", 4) + "\u2581\u2585 odd\ttab" + test::sample_text(100);
    EXPECT_EQ(train_tokenizer(args_for(folder, corpus, 350)).vocab_size, 350);
}

TEST(TokenizerTraining, TX_05_line_breaks_and_indentation_are_tokens) {
    const TemporaryFolder folder;
    const Tokenizer tokenizer = test::small_tokenizer(folder);
    const auto ids = tokenizer.encode("x\n   horse");
    EXPECT_EQ(tokenizer.piece(ids[1]), "\n\u2581\u2581");
    EXPECT_THAT(tokenizer.piece(ids[2]), HasSubstr("\u2581h"));
    EXPECT_EQ(tokenizer.encode("\n").size(), 1U);
    EXPECT_EQ(tokenizer.encode("\t").size(), 1U);
}

TEST(TokenizerTraining, the_sample_is_spread_over_the_whole_corpus) {
    const TemporaryFolder folder;
    std::string corpus;
    for (int k = 0; k < 3000; ++k) corpus += fmt::format("{}start\n\n", k < 1500 ? "alpha" : "omega");
    TrainTokenizerArgs args = args_for(folder, corpus, 290);
    args.sample_bytes = static_cast<std::int64_t>(corpus.size()) / 20;
    std::int64_t announced = 0;
    args.on_sample_drawn = [&](std::int64_t sampled, std::int64_t) { announced = sampled; };
    args.limit = VocabularyLimit::soft;
    const TrainTokenizerResult result = train_tokenizer(args);
    EXPECT_EQ(announced, result.sampled_bytes);
    EXPECT_NEAR(static_cast<double>(result.sampled_bytes), static_cast<double>(args.sample_bytes), 4000);
    const Tokenizer tokenizer = Tokenizer::load(args.output_path);
    EXPECT_LE(tokenizer.encode("alphastart").size(), 3U);
    EXPECT_LE(tokenizer.encode("omegastart").size(), 3U);
}

TEST(TokenizerTraining, a_packed_corpus_gives_the_same_model) {
    const TemporaryFolder folder;
    const std::string corpus = test::sample_text(400);
    TrainTokenizerArgs args = args_for(folder, corpus, 350);
    args.sample_bytes = static_cast<std::int64_t>(corpus.size()) / 3;
    train_tokenizer(args);
    const std::string plain = Tokenizer::load(args.output_path).sha256();
    for (const std::string& packed : {test::gzip_of(corpus), test::zstd_of(corpus)}) {
        args.source.paths = {folder.file("packed", packed)};
        train_tokenizer(args);
        EXPECT_EQ(Tokenizer::load(args.output_path).sha256(), plain);
    }
}

TEST(TokenizerTraining, a_corpus_without_text_is_refused) {
    const TemporaryFolder folder;
    EXPECT_THAT(message_of<core::DataError>([&] { train_tokenizer(args_for(folder, " \n\n \n", 300)); }),
                HasSubstr("no text"));
}

TEST(TokenizerTraining, the_same_corpus_gives_the_same_model) {
    const TemporaryFolder folder;
    train_tokenizer(args_for(folder, test::sample_text(100), 350));
    const std::string first = Tokenizer::load(folder.path("out.model")).sha256();
    TrainTokenizerArgs args = args_for(folder, test::sample_text(100), 350);
    args.num_threads = 2;
    train_tokenizer(args);
    const Tokenizer second = Tokenizer::load(folder.path("out.model"));
    EXPECT_EQ(second.vocab_size(), 350);
    args.num_threads = 1;
    train_tokenizer(args);
    EXPECT_EQ(Tokenizer::load(folder.path("out.model")).sha256(), first);
}

}  // namespace
}  // namespace tessera::data

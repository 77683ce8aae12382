#include "data/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>

#include "core/error.h"
#include "data/data_support.h"
#include "data/tokenizer_training.h"
#include "data/utf8.h"

namespace tessera::data {
namespace {

using test::message_of;
using test::small_tokenizer;
using test::TemporaryFolder;
using ::testing::HasSubstr;

const std::string kTexts[] = {"a",
                              " a",
                              "  a",
                              "    if x:",
                              "\ta",
                              "",
                              " ",
                              "\n",
                              "a\n\nb\tc\n",
                              "\n   horse\n      which is  \r\n",
                              std::string("ab\0cd", 5),
                              std::string("\0", 1),
                              "\u2581",
                              "a\u2581 \u2581b \u2581\u2581",
                              "\u2585 \uFFFD \U0010FFFF \uFEFF",
                              "naïve 日本語 😀 é e\u0301",
                              "<0x0A> <|endoftext|> <unk> <s>",
                              "\x01\x02\x7F"};

TEST(Tokenizer, TX_05_TX_06_valid_utf8_round_trips_exactly) {
    const TemporaryFolder folder;
    const Tokenizer tokenizer = small_tokenizer(folder);
    for (const std::string& text : kTexts) {
        const auto ids = tokenizer.encode(text);
        EXPECT_EQ(tokenizer.decode(ids), text);
        for (const std::int32_t id : ids) EXPECT_NE(id, tokenizer.eod_id()) << text;
    }
}

TEST(Tokenizer, TX_06_streaming_joins_to_the_whole_decode_after_any_prompt) {
    const TemporaryFolder folder;
    const Tokenizer tokenizer = small_tokenizer(folder);
    for (const std::string& text : kTexts) {
        const auto ids = tokenizer.encode("prompt: " + text + " tail");
        for (std::size_t prompt = 0; prompt <= ids.size(); ++prompt) {
            StreamDecoder first(tokenizer);
            std::string whole;
            for (std::size_t k = 0; k < prompt; ++k) whole += first.push(ids[k]);
            for (std::size_t k = prompt; k < ids.size(); ++k) whole += first.push(ids[k]);
            whole += first.finish();
            EXPECT_EQ(whole, "prompt: " + text + " tail");
        }
    }
}

TEST(Tokenizer, incomplete_byte_tokens_are_held_back_then_replaced) {
    const TemporaryFolder folder;
    const Tokenizer tokenizer = small_tokenizer(folder);
    const auto ids = tokenizer.encode("😀");
    ASSERT_EQ(ids.size(), 4U);
    StreamDecoder decoder(tokenizer);
    EXPECT_EQ(decoder.push(ids[0]), "");
    EXPECT_EQ(decoder.push(ids[1]), "");
    EXPECT_EQ(decoder.push(ids[2]), "");
    EXPECT_EQ(decoder.push(ids[3]), "😀");
    EXPECT_EQ(tokenizer.decode(std::span(ids).first(3)), "\uFFFD");
    EXPECT_EQ(tokenizer.decode(std::vector<std::int32_t>{ids[0], tokenizer.encode("a")[0]}), "\uFFFDa");
    EXPECT_EQ(tokenizer.decode(std::vector<std::int32_t>{tokenizer.eod_id()}), "");
}

TEST(Tokenizer, long_texts_are_cut_where_no_piece_reaches_across) {
    const TemporaryFolder folder;
    const Tokenizer tokenizer = small_tokenizer(folder);
    std::string text = test::sample_text(6000);
    ASSERT_GT(text.size(), std::size_t{1} << 20);
    std::vector<std::int32_t> by_lines;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at + 1), text.size());
        const auto line = tokenizer.encode(std::string_view(text).substr(at, end - at));
        by_lines.insert(by_lines.end(), line.begin(), line.end());
        at = end;
    }
    EXPECT_EQ(tokenizer.encode(text), by_lines);
    std::string unbroken;
    for (int k = 0; k < 400000; ++k) unbroken += "日";
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(unbroken)), unbroken);
}

/// Lines of every length from none to several thousand bytes, broken in every way.
std::string lines_of_all_kinds() {
    const std::string text = test::sample_text(60);
    const char* breaks[] = {"\n", "\n\n", "\r\n", "\n   ", "\n\n\n      ", " \n", "\t\n\t", "\n \n  \n"};
    std::string lines;
    for (std::size_t k = 0; k < 400; ++k) {
        const std::size_t length = k % 50 == 7 ? 3000 : k * k % 211;
        std::string line = text.substr(k * 17 % 4000, length);
        if (k % 3 == 0) std::replace(line.begin(), line.end(), '\n', ' ');
        lines += line + breaks[k % 8];
    }
    return lines;
}

TEST(Tokenizer, a_few_lines_at_a_time_give_the_tokens_of_the_whole) {
    const TemporaryFolder folder;
    const std::string text = lines_of_all_kinds();
    for (const TokenizerModel model : {TokenizerModel::bpe, TokenizerModel::unigram}) {
        TrainTokenizerArgs args;
        args.source.paths = {folder.file("corpus.txt", text + test::sample_text(300))};
        args.output_path = folder.path("t.model");
        args.vocab_size = 600;
        args.limit = VocabularyLimit::soft;
        args.model = model;
        train_tokenizer(args);
        sentencepiece::SentencePieceProcessor processor;
        ASSERT_TRUE(processor.Load(args.output_path).ok());
        std::string repaired;
        Utf8Repair repair;
        repair.append(text, repaired);
        repair.finish(repaired);
        const std::vector<int> whole = processor.EncodeAsIds(repaired);
        EXPECT_TRUE(Tokenizer::load(args.output_path).encode(repaired) == whole);
    }
}

TEST(Tokenizer, ids_out_of_range_are_refused) {
    const TemporaryFolder folder;
    const Tokenizer tokenizer = small_tokenizer(folder);
    EXPECT_EQ(tokenizer.vocab_size(), 400);
    EXPECT_EQ(tokenizer.eod_id(), 0);
    EXPECT_EQ(tokenizer.piece(0), "<|endoftext|>");
    EXPECT_EQ(tokenizer.sha256().size(), 64U);
    EXPECT_THAT(message_of<core::DataError>([&] { tokenizer.decode(std::vector<std::int32_t>{400}); }),
                HasSubstr("400"));
    EXPECT_THROW(tokenizer.decode(std::vector<std::int32_t>{-1}), core::DataError);
    EXPECT_THROW(tokenizer.piece(400), core::DataError);
}

TEST(Tokenizer, files_that_are_no_model_are_refused_by_name) {
    const TemporaryFolder folder;
    EXPECT_THAT(message_of<core::DataError>([&] { Tokenizer::load(folder.path("none.model")); }),
                HasSubstr("No such file"));
    for (const std::string& content :
         {std::string(), std::string("plain text, no model\n"), std::string(300, '\xFF')}) {
        const std::string path = folder.file("bad.model", content);
        EXPECT_THAT(message_of<core::DataError>([&] { Tokenizer::load(path); }), HasSubstr(path));
    }
    EXPECT_THROW(Tokenizer::load(folder.path("")), core::DataError);
}

/// A model as SentencePiece makes it by default: dummy prefix, NFKC, no byte fallback.
Tokenizer default_model(const TemporaryFolder& folder) {
    const std::string corpus = folder.file("corpus.txt", test::sample_text(200));
    const auto status = sentencepiece::SentencePieceTrainer::Train({{"input", corpus},
                                                                    {"model_prefix", folder.path("foreign")},
                                                                    {"vocab_size", "120"},
                                                                    {"model_type", "bpe"},
                                                                    {"minloglevel", "3"}});
    EXPECT_TRUE(status.ok()) << status.ToString();
    return Tokenizer::load(folder.path("foreign.model"));
}

TEST(Tokenizer, models_with_a_dummy_prefix_drop_one_blank_at_the_start_only) {
    const TemporaryFolder folder;
    const Tokenizer tokenizer = default_model(folder);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode("horse")), "horse");
    StreamDecoder decoder(tokenizer, DecodeFrom::continuation);
    std::string text;
    for (const std::int32_t id : tokenizer.encode("horse")) text += decoder.push(id);
    EXPECT_EQ(text, " horse");
}

TEST(Tokenizer, models_without_byte_pieces_refuse_what_they_cannot_carry) {
    const TemporaryFolder folder;
    const Tokenizer tokenizer = default_model(folder);
    EXPECT_THAT(message_of<core::DataError>([&] { tokenizer.encode("ab\u2581"); }), HasSubstr("U+2581 at byte 2"));
    EXPECT_THAT(message_of<core::DataError>([&] { tokenizer.encode(std::string("abc\0", 4)); }),
                HasSubstr("NUL at byte 3"));
}

}  // namespace
}  // namespace tessera::data

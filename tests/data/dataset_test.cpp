#include "data/dataset.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <set>

#include "core/error.h"
#include "data/data_support.h"

namespace tessera::data {
namespace {

using test::ForeignShard;
using test::Layout;
using test::message_of;
using test::TemporaryFolder;
using test::write_foreign;
using test::write_shard;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TokenDatasetArgs args_for(const std::vector<std::string>& paths, std::int64_t seq_length,
                          SampleOrder order = SampleOrder::ordered) {
    return {.sources = {{.paths = paths}}, .seed = 3, .seq_length = seq_length, .vocab_size = 100000, .order = order};
}

Batch read(const TokenDataset& dataset, std::int64_t position, std::int64_t count) {
    Batch batch;
    dataset.read_samples(position, count, batch);
    return batch;
}

TEST(TokenDataset, DA_17_corpus_shorter_than_a_window) {
    const TemporaryFolder folder;
    for (const std::int64_t tokens : {1, 15, 16}) {
        write_foreign(folder.path("a.h5"), test::counting(tokens));
        const std::string message =
                message_of<core::DataError>([&] { TokenDataset(args_for({folder.path("a.h5")}, 16)); });
        EXPECT_THAT(message,
                    HasSubstr(fmt::format("holds {} tokens, but one sample needs seq_length + 1 = 17", tokens)));
    }
    write_foreign(folder.path("a.h5"), {});
    EXPECT_THAT(message_of<core::DataError>([&] { TokenDataset(args_for({folder.path("a.h5")}, 16)); }),
                HasSubstr(folder.path("a.h5") + " holds no tokens"));
    write_foreign(folder.path("a.h5"), test::counting(17));
    const TokenDataset dataset(args_for({folder.path("a.h5")}, 16));
    EXPECT_EQ(dataset.num_samples(), 1);
    EXPECT_EQ(read(dataset, 0, 1).targets.back(), 16);
}

TEST(TokenDataset, DA_08_every_target_is_the_true_next_token_for_any_shard_lengths) {
    const TemporaryFolder folder;
    constexpr std::int64_t kLength = 5;
    for (const std::int64_t rest : {0, 1, 2, 4, 5}) {
        std::vector<std::string> paths;
        std::int64_t total = 0;
        for (int shard = 0; shard < 3; ++shard) {
            std::vector<std::int64_t> tokens = test::counting(2 * kLength + rest + shard, 1000000);
            for (std::int64_t& token : tokens) token += total;
            total += static_cast<std::int64_t>(tokens.size());
            paths.push_back(folder.path(fmt::format("{}.h5", shard)));
            write_foreign(paths.back(), tokens,
                          {.type = "i32", .layout = shard == 1 ? Layout::chunked : Layout::contiguous});
        }
        const TokenDataset dataset(args_for(paths, kLength, SampleOrder::shuffled));
        EXPECT_EQ(dataset.num_samples(), (total - 1) / kLength);
        for (int epoch = 0; epoch < 2; ++epoch) {
            std::set<std::int32_t> starts;
            const Batch batch = read(dataset, epoch * dataset.num_samples(), dataset.num_samples());
            EXPECT_EQ(batch.loss_tokens, batch.num_samples * kLength);
            for (std::int64_t k = 0; k < batch.num_samples * kLength; ++k) {
                const auto at = static_cast<std::size_t>(k);
                EXPECT_EQ(batch.targets[at], batch.tokens[at] + 1);
                if (k % kLength == 0) starts.insert(batch.tokens[at]);
            }
            EXPECT_EQ(static_cast<std::int64_t>(starts.size()), dataset.num_samples()) << "each sample once per epoch";
        }
    }
}

TEST(TokenDataset, sharding_does_not_change_the_samples) {
    const TemporaryFolder folder;
    const std::vector<std::vector<std::int32_t>> documents = {{1, 2, 3}, {4}, {5, 6, 7, 8, 9}, {1, 1}, {2, 2, 2}, {3}};
    write_shard(folder.path("all.h5"), documents, 100, 0);
    write_shard(folder.path("part_0.h5"), {documents[0], documents[1]}, 100, 0);
    write_shard(folder.path("part_1.h5"), {documents[2]}, 100, 0);
    write_shard(folder.path("part_2.h5"), {documents[3], documents[4], documents[5]}, 100, 0);
    TokenDatasetArgs one = args_for({folder.path("all.h5")}, 4, SampleOrder::shuffled);
    one.document_mask = DocumentMask::on;
    TokenDatasetArgs three = one;
    three.sources[0].paths = {folder.path("part_*.h5")};
    const Batch a = read(TokenDataset(one), 0, 20);
    const Batch b = read(TokenDataset(three), 0, 20);
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_EQ(a.targets, b.targets);
    EXPECT_EQ(a.document_borders, b.document_borders);
    EXPECT_EQ(TokenDataset(three).text_bytes(), TokenDataset(one).text_bytes());
}

TEST(TokenDataset, a_batch_is_a_function_of_seed_and_position) {
    const TemporaryFolder folder;
    write_foreign(folder.path("a.h5"), test::counting(700, 100000), {.type = "i32"});
    const TokenDataset dataset(args_for({folder.path("a.h5")}, 7, SampleOrder::shuffled));
    const Batch whole = read(dataset, 0, 250);
    for (const std::int64_t position : {200, 0, 98, 99, 100, 249}) {
        const Batch one = read(dataset, position, 1);
        EXPECT_TRUE(std::equal(one.tokens.begin(), one.tokens.end(), whole.tokens.begin() + position * 7));
        EXPECT_THAT(one.sample_index, ElementsAre(position));
        EXPECT_EQ(one.first_sample, position);
    }
    TokenDatasetArgs other = args_for({folder.path("a.h5")}, 7, SampleOrder::shuffled);
    other.seed = 4;
    EXPECT_NE(read(TokenDataset(other), 0, 250).tokens, whole.tokens);
    EXPECT_NE(dataset.place_of(0).sample, dataset.place_of(dataset.num_samples()).sample);
    EXPECT_EQ(dataset.place_of(dataset.num_samples()).epoch, 1);
}

TEST(TokenDataset, DA_18_targets_across_document_borders_carry_no_loss) {
    const TemporaryFolder folder;
    write_shard(folder.path("ours.h5"), {{1, 2, 3}, {4}, {5, 6, 7, 8}}, 10, 0);  // 1 2 3 0 | 4 0 | 5 6 7 8 0
    write_foreign(folder.path("foreign.h5"), {1, 2, 3, 0, 4, 0, 5, 6, 7, 8, 0});
    for (const char* name : {"ours.h5", "foreign.h5"}) {
        TokenDatasetArgs args = args_for({folder.path(name)}, 5);
        args.eod_id = 0;
        const Batch plain = read(TokenDataset(args), 0, 2);
        EXPECT_THAT(plain.targets, ElementsAre(2, 3, 0, 4, 0, 5, 6, 7, 8, 0));
        EXPECT_EQ(plain.loss_tokens, 10);
        EXPECT_THAT(plain.document_borders, ElementsAre(ElementsAre(), ElementsAre()));
        args.document_mask = DocumentMask::on;
        const Batch masked = read(TokenDataset(args), 0, 2);
        EXPECT_THAT(masked.tokens, ElementsAre(1, 2, 3, 0, 4, 0, 5, 6, 7, 8));
        EXPECT_THAT(masked.targets, ElementsAre(2, 3, 0, -1, 0, -1, 6, 7, 8, 0));
        EXPECT_EQ(masked.loss_tokens, 8);
        EXPECT_THAT(masked.document_borders, ElementsAre(ElementsAre(4), ElementsAre(1)));
    }
}

TEST(TokenDataset, DA_18_a_border_at_the_end_of_the_window_masks_the_last_target) {
    const TemporaryFolder folder;
    write_shard(folder.path("a.h5"), {{1, 2, 3}, {4, 5, 6}}, 10, 0);
    TokenDatasetArgs args = args_for({folder.path("a.h5")}, 4);
    args.document_mask = DocumentMask::on;
    const Batch batch = read(TokenDataset(args), 0, 1);
    EXPECT_THAT(batch.targets, ElementsAre(2, 3, 0, -1));
    EXPECT_THAT(batch.document_borders, ElementsAre(ElementsAre()));
}

TEST(TokenDataset, DA_18_a_mask_without_document_ends_is_refused) {
    const TemporaryFolder folder;
    write_foreign(folder.path("a.h5"), test::counting(20));
    TokenDatasetArgs args = args_for({folder.path("a.h5")}, 4);
    args.document_mask = DocumentMask::on;
    EXPECT_THAT(message_of<core::DataError>([&] { TokenDataset{args}; }), HasSubstr("document mask"));
}

TEST(TokenDataset, DA_15_DA_20_ordered_reading_gives_the_same_samples_and_ends_clearly) {
    const TemporaryFolder folder;
    write_foreign(folder.path("a.h5"), test::counting(21));
    write_foreign(folder.path("b.h5"), test::counting(11));
    TokenDatasetArgs args = args_for({folder.path("a.h5")}, 5);
    args.sources.push_back({.paths = {folder.path("b.h5")}});
    const TokenDataset dataset(args);
    ASSERT_EQ(dataset.num_samples(), 6);
    const Batch first = read(dataset, 0, 6);
    for (int again = 0; again < 3; ++again) EXPECT_EQ(read(dataset, 0, 6).tokens, first.tokens);
    EXPECT_EQ(first.tokens[5], 5);
    EXPECT_EQ(first.tokens[20], 0);
    EXPECT_THAT(message_of<core::DataError>([&] { read(dataset, 4, 3); }),
                HasSubstr("sample 6 was asked for, but the data holds 6"));
}

TEST(TokenDataset, DA_06_DA_07_vocabulary_and_tokenizer_must_agree) {
    const TemporaryFolder folder;
    write_shard(folder.path("a.h5"), {{1, 2, 3, 4, 5, 6}}, 64, 0, std::string(64, 'a'));
    write_shard(folder.path("b.h5"), {{1, 2, 3, 4, 5, 6}}, 64, 0, std::string(64, 'b'));
    TokenDatasetArgs args = args_for({folder.path("a.h5")}, 4);
    args.vocab_size = 61;
    EXPECT_THAT(message_of<core::DataError>([&] { TokenDataset{args}; }),
                HasSubstr("vocabulary of 64, but the model's vocabulary is 61"));
    args.vocab_size = 64;
    args.tokenizer_sha256 = std::string(64, 'a');
    EXPECT_NO_THROW(TokenDataset{args});
    args.tokenizer_sha256 = std::string(64, 'c');
    EXPECT_THAT(message_of<core::DataError>([&] { TokenDataset{args}; }), HasSubstr("another tokenizer"));
    args.tokenizer_sha256.clear();
    args.sources[0].paths.push_back(folder.path("b.h5"));
    EXPECT_THAT(message_of<core::DataError>([&] { TokenDataset{args}; }),
                HasSubstr("tokenizer of shard " + folder.path("a.h5")));
}

TEST(TokenDataset, DA_06_a_bad_id_is_found_when_its_batch_is_read) {
    const TemporaryFolder folder;
    write_foreign(folder.path("a.h5"), {1, 2, 3, 4, 5, 6, 64, 8, 9}, {.document_offsets = {0, 5, 9}});
    TokenDatasetArgs args = args_for({folder.path("a.h5")}, 4);
    args.vocab_size = 64;
    const TokenDataset dataset(args);
    EXPECT_NO_THROW(read(dataset, 0, 1));
    EXPECT_THAT(message_of<core::DataError>([&] { read(dataset, 1, 1); }),
                HasSubstr("document 1, offset 1 (token 6 of the shard)"));
}

TEST(TokenDataset, DA_11_descriptors_stay_bounded) {
    const TemporaryFolder folder;
    for (int k = 0; k < 500; ++k) {
        write_foreign(folder.path(fmt::format("{:03}.h5", k)), test::counting(9),
                      {.layout = k % 2 == 0 ? Layout::chunked : Layout::contiguous});
    }
    rlimit before{};
    getrlimit(RLIMIT_NOFILE, &before);
    rlimit small = before;
    small.rlim_cur = 64;
    setrlimit(RLIMIT_NOFILE, &small);
    const TokenDataset dataset(args_for({folder.path("*.h5")}, 4, SampleOrder::shuffled));
    EXPECT_EQ(dataset.num_samples(), 1124);
    EXPECT_NO_THROW(read(dataset, 0, 2 * 1124)) << "two epochs";
    std::int64_t open_files = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++open_files;
    setrlimit(RLIMIT_NOFILE, &before);
    EXPECT_LT(open_files, 40);
}

TEST(TokenDataset, DA_03_small_sources_wrap_and_shares_hold_at_every_prefix) {
    const TemporaryFolder folder;
    write_foreign(folder.path("a.h5"), test::counting(36));
    write_foreign(folder.path("b.h5"), test::counting(36, 35));
    for (const double weight : {0.001, 1e-9}) {
        TokenDatasetArgs args = args_for({folder.path("a.h5")}, 5, SampleOrder::shuffled);
        args.sources[0].weight = weight;
        args.sources.push_back({.paths = {folder.path("b.h5")}, .weight = 1 - weight});
        const TokenDataset dataset(args);
        std::vector<int> reads(7);
        std::int64_t small = 0;
        for (std::int64_t k = 0; k < 500; ++k) {
            const SamplePlace place = dataset.place_of(k);
            if (place.source == 1) ++reads[static_cast<std::size_t>(place.sample)];
            small += place.source == 0 ? 1 : 0;
            ASSERT_NEAR(static_cast<double>(small), weight * static_cast<double>(k + 1), 1.0);
        }
        EXPECT_LE(*std::max_element(reads.begin(), reads.end()) - *std::min_element(reads.begin(), reads.end()), 1);
        EXPECT_NO_THROW(read(dataset, 0, 500));
    }
}

TEST(TokenDataset, DA_14_epochs_and_shares_are_told_beforehand) {
    const TemporaryFolder folder;
    write_foreign(folder.path("a.h5"), test::counting(101));
    TokenDatasetArgs args = args_for({folder.path("a.h5")}, 10, SampleOrder::shuffled);
    args.sources[0].name = "books";
    EXPECT_DOUBLE_EQ(TokenDataset(args).most_epochs(37), 3.7);
    EXPECT_THAT(TokenDataset(args).describe(37), HasSubstr("37 samples of 10 tokens needed, 10 in one pass"));
    EXPECT_THAT(TokenDataset(args).describe(37),
                HasSubstr("books: 1 shards, 101 tokens, 10 samples, share 100.000 %, 3.70 epochs"));
    EXPECT_FALSE(TokenDataset(args).text_bytes().has_value());
}

TEST(TokenDataset, mistakes_are_refused) {
    const TemporaryFolder folder;
    EXPECT_THAT(message_of<core::DataError>([&] { TokenDataset(args_for({folder.path("*.h5")}, 4)); }),
                HasSubstr("no shard matches"));
    EXPECT_THROW(TokenDataset(args_for({}, 4)), core::DataError);
    EXPECT_THROW(TokenDataset(args_for({"x"}, 0)), core::DataError);
    EXPECT_THROW(TokenDataset({.sources = {}, .seq_length = 1, .vocab_size = 1}), core::DataError);
}

}  // namespace
}  // namespace tessera::data

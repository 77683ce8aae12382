#include "data/batch_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "data/data_support.h"

namespace tessera::data {
namespace {

using test::message_of;
using test::TemporaryFolder;
using test::write_foreign;
using ::testing::HasSubstr;

TokenDataset dataset_of(const TemporaryFolder& folder, const std::vector<std::int64_t>& tokens, SampleOrder order) {
    write_foreign(folder.path("a.h5"), tokens, {.type = "i32"});
    return TokenDataset({.sources = {{.paths = {folder.path("a.h5")}}},
                         .seed = 1,
                         .seq_length = 4,
                         .vocab_size = 1000,
                         .order = order});
}

TEST(BatchReader, step_n_is_batch_n_wherever_reading_starts) {
    const TemporaryFolder folder;
    const TokenDataset dataset = dataset_of(folder, test::counting(200), SampleOrder::shuffled);
    BatchReader whole(dataset, {.schedule = constant_batches(6)});
    std::vector<Batch> batches;
    for (int step = 0; step < 30; ++step) batches.push_back(whole.next());
    for (const std::int64_t first : {1, 7, 29}) {
        BatchReader resumed(dataset, {.first_step = first, .schedule = constant_batches(6), .depth = 1});
        for (std::int64_t step = first; step < 30; ++step) {
            EXPECT_EQ(resumed.next_step(), step);
            const Batch batch = resumed.next();
            EXPECT_EQ(batch.tokens, batches[static_cast<std::size_t>(step)].tokens);
            EXPECT_EQ(batch.first_sample, 6 * step);
        }
    }
}

TEST(BatchReader, batch_sizes_may_change) {
    const TemporaryFolder folder;
    const TokenDataset dataset = dataset_of(folder, test::counting(200), SampleOrder::shuffled);
    BatchReader reader(dataset, {.schedule = [](std::int64_t step) {
                           return SampleRange{step * (step + 1) / 2, step + 1};
                       }});
    std::int64_t position = 0;
    for (std::int64_t step = 0; step < 12; ++step) {
        const Batch batch = reader.next();
        EXPECT_EQ(batch.first_sample, position);
        EXPECT_EQ(batch.num_samples, step + 1);
        position += batch.num_samples;
    }
}

TEST(BatchReader, DA_19_the_end_is_known_without_reading_past_it) {
    const TemporaryFolder folder;
    const TokenDataset dataset = dataset_of(folder, test::counting(41), SampleOrder::ordered);
    for (int again = 0; again < 3; ++again) {
        BatchReader reader(dataset, {.end_step = 2, .schedule = constant_batches(5)});
        EXPECT_EQ(reader.next().num_samples, 5);
        EXPECT_EQ(reader.next().num_samples, 5);
        EXPECT_THAT(message_of<core::RunError>([&] { reader.next(); }), HasSubstr("ends before step 2"));
    }
}

TEST(BatchReader, errors_arrive_at_the_step_they_belong_to_and_stay) {
    const TemporaryFolder folder;
    std::vector<std::int64_t> tokens = test::counting(41);
    tokens[30] = 5000;
    const TokenDataset dataset = dataset_of(folder, tokens, SampleOrder::ordered);
    BatchReader reader(dataset, {.schedule = constant_batches(1), .depth = 4});
    for (int step = 0; step < 7; ++step) EXPECT_NO_THROW(reader.next());
    for (int again = 0; again < 2; ++again) {
        EXPECT_THAT(message_of<core::DataError>([&] { reader.next(); }), HasSubstr("token id 5000"));
    }
}

TEST(BatchReader, leaving_early_does_not_hang) {
    const TemporaryFolder folder;
    const TokenDataset dataset = dataset_of(folder, test::counting(200), SampleOrder::shuffled);
    for (int again = 0; again < 50; ++again) {
        BatchReader reader(dataset, {.schedule = constant_batches(3)});
        if (again % 2 == 0) reader.next();
    }
}

}  // namespace
}  // namespace tessera::data

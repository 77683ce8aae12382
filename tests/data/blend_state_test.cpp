#include "data/blend_state.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include "core/error.h"
#include "data/data_support.h"
#include "data/dataset.h"

namespace tessera::data {
namespace {

using test::message_of;
using test::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kLength = 4;

/// A source of `samples` samples whose tokens tell it from others.
DataSource source_of(const TemporaryFolder& folder, const std::string& name, std::int64_t samples, double weight) {
    const std::string path = folder.path(name + ".h5");
    if (!std::filesystem::exists(path)) {
        std::vector<std::int64_t> tokens = test::counting(samples * kLength + 1);
        tokens.front() = name.front();
        test::write_foreign(path, tokens);
    }
    return {.paths = {path}, .weight = weight, .name = name};
}

TokenDataset dataset_of(std::vector<DataSource> sources, std::uint64_t seed = 5) {
    return TokenDataset({.sources = std::move(sources), .seed = seed, .seq_length = kLength, .vocab_size = 1000});
}

/// What each source gave, in order, over all runs.
class Readings {
public:
    void read(const TokenDataset& dataset, std::int64_t begin, std::int64_t end) {
        for (std::int64_t position = begin; position < end; ++position) {
            const SamplePlace place = dataset.place_of(position);
            const SourceState& source = dataset.blend_state().sources[static_cast<std::size_t>(place.source)];
            samples_[source.name].emplace_back(place.epoch, place.sample);
            sizes_[source.name] = source.num_samples;
        }
    }

    /// Every epoch but the last is whole and ends before the next begins, and no epoch holds a sample twice.
    void expect_no_repeats_and_no_gaps() const {
        for (const auto& [name, given] : samples_) {
            const std::int64_t size = sizes_.at(name);
            std::set<std::int64_t> epoch;
            for (std::size_t k = 0; k < given.size(); ++k) {
                if (static_cast<std::int64_t>(k) % size == 0) epoch.clear();
                EXPECT_EQ(given[k].first, static_cast<std::int64_t>(k) / size) << name << ", its sample " << k;
                EXPECT_TRUE(epoch.insert(given[k].second).second) << name << " gave " << given[k].second << " twice";
            }
        }
    }

    std::int64_t given_by(const std::string& name) const { return static_cast<std::int64_t>(samples_.at(name).size()); }

private:
    std::map<std::string, std::vector<std::pair<std::int64_t, std::int64_t>>> samples_;
    std::map<std::string, std::int64_t> sizes_;
};

TEST(BlendState, no_source_repeats_or_leaves_out_a_sample_over_four_changes) {
    const TemporaryFolder folder;
    const auto a = [&](double weight) { return source_of(folder, "a", 40, weight); };
    const auto b = [&](double weight) { return source_of(folder, "b", 70, weight); };
    const auto c = [&](double weight) { return source_of(folder, "c", 33, weight); };
    const auto d = [&](double weight) { return source_of(folder, "d", 11, weight); };
    // Other weights; a source more; order changed and one left out; it comes back, another goes.
    const std::vector<std::vector<DataSource>> blends = {
            {a(1), b(2)}, {a(5), b(1)}, {a(2), b(2), c(3)}, {d(1), c(2), b(1)}, {b(1), a(4), d(1)}};
    Readings readings;
    std::string saved;
    std::int64_t position = 0;
    for (const std::vector<DataSource>& sources : blends) {
        TokenDataset dataset = dataset_of(sources);
        const bool resumes = !saved.empty();
        const auto changes = resumes ? dataset.resume(blend_state_of(saved), position) : std::vector<std::string>();
        EXPECT_EQ(changes.empty(), !resumes);
        readings.read(dataset, position, position + 101);
        position += 101;
        saved = to_json(dataset.blend_state());
    }
    readings.expect_no_repeats_and_no_gaps();
    EXPECT_EQ(readings.given_by("a") + readings.given_by("b") + readings.given_by("c") + readings.given_by("d"),
              position);
    // The law would be empty if no source had come to its second epoch, or none had stopped inside one.
    EXPECT_GT(readings.given_by("a"), 120);
    EXPECT_GT(readings.given_by("d"), 22);
}

TEST(BlendState, the_same_blend_goes_on_as_if_there_had_been_no_stop) {
    const TemporaryFolder folder;
    const auto sources = [&](double factor) {
        return std::vector<DataSource>{source_of(folder, "a", 40, factor), source_of(folder, "b", 70, 2 * factor)};
    };
    const TokenDataset whole = dataset_of(sources(1));
    TokenDataset resumed = dataset_of(sources(10));
    EXPECT_THAT(resumed.resume(whole.blend_state(), 77), IsEmpty());
    EXPECT_EQ(resumed.blend_state(), whole.blend_state());
    for (std::int64_t position = 77; position < 500; ++position) {
        EXPECT_EQ(resumed.place_of(position).source, whole.place_of(position).source);
        EXPECT_EQ(resumed.place_of(position).sample, whole.place_of(position).sample);
    }
    EXPECT_EQ(resumed.epochs(0, 300), whole.epochs(0, 300));
    // After a change, too.
    TokenDataset changed = dataset_of({source_of(folder, "a", 40, 1), source_of(folder, "b", 70, 1)});
    EXPECT_FALSE(changed.resume(whole.blend_state(), 50).empty());
    TokenDataset again = dataset_of({source_of(folder, "a", 40, 3), source_of(folder, "b", 70, 3)});
    EXPECT_THAT(again.resume(changed.blend_state(), 91), IsEmpty());
    for (std::int64_t position = 91; position < 300; ++position)
        EXPECT_EQ(again.place_of(position).sample, changed.place_of(position).sample);
}

TEST(BlendState, a_source_is_known_by_its_tokens_wherever_it_lies) {
    const TemporaryFolder folder;
    test::write_shard(folder.path("one.h5"), {std::vector<std::int32_t>(50, 1)}, 10, 0);
    test::write_shard(folder.path("two.h5"), {std::vector<std::int32_t>(50, 2)}, 10, 0);
    const std::string one = folder.path("one.h5");
    const std::string two = folder.path("two.h5");
    const TokenDataset before = dataset_of({{.paths = {one}}, {.paths = {two}}});
    std::filesystem::create_directories(folder.path("moved"));
    std::filesystem::rename(one, folder.path("moved/x.h5"));
    TokenDataset moved = dataset_of({{.paths = {folder.path("moved/*.h5")}}, {.paths = {two}}});
    EXPECT_THAT(moved.resume(before.blend_state(), 10), IsEmpty());
    EXPECT_NE(before.blend_state().sources[0].identity, before.blend_state().sources[1].identity);
    // Other tokens under the old name are another source.
    std::filesystem::copy(two, one);
    TokenDataset other = dataset_of({{.paths = {one}}, {.paths = {two}}});
    EXPECT_THAT(
            other.resume(before.blend_state(), 10),
            ElementsAre("the data blend changed after 10 samples:",
                        fmt::format("  {}: share 50.000 % (was 50.000 %), goes on after 5 samples (0.42 epochs)", one),
                        fmt::format("  {}: new, share 50.000 %", two),
                        fmt::format("  {}: left out after 5 samples (0.42 epochs)", one)));
}

TEST(BlendState, the_changes_are_told) {
    const TemporaryFolder folder;
    const TokenDataset before = dataset_of({source_of(folder, "a", 40, 1), source_of(folder, "b", 70, 1)});
    TokenDataset without = dataset_of({source_of(folder, "b", 70, 1)});
    EXPECT_THAT(without.resume(before.blend_state(), 20),
                ElementsAre("the data blend changed after 20 samples:",
                            "  b: share 100.000 % (was 50.000 %), goes on after 10 samples (0.14 epochs)",
                            "  a: left out after 10 samples (0.25 epochs)"));
    EXPECT_DOUBLE_EQ(without.epochs(0, 40), 30.0 / 70);
    TokenDataset back = dataset_of({source_of(folder, "a", 40, 1), source_of(folder, "c", 33, 3)}, 6);
    EXPECT_THAT(back.resume(without.blend_state(), 50),
                ElementsAre(HasSubstr("the seed was 5 and is 6"), "the data blend changed after 50 samples:",
                            "  a: share 25.000 % (had been left out), goes on after 10 samples (0.25 epochs)",
                            "  c: new, share 75.000 %", "  b: left out after 40 samples (0.57 epochs)"));
    EXPECT_EQ(back.blend_state().sources[1].stream, 2U) << "an order that no source had before";
}

TEST(BlendState, two_equal_sources_are_two) {
    const TemporaryFolder folder;
    const DataSource a = source_of(folder, "a", 40, 1);
    const TokenDataset before = dataset_of({a, a});
    TokenDataset after = dataset_of({a, source_of(folder, "b", 70, 1), a});
    after.resume(before.blend_state(), 31);
    EXPECT_EQ(after.blend_state().sources[0].given, 16);
    EXPECT_EQ(after.blend_state().sources[1].given, 0);
    EXPECT_EQ(after.blend_state().sources[2].given, 15);
    EXPECT_NE(after.blend_state().sources[0].stream, after.blend_state().sources[2].stream);
}

TEST(BlendState, text_round_trips_and_what_is_no_state_is_refused) {
    const BlendState state{.first_position = 12345678901,
                           .seed = UINT64_MAX,
                           .seq_length = 1024,
                           .sources = {{.identity = "0123456789abcdef",
                                        .name = "a \"path\" \n é",
                                        .stream = 7,
                                        .given = 99,
                                        .num_samples = 3,
                                        .weight = 0.1},
                                       {.identity = "f", .name = "b", .num_samples = 1}}};
    EXPECT_EQ(blend_state_of(to_json(state)), state);
    EXPECT_EQ(to_json(state).find('\n'), std::string::npos);
    for (const std::string& bad : {std::string(), std::string("{}"), std::string("[1]"),
                                   std::string(R"({"first_position":0,"seed":1,"seq_length":"x","sources":[]})")}) {
        EXPECT_THAT(message_of<core::DataError>([&] { blend_state_of(bad); }), HasSubstr("cannot be read")) << bad;
    }
    BlendState impossible = state;
    impossible.sources[0].given = -1;
    EXPECT_THROW(blend_state_of(to_json(impossible)), core::DataError);
    EXPECT_THAT(message_of<core::DataError>([&] { continued_blend(state, state, 5); }),
                HasSubstr("begins at sample 12345678901, but the run stands at 5"));
}

}  // namespace
}  // namespace tessera::data

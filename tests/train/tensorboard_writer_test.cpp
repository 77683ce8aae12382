#include "train/tensorboard_writer.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "core/error.h"
#include "temporary_folder.h"
#include "train/event_file.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

/// The data of each whole record; a record cut short ends the list.
std::vector<std::string> records_of(const std::string& path) {
    const std::string text = read_bytes(path);
    std::vector<std::string> records;
    for (std::size_t at = 0; at + 16 <= text.size();) {
        std::size_t length = 0;
        for (std::size_t i = 0; i < 8; ++i) {
            length |= static_cast<std::size_t>(static_cast<unsigned char>(text[at + i])) << (8 * i);
        }
        if (at + 16 + length > text.size()) break;
        const std::string data = text.substr(at + 12, length);
        EXPECT_EQ(text.substr(at, 16 + length), tf_record(data));
        records.push_back(data);
        at += 16 + length;
    }
    return records;
}

TEST(TensorBoardWriter, EachRecordIsInTheFileAtOnce) {
    TemporaryFolder folder;
    TensorBoardWriter writer(folder.path("a/b"), 0);
    EXPECT_EQ(records_of(writer.path()).size(), 2U);
    writer.write(StepMetrics{.step = 1, .loss = 3});
    EXPECT_EQ(records_of(writer.path()).size(), 3U);
    writer.write(EvaluationMetrics{.step = 1, .loss = 3, .bits_per_byte = 2.0});
    const std::vector<std::string> records = records_of(writer.path());
    ASSERT_EQ(records.size(), 4U);
    EXPECT_THAT(records[0], testing::HasSubstr("brain.Event:2"));
    for (const char* tag : {"lm loss", "learning-rate", "grad-norm", "loss-scale", "batch-size", "throughput",
                            "iteration-time", "tokens-per-second"}) {
        EXPECT_THAT(records[2], testing::HasSubstr(tag));
    }
    for (const char* tag : {"lm loss validation", "lm loss validation ppl", "lm loss validation bits per byte"}) {
        EXPECT_THAT(records[3], testing::HasSubstr(tag));
    }
}

TEST(TensorBoardWriter, AResumedRunSaysFromWhichStep) {
    TemporaryFolder folder;
    const TensorBoardWriter writer(folder.path("events"), 41);
    const std::vector<std::string> records = records_of(writer.path());
    ASSERT_EQ(records.size(), 2U);
    const std::string expected = session_start_event(0, 42);
    EXPECT_EQ(records[1].substr(9), expected.substr(9)) << "all but the wall time";
}

TEST(TensorBoardWriter, NamesSortInTheOrderOfTheRuns) {
    TemporaryFolder folder;
    std::vector<std::string> names;
    for (int i = 0; i < 3; ++i) {
        names.push_back(fs::path(TensorBoardWriter(folder.path("events"), 0).path()).filename().string());
    }
    EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
    EXPECT_NE(names[0], names[1]);
    EXPECT_THAT(names[0], testing::MatchesRegex("events\\.out\\.tfevents\\.[0-9]{10}\\..+\\.[0-9]+\\.0"));
}

TEST(TensorBoardWriter, APlaceThatCannotBeWrittenIsNamed) {
    TemporaryFolder folder;
    write_bytes(folder.path("file"), "x");
    try {
        const TensorBoardWriter writer(folder.path("file/events"), 0);
        FAIL() << "opened";
    } catch (const core::EnvironmentError& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr(folder.path("file/events")));
        EXPECT_THAT(error.what(), testing::HasSubstr("log.tensorboard"));
    }
}

}  // namespace
}  // namespace tessera::train

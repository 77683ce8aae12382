#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "checkpoint_example.h"
#include "core/error.h"
#include "file_size_limit.h"
#include "temporary_folder.h"
#include "train/checkpoint_files.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;
using core::CheckpointError;
using core::EnvironmentError;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class FindCheckpoint : public testing::Test {
protected:
    void write(std::int64_t step) { CheckpointExample(step).write(root_); }
    std::int64_t found(const std::string& resume) {
        const auto reader = find_checkpoint(root_, resume);
        return reader ? reader->state().step : -1;
    }
    std::string refusal(const std::string& resume) {
        return message_of<CheckpointError>([&] { find_checkpoint(root_, resume); });
    }
    std::string file(std::int64_t step, const std::string& name) {
        return root_ + "/" + checkpoint_name(step) + "/" + name;
    }
    std::vector<std::string> names() {
        std::vector<std::string> all;
        for (const auto& entry : fs::directory_iterator(root_)) all.push_back(entry.path().filename().string());
        std::sort(all.begin(), all.end());
        return all;
    }
    void flip(const std::string& path, std::size_t from_end) {
        std::string bytes = read_bytes(path);
        char& byte = bytes[bytes.size() - from_end];
        byte = static_cast<char>(byte ^ 4);
        write_bytes(path, bytes);
    }

    TemporaryFolder folder_;
    std::string root_ = folder_.path("checkpoints");
};

TEST_F(FindCheckpoint, CK13_NothingThereStartsAnewOnlyUnderAuto) {
    EXPECT_EQ(found("auto"), -1);
    EXPECT_EQ(found("none"), -1);
    EXPECT_THAT(refusal("120"), AllOf(HasSubstr("checkpoint.resume = 120: there is no such step"),
                                      HasSubstr("there are no checkpoints in")));
    EXPECT_THAT(refusal(folder_.path("absent")), HasSubstr("absent' does not exist"));
    fs::create_directories(root_);
    EXPECT_EQ(found("auto"), -1);
    EXPECT_THAT(refusal(root_),
                HasSubstr("is neither a complete checkpoint (no index.json) nor a folder of checkpoints"));
}

TEST_F(FindCheckpoint, CK13_JunkIsIgnored) {
    fs::create_directories(root_ + "/tmp");
    fs::create_directories(root_ + "/iter_abc");
    fs::create_directories(root_ + "/step_00000009");
    fs::create_directories(root_ + "/step_12");
    write_bytes(root_ + "/step_00000007", "a plain file");
    EXPECT_EQ(found("auto"), -1);
    write(5);
    EXPECT_EQ(found("auto"), 5);
    EXPECT_THAT(list_checkpoints(root_), ElementsAre(5));
}

TEST_F(FindCheckpoint, CK13_ExplicitStepsAndPaths) {
    for (const std::int64_t step : {5, 10, 15}) write(step);
    EXPECT_EQ(found("auto"), 15);
    EXPECT_EQ(found("10"), 10);
    EXPECT_EQ(found(root_ + "/step_00000005"), 5);
    EXPECT_EQ(found(root_), 15);
    EXPECT_EQ(found("none"), -1);
    EXPECT_THAT(refusal("12"), AllOf(HasSubstr("no such step"), HasSubstr("has steps 5, 10, 15")));
    EXPECT_THAT(refusal(root_ + "/step_00000012"), HasSubstr("has steps 5, 10, 15"));
}

TEST_F(FindCheckpoint, StepsBeyondEightDigits) {
    write(123456789012);
    EXPECT_EQ(found("auto"), 123456789012);
    EXPECT_EQ(found("123456789012"), 123456789012);
}

TEST_F(FindCheckpoint, CK03_ADamagedNewestFallsBackToTheOneBefore) {
    for (const std::int64_t step : {5, 10}) write(step);
    write(15);
    fs::resize_file(file(15, "rank_00000.safetensors"), 0);
    EXPECT_EQ(found("auto"), 10);
    EXPECT_THAT(refusal("15"), AllOf(HasSubstr("step_00000015/rank_00000.safetensors"), HasSubstr("it has 0 bytes")));
    write(15);
    fs::remove(file(15, "rank_00000_optimizer.safetensors"));
    EXPECT_EQ(found("auto"), 10);
    write(15);
    flip(file(15, "rank_00000_optimizer.safetensors"), 50);
    EXPECT_EQ(found("auto"), 10);
    EXPECT_THAT(refusal("15"), HasSubstr("has checksum"));
    flip(file(10, "index.json"), 40);
    EXPECT_EQ(found("auto"), 5);
    fs::remove(file(5, "rank_00000.safetensors"));
    EXPECT_THAT(refusal("auto"),
                AllOf(HasSubstr("none of the 3 checkpoints"), HasSubstr("checkpoint.resume = \"none\"")));
}

TEST_F(FindCheckpoint, LatestThatIsAbsentWrongOrDamagedIsNotTrusted) {
    for (const std::int64_t step : {5, 10}) write(step);
    fs::remove(root_ + "/latest");
    EXPECT_EQ(found("auto"), 10);
    write_bytes(root_ + "/latest", "step_00000005");
    EXPECT_EQ(found("auto"), 5);
    write_bytes(root_ + "/latest", "step_00000099\n");
    EXPECT_EQ(found("auto"), 10);
    write_bytes(root_ + "/latest", "../../etc");
    EXPECT_EQ(found("auto"), 10);
    write_bytes(root_ + "/latest", "");
    EXPECT_EQ(found("auto"), 10);
}

TEST_F(FindCheckpoint, CK01_WhatAKilledSaveLeftIsIgnoredAndRemoved) {
    write(5);
    const std::string leftover = root_ + "/.step_00000010.tmp-host-4";
    fs::copy(root_ + "/step_00000005", leftover);
    fs::remove(leftover + "/index.json");
    write_bytes(root_ + "/latest.tmp-4", "step_0");
    fs::create_directories(root_ + "/.tmp-mine");
    write_bytes(root_ + "/notes.txt", "mine");
    EXPECT_EQ(found("auto"), 5);
    prepare_checkpoint_root(root_, 1000, 1000);
    EXPECT_THAT(names(), ElementsAre(".tmp-mine", "latest", "notes.txt", "step_00000005"));
    EXPECT_EQ(found("auto"), 5);
}

TEST_F(FindCheckpoint, CK01_KilledAtAnyMomentTheNextStartFindsAWholeOne) {
    write(1);
    for (int round = 0; round < 20; ++round) {
        const std::int64_t before = found("auto");
        ASSERT_GE(before, 1);
        const pid_t child = ::fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            for (std::int64_t step = before + 1;; ++step)
                CheckpointExample(step).write(root_, {.keep = 2, .keep_every = 0});
        }
        std::this_thread::sleep_for(std::chrono::microseconds(500 + 1700 * round));
        ::kill(child, SIGKILL);
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFSIGNALED(status));
        const auto reader = find_checkpoint(root_, "auto");
        ASSERT_TRUE(reader.has_value());
        EXPECT_GE(reader->state().step, before);
        std::vector<float> values(35);
        reader->read("model/weight", TensorBlock::whole({7, 5}), core::DType::f32,
                     reinterpret_cast<std::byte*>(values.data()));
        EXPECT_EQ(values, CheckpointExample(reader->state().step).weight);
        prepare_checkpoint_root(root_, 1000);
        for (const std::string& name : names()) EXPECT_EQ(name.find(".tmp-"), std::string::npos) << name;
    }
}

TEST_F(FindCheckpoint, CK18_RetentionKeepsTheNewestAndTheMultiples) {
    fs::create_directories(root_ + "/step_00000003");
    write_bytes(root_ + "/step_00000003/mine.txt", "not a checkpoint");
    write_bytes(root_ + "/notes.txt", "mine");
    for (std::int64_t step = 1; step <= 20; ++step) {
        if (step != 3) CheckpointExample(step).write(root_, {.keep = 3, .keep_every = 5});
    }
    EXPECT_THAT(list_checkpoints(root_), ElementsAre(5, 10, 15, 18, 19, 20));
    for (const std::int64_t step : list_checkpoints(root_)) EXPECT_EQ(found(std::to_string(step)), step);
    EXPECT_EQ(read_bytes(root_ + "/step_00000003/mine.txt"), "not a checkpoint");
    EXPECT_EQ(read_bytes(root_ + "/notes.txt"), "mine");
    EXPECT_EQ(names().size(), 6U + 3U);
}

TEST_F(FindCheckpoint, CK18_TheOneResumedFromAndLaterOnesStay) {
    for (const std::int64_t step : {5, 10, 20, 30}) write(step);
    CheckpointExample(15).write(root_, {.keep = 1, .keep_every = 0}, root_ + "/step_00000005");
    EXPECT_THAT(list_checkpoints(root_), ElementsAre(5, 15, 20, 30));
    EXPECT_EQ(found("auto"), 15) << "latest is the run's own newest";
}

TEST_F(FindCheckpoint, ACheckpointOfTheSameStepIsReplaced) {
    write(5);
    CheckpointExample other(5);
    other.weight[0] = 77.0F;
    other.write(root_);
    EXPECT_THAT(names(), ElementsAre("latest", "step_00000005"));
    float first = 0;
    find_checkpoint(root_, "auto")
            ->read("model/weight", {{7, 5}, {{{0, 1}, {0, 1}}}}, core::DType::f32,
                   reinterpret_cast<std::byte*>(&first));
    EXPECT_EQ(first, 77.0F);
}

TEST_F(FindCheckpoint, ARunsFolderStandsForItsCheckpoints_CK_13) {
    write(7);
    const std::string run = folder_.path("");
    EXPECT_EQ(find_checkpoint(folder_.path("elsewhere"), run)->state().step, 7);
    fs::create_directories(folder_.path("empty/checkpoints"));
    EXPECT_THAT(refusal(folder_.path("empty")),
                AllOf(HasSubstr("empty' is neither a complete checkpoint"), HasSubstr("or of a run")));
}

TEST_F(FindCheckpoint, WeightsAloneNeedNoOptimizer_CK_19) {
    write(3);
    write(4);
    const std::string optimizer = file(4, "rank_00000_optimizer.safetensors");
    fs::remove(optimizer);
    const std::string four = root_ + "/step_00000004";
    EXPECT_THAT(refusal("4"), AllOf(HasSubstr(optimizer), HasSubstr("missing"),
                                    HasSubstr("checkpoint.weights = \"" + four + "\" starts a run")));
    EXPECT_EQ(found("auto"), 3);
    for (const std::string& way : {std::string("auto"), std::string("4"), four, root_}) {
        const auto reader = find_checkpoint(root_, way, LoadParts::weights_only);
        ASSERT_TRUE(reader);
        EXPECT_EQ(reader->state().step, 4) << way;
        EXPECT_TRUE(reader->has("model/weight"));
        EXPECT_FALSE(reader->has("optimizer/exp_avg/weight"));
        float first = 0;
        reader->read("model/weight", {{7, 5}, {{{0, 1}, {0, 1}}}}, core::DType::f32,
                     reinterpret_cast<std::byte*>(&first));
        EXPECT_EQ(first, 4.0F);
    }
    // Weights that are damaged are refused as ever.
    flip(file(4, "rank_00000.safetensors"), 1);
    EXPECT_THAT(message_of<CheckpointError>([&] { find_checkpoint(root_, four, LoadParts::weights_only); }),
                HasSubstr("rank_00000.safetensors"));
}

TEST_F(FindCheckpoint, CK02_NoRoomIsSaidBeforeAnyWork) {
    const std::string message =
            message_of<EnvironmentError>([&] { prepare_checkpoint_root(root_, std::int64_t{1} << 60); });
    EXPECT_THAT(message, AllOf(HasSubstr("no room for a checkpoint in '" + root_ + "'"),
                               HasSubstr("1152921504606846976 bytes needed"), HasSubstr(" free;")));
    const FileSizeLimit limit(10000);
    EXPECT_THAT(message_of<EnvironmentError>([&] { prepare_checkpoint_root(root_, 30000, 20000); }),
                AllOf(HasSubstr("no room for a file of 20000 bytes in '" + root_ + "'")));
    EXPECT_TRUE(names().empty());
}

TEST_F(FindCheckpoint, CK02_AFailedSaveLeavesTheOlderOneAndNothingElse) {
    write(5);
    {
        const FileSizeLimit limit(100);
        EXPECT_THAT(message_of<EnvironmentError>([&] { write(10); }),
                    AllOf(HasSubstr("rank_00000.safetensors"), HasSubstr("more needed"), HasSubstr("free")));
    }
    EXPECT_THAT(names(), ElementsAre("latest", "step_00000005"));
    EXPECT_EQ(found("auto"), 5);
}

TEST_F(FindCheckpoint, AFolderThatCannotBeMadeIsNamed) {
    write_bytes(folder_.path("checkpoints"), "a file");
    EXPECT_THAT(message_of<EnvironmentError>([&] { prepare_checkpoint_root(root_, 1); }),
                HasSubstr("cannot create the folder '" + root_));
    EXPECT_THAT(message_of<EnvironmentError>([&] { write(1); }), HasSubstr(root_));
}

TEST_F(FindCheckpoint, SizesAreUpperBounds) {
    const CheckpointExample example(5);
    const TensorSlice slice{"model/w", TensorBlock::whole({7, 5}), core::DType::f32,
                            reinterpret_cast<const std::byte*>(example.weight.data())};
    CheckpointState state;
    const std::string path = write_checkpoint({.root = root_, .state = state, .slices = std::span(&slice, 1)});
    std::int64_t total = 0;
    std::int64_t largest = 0;
    for (const auto& entry : fs::directory_iterator(path)) {
        total += static_cast<std::int64_t>(entry.file_size());
        largest = std::max(largest, static_cast<std::int64_t>(entry.file_size()));
    }
    EXPECT_LE(total, checkpoint_bytes(std::span(&slice, 1)));
    EXPECT_LE(largest, largest_file_bytes(std::span(&slice, 1)));
}

}  // namespace
}  // namespace tessera::train

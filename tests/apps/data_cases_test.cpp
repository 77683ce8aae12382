// Troubles with training data that only a whole run shows (docs/cases.md).
#include <stdlib.h>

#include "apps/program_support.h"
#include "data/data_support.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using support::field_of;
using support::Outcome;

/// Sets variables of the environment for as long as it lives.
class Environment {
public:
    explicit Environment(const std::map<std::string, std::string>& variables) : variables_(variables) {
        for (const auto& [name, value] : variables_) setenv(name.c_str(), value.c_str(), 1);
    }
    ~Environment() {
        for (const auto& [name, value] : variables_) unsetenv(name.c_str());
    }
    Environment(const Environment&) = delete;
    Environment& operator=(const Environment&) = delete;

private:
    std::map<std::string, std::string> variables_;
};

class DataCases : public support::ProgramTest {
protected:
    /// A shard of `count` tokens without attributes; returns its path.
    static std::string shard(const std::string& name, std::int64_t count) {
        const fs::path path = folder / name;
        fs::create_directories(path.parent_path());
        data::test::write_foreign(path.string(), data::test::counting(count, 60));
        return path.string();
    }
    std::vector<std::string> values_of(const std::string& run, const std::string& key) const {
        return field_of(run_directory(run) / "metrics.jsonl", key);
    }
};

TEST_F(DataCases, AFileSystemWithoutLocksIsEnough_DA_09) {
    // The first is mapped, the second is read through HDF5.
    const std::string mapped = shard("locks/mapped.h5", 400);
    const std::string chunked = (folder / "locks/chunked.h5").string();
    data::test::write_foreign(chunked, data::test::counting(400, 60), {.layout = data::test::Layout::compressed});
    const std::string train_on = "--data.train=[\"" + mapped + "\", \"" + chunked + "\"]";
    const std::map<std::string, std::string> no_locks = {{"LD_PRELOAD", TESSERA_NO_LOCKS},
                                                         {"ASAN_OPTIONS", "verify_asan_link_order=0"}};
    {
        const Environment environment(no_locks);
        train_well(config("no_locks_unset"), {train_on});
    }
    auto switched = no_locks;
    switched["HDF5_USE_FILE_LOCKING"] = "FALSE";
    {
        const Environment environment(switched);
        train_well(config("no_locks_off"), {train_on});
    }
    EXPECT_TRUE(tensors("no_locks_unset", 12) == tensors("no_locks_off", 12));
    // Who asks for locks where there are none is told which switch that is.
    switched["HDF5_USE_FILE_LOCKING"] = "TRUE";
    const Environment environment(switched);
    support::expect_refused(train(config("no_locks_on"), {train_on}), "gpt_train",
                            {"mapped.h5", "chunked.h5", "HDF5_USE_FILE_LOCKING=FALSE"});
}

TEST_F(DataCases, EveryBadShardOfTwentyIsNamedBeforeTheFirstStep_DA_10) {
    std::string list;
    std::vector<std::string> paths;
    for (int k = 0; k < 20; ++k) {
        paths.push_back(shard("twenty/s" + std::to_string(k) + ".h5", 500));
        list += "\"" + paths.back() + "\", ";
    }
    fs::resize_file(paths[7], fs::file_size(paths[7]) / 2);
    fs::resize_file(paths[11], 0);
    support::write_file(paths[13], "plain text\n");
    fs::remove(paths[15]);
    const Outcome outcome = train(config("twenty"), {"--data.train=[" + list + "]"});
    support::expect_refused(outcome, "gpt_train",
                            {"4 of 20 shards", paths[7] + " is not a readable HDF5 file: truncated file",
                             paths[11] + " is empty (0 bytes)", paths[13] + " is not a readable HDF5 file",
                             paths[15] + " does not exist"});
    for (const int sound : {0, 6, 8, 19})
        EXPECT_EQ(outcome.err.find(paths[static_cast<std::size_t>(sound)] + " "), std::string::npos);
    EXPECT_FALSE(fs::exists(run_directory("twenty") / "metrics.jsonl"));
}

TEST_F(DataCases, MoreThanThreeEpochsOfUnequalShardsAreAnnouncedAndRead_DA_14) {
    const std::int64_t sizes[] = {100, 37, 150, 19, 80};
    for (int k = 0; k < 5; ++k) shard("unequal/s" + std::to_string(k) + ".h5", sizes[k]);
    // 386 tokens are 20 samples of 19; 37 steps of 2 samples read them 3.7 times.
    const Outcome outcome =
            train_well(config("unequal"), {"--data.train=" + (folder / "unequal/*.h5").string(), "--run.train_steps=37",
                                           "--batch.global_batch_size=2", "--schedule.decay_steps=37"});
    EXPECT_NE(outcome.err.find("74 samples of 19 tokens needed, 20 in one pass"), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find("5 shards, 386 tokens, 20 samples, share 100.000 %, 3.70 epochs"), std::string::npos)
            << outcome.err;
    EXPECT_EQ(values_of("unequal", "grad_norm").size(), 37U);
}

TEST_F(DataCases, TheAnnouncedStepsAreTheStepsAndTheScheduleEndsThere_DA_19) {
    // 53 samples: no batch divides them.
    const std::string data = "--data.train=" + shard("odd/s.h5", 53 * 19 + 1);
    for (const int batch : {10, 6, 4}) {
        for (const int micro_batch : {2, batch}) {
            const int steps = 2 * 53 / batch;
            const std::string name = "odd_" + std::to_string(batch) + "_" + std::to_string(micro_batch);
            const Outcome outcome =
                    train_well(config(name), {data, "--run.train_steps=" + std::to_string(steps),
                                              "--schedule.decay_steps=" + std::to_string(steps - 1),
                                              "--batch.global_batch_size=" + std::to_string(batch),
                                              "--batch.micro_batch_size=" + std::to_string(micro_batch)});
            EXPECT_NE(outcome.err.find("run: " + std::to_string(steps) + " steps of "), std::string::npos);
            const auto rates = values_of(name, "learning_rate");
            ASSERT_EQ(rates.size(), static_cast<std::size_t>(steps));
            EXPECT_NEAR(std::stod(rates.back()), 1e-4, 1e-9);
            EXPECT_EQ(values_of(name, "step").back(), std::to_string(steps));
        }
    }
}

TEST_F(DataCases, ValidationStartsAtItsBeginningEachTime_DA_20) {
    // Exactly evaluation.steps batches of 6 samples, and less than one batch.
    for (const int samples : {12, 4}) {
        const std::string name = "validation_" + std::to_string(samples);
        const std::string data = shard(name + ".h5", samples * 19 + 1);
        train_well(config(name), {"--data.validation=" + data, "--optimizer.lr=0", "--optimizer.min_lr=0",
                                  "--evaluation.interval=4"});
        const auto losses = values_of(name, "validation_loss");
        ASSERT_EQ(losses.size(), 3U);
        EXPECT_GT(std::stod(losses[0]), 1) << "a loss of 0 would mean that nothing was read";
        for (const std::string& loss : losses) EXPECT_EQ(loss, losses[0]);
        for (const std::string& tokens : values_of(name, "tokens")) EXPECT_EQ(std::stoi(tokens), samples * 19);
    }
    // A set without one whole sample is refused.
    support::expect_refused(train(config("validation_0"), {"--data.validation=" + shard("none.h5", 19)}), "gpt_train",
                            {"none.h5", "19", "20"});
}

TEST_F(DataCases, ANulInAPromptCutsNothing_TX_04) {
    train_well(config("writer"), {"--run.train_steps=1"});
    const auto continued = [](const std::string& prompt) {
        support::write_file(folder / "prompt.txt", prompt);
        const Outcome outcome =
                support::run_program("gpt_generate", {(folder / "runs/writer").string(), "--prompt-file",
                                                      (folder / "prompt.txt").string(), "--max-tokens", "0"});
        EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
        return outcome.out;
    };
    const std::string prompt("ab\0cd", 5);
    EXPECT_EQ(continued(prompt).substr(0, prompt.size()), prompt);
}

}  // namespace
}  // namespace tessera

// Batches that grow: the same samples in the same order, whatever interrupts or splits them.
#include "apps/program_support.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using support::field_of;
using support::Outcome;

class BatchRamp : public support::ProgramTest {
protected:
    /// 24 steps: ten of 2 samples, five of 4, four of 6 and five of 8. The last is needed for one sample only.
    fs::path ramped(const std::string& name) const {
        std::string text = support::read_file(config(name));
        text.replace(text.find("train_steps = 12"), 16, "train_tokens = " + std::to_string(97 * 19));
        text.replace(text.find("global_batch_size = 6"), 21, "global_batch_size = 8\nrampup = [2, 2, 60]");
        support::write_file(folder / (name + ".toml"), text);
        return folder / (name + ".toml");
    }
    fs::path metrics(const std::string& name) const { return run_directory(name) / "metrics.jsonl"; }
};

TEST_F(BatchRamp, EveryStepTakesItsSamplesAndTheEndIsExact) {
    const Outcome outcome = train_well(ramped("ramp"));
    std::vector<std::string> sizes;
    std::vector<std::string> consumed;
    int samples = 0;
    for (const auto& [size, steps] : {std::pair{2, 10}, {4, 5}, {6, 4}, {8, 5}}) {
        for (int step = 0; step < steps; ++step) {
            sizes.push_back(std::to_string(size));
            consumed.push_back(std::to_string(samples += size));
        }
    }
    EXPECT_EQ(field_of(metrics("ramp"), "global_batch_size"), sizes);
    const std::vector<std::string> values = support::step_values(metrics("ramp"));
    ASSERT_EQ(values.size(), 24U);
    for (std::size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(values[i].substr(values[i].rfind(' ') + 1), consumed.at(i)) << "step " << i + 1;
    }
    EXPECT_EQ(samples, 104);
    for (const char* part : {"iteration        1/      24 | consumed samples:            2 |",
                             "iteration       24/      24 | consumed samples:          104 |",
                             "global batch size:     2 |", "global batch size:     8 |"}) {
        EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
    }
    EXPECT_NE(outcome.err.find("24 steps of 2 to 8 samples"), std::string::npos) << outcome.err;
    const auto loss = field_of(metrics("ramp"), "loss");
    EXPECT_LT(std::stod(loss.back()), std::stod(loss.front()) - 0.5);
}

TEST_F(BatchRamp, ResumedInTheMiddleItIsTheSameRun) {
    train_well(ramped("unbroken"));
    const fs::path path = ramped("broken");
    // At the beginning, where the size has just changed, between two changes, and after the last.
    for (const int stop : {1, 10, 12, 22}) train_well(path, {"--run.train_steps=" + std::to_string(stop)});
    train_well(path);
    expect_same_run("unbroken", "broken", 24);
}

TEST_F(BatchRamp, AnyMicroBatchGivesTheSameLosses_CF_08) {
    train_well(ramped("by_two"));
    train_well(ramped("by_one"), {"--batch.micro_batch_size=1"});
    const auto two = field_of(metrics("by_two"), "loss");
    const auto one = field_of(metrics("by_one"), "loss");
    ASSERT_EQ(two.size(), 24U);
    ASSERT_EQ(one.size(), 24U);
    for (std::size_t i = 0; i < two.size(); ++i) EXPECT_NEAR(std::stod(one[i]) / std::stod(two[i]), 1, 1e-5) << i;
}

TEST_F(BatchRamp, WhatDoesNotFitIsRefused) {
    const fs::path path = ramped("unfit");
    support::expect_refused(train(path, {"--batch.micro_batch_size=4"}), "gpt_train",
                            {"micro_batch_size 4", "rampup", "nearest that divide: 2"});
    support::expect_refused(train(path, {"--batch.rampup=[2, 4, 60]"}), "gpt_train",
                            {"global_batch_size 8 - start 2 = 6", "increment 4", "3, 6"});
    support::expect_refused(train(path, {"--batch.rampup=[8, 2, 60]"}), "gpt_train",
                            {"start 8", "global_batch_size 8"});
    support::expect_refused(train(path, {"--batch.rampup=[2, 2]"}), "gpt_train", {"[start, increment, samples]"});
}

}  // namespace
}  // namespace tessera

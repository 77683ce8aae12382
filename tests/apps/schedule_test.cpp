// The learning rate of a run, stopped and resumed wherever.
#include "apps/program_support.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using support::field_of;

const std::string kTiny = "[model]\nnum_layers = 1\nhidden_size = 16\nnum_attention_heads = 2\nseq_length = 16\n";

class Schedules : public support::ProgramTest {
protected:
    /// The config of a run of ten steps with this schedule.
    fs::path scheduled(const std::string& name, const std::string& schedule) const {
        const fs::path path = config(name, kTiny, "[checkpoint]\ninterval = 1\nkeep = 0\n");
        std::string text = support::read_file(path);
        const std::size_t begin = text.find("[schedule]");
        text.replace(begin, text.find("[evaluation]") - begin, "[schedule]\n" + schedule);
        support::write_file(path, text);
        return path;
    }
    std::vector<std::string> rates(const std::string& name) const {
        return field_of(run_directory(name) / "metrics.jsonl", "learning_rate");
    }
};

TEST_F(Schedules, ResumedAtEveryPointTheRatesAreTheSame_CK_07) {
    const std::vector<std::string> length = {"--run.train_steps=10"};
    for (const char* schedule :
         {"style = \"linear\"\nwarmup_steps = 3\n", "style = \"linear\"\nwarmup_tokens = 288\ndecay_tokens = 960\n"}) {
        const std::string name = std::string(schedule).find("tokens") == std::string::npos ? "steps" : "tokens";
        const fs::path path = scheduled(name, schedule);
        train_well(path, length);
        const auto whole = rates(name);
        ASSERT_EQ(whole.size(), 10U);
        EXPECT_DOUBLE_EQ(std::stod(whole[0]), 1e-3);
        EXPECT_DOUBLE_EQ(std::stod(whole[2]), 3e-3);
        EXPECT_DOUBLE_EQ(std::stod(whole[3]), 3e-3);
        EXPECT_DOUBLE_EQ(std::stod(whole[9]), 1e-4 + (3e-3 - 1e-4) / 7);
        for (int k = 1; k <= 9; ++k) {
            train_well(path, {length[0], "--checkpoint.resume=" + std::to_string(k)});
            EXPECT_EQ(rates(name), whole) << schedule << "resumed after step " << k;
        }
    }
    const auto steps = rates("steps");
    const auto tokens = rates("tokens");
    for (std::size_t i = 0; i < 10; ++i) EXPECT_NEAR(std::stod(tokens[i]) / std::stod(steps[i]), 1, 1e-14) << i;
}

/// A larger batch from the middle on: the rate follows the tokens, and the run ends at as many of them.
TEST_F(Schedules, InTokensAnotherBatchSizeEndsAtTheSamePlace_CK_11) {
    const fs::path path = scheduled("changed", "style = \"linear\"\nwarmup_tokens = 192\ndecay_tokens = 1536\n");
    std::string text = support::read_file(path);
    text.replace(text.find("train_steps = 12"), 16, "train_tokens = 1536");
    support::write_file(path, text);
    // Sixteen steps of 96 tokens; after eight of them four of 192.
    train_well(path, {"--run.train_steps=8"});
    train_well(path, {"--batch.global_batch_size=12"});
    const auto consumed = field_of(run_directory("changed") / "metrics.jsonl", "consumed_tokens");
    const auto rate = rates("changed");
    ASSERT_EQ(rate.size(), 12U);
    EXPECT_EQ(consumed.back(), "1536");
    for (std::size_t i = 2; i < 12; ++i) {
        const double before = i <= 8 ? 96.0 * static_cast<double>(i) : 768 + 192.0 * static_cast<double>(i - 8);
        EXPECT_NEAR(std::stod(rate[i]), 1e-4 + 2.9e-3 * (1 - (before - 192) / 1344), 1e-12) << i;
    }
}

}  // namespace
}  // namespace tessera

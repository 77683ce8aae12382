// Mistakes in a config, each as a user made it: refused before any work, by key, place and numbers.
#include <algorithm>
#include <cmath>

#include "apps/case_support.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using support::expect_refused;
using support::Outcome;
using support::read_file;

class ConfigCases : public support::CaseTest {
protected:
    static void SetUpTestSuite() { ProgramTest::SetUpTestSuite(); }

    /// The usual config with a line put in right after a section's head.
    void expect_line_refused(const std::string& section, const std::string& line, const std::vector<std::string>& parts,
                             std::ptrdiff_t at_line = 0) const {
        std::string text = read_file(tiny("line", "/no/such/shard.h5"));
        // What a line sets must not be set twice.
        const std::string key = "\n" + line.substr(0, line.find('=') + 1);
        if (const std::size_t old = text.find(key); old != std::string::npos) {
            text.erase(old, text.find('\n', old + 1) - old);
        }
        const std::size_t end = text.find('\n', text.find("[" + section + "]"));
        const auto number = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), '\n') + 2;
        text.insert(end + 1, line + "\n");
        support::write_file(folder / "line.toml", text);
        std::vector<std::string> all = parts;
        all.push_back("line.toml:" + std::to_string(at_line > 0 ? at_line : number));
        expect_refused(train(folder / "line.toml"), "gpt_train", all);
        EXPECT_FALSE(fs::exists(run_directory("line")));
    }
    /// Refused although the data are not there: the config is looked at first.
    void expect_override_refused(const std::vector<std::string>& overrides,
                                 const std::vector<std::string>& parts) const {
        const Outcome outcome = train(tiny("refused", "/no/such/shard.h5"), overrides);
        expect_refused(outcome, "gpt_train", parts);
        EXPECT_EQ(outcome.err.find("/no/such"), std::string::npos) << outcome.err;
        EXPECT_FALSE(fs::exists(run_directory("refused")));
    }
};

TEST_F(ConfigCases, EachMistakeInAFileHasItsNameAndLine_CF_01) {
    expect_line_refused("optimizer", "learning_rte = 1e-3", {"optimizer.learning_rte", "optimizer.lr"});
    expect_line_refused("model", "num-layers = 2", {"model.num-layers", "model.num_layers"});
    expect_line_refused("model", "micro_batch_size = 2", {"model.micro_batch_size", "batch.micro_batch_size"});
    expect_line_refused("model", "num_layers = \"two\"", {"model.num_layers", "two"});
    expect_line_refused("optimizer", "lr = \"1e-4\"", {"optimizer.lr", "1e-4", "quotes"});
    expect_line_refused("model", "num_layers = true", {"model.num_layers", "true"});
    expect_line_refused("model", "num_layers = -2", {"model.num_layers", "-2"});
    expect_line_refused("optimizer", "lr = -1e-4", {"optimizer.lr", "-0.0001"});
    expect_line_refused("optimizer", "lr = nan", {"optimizer.lr", "nan"});
    expect_line_refused("model", "num_layers = 3.5", {"model.num_layers", "3.5"});
    // A second time is the mistake, not the first.
    expect_line_refused("model", "num_layers = 2 # and again:\nnum_layers = 2", {"num_layers"}, 6);
}

TEST_F(ConfigCases, BatchesThatDoNotMultiplyOut_CF_02_CF_08) {
    const auto batch = [](const char* global, const char* micro) {
        return std::vector<std::string>{"--batch.global_batch_size=" + std::string(global),
                                        "--batch.micro_batch_size=" + std::string(micro)};
    };
    expect_override_refused(batch("10", "4"), {"global_batch_size 10", "micro_batch_size 4", "2, 5"});
    expect_override_refused(batch("6", "4"), {"global_batch_size 6", "micro_batch_size 4", "3, 6"});
    expect_override_refused(batch("4", "8"), {"micro_batch_size 8", "global_batch_size 4", "at most 4"});
    expect_override_refused(batch("2", "0"), {"micro_batch_size", "0", "at least 1"});
    expect_override_refused(batch("0", "1"), {"global_batch_size", "0", "at least 1"});
    expect_override_refused({"--batch.accumulation_steps=0"}, {"batch.accumulation_steps", "micro_batch_size"});
}

TEST_F(ConfigCases, HeadsThatDoNotDivide_CF_05) {
    expect_override_refused({"--model.hidden_size=30"}, {"hidden_size 30", "num_attention_heads 4", "3, 5"});
    expect_override_refused({"--model.hidden_size=36", "--model.num_attention_heads=6", "--parallel.tensor=4"},
                            {"parallel.tensor = 4", "use 1"});
    expect_override_refused({"--model.ffn_hidden_size=50", "--parallel.tensor=4"}, {"parallel.tensor = 4", "use 1"});
}

/// What this version does not do it says by name, at once.
TEST_F(ConfigCases, LayoutsOfSeveralProcesses_CF_03_CF_04_CF_06_CF_09_DI_04) {
    expect_override_refused({"--model.num_layers=5", "--parallel.pipeline=2"}, {"parallel.pipeline = 2", "use 1"});
    expect_override_refused({"--model.num_layers=3", "--parallel.pipeline=4"}, {"parallel.pipeline = 4", "use 1"});
    expect_override_refused({"--model.num_layers=5", "--parallel.pipeline=2", "--parallel.pipeline_split=[2, 3]"},
                            {"parallel.pipeline_split", "parallel.pipeline = 2"});
    expect_override_refused({"--parallel.pipeline=2", "--batch.global_batch_size=8", "--batch.micro_batch_size=3"},
                            {"parallel.pipeline = 2", "use 1"});
    for (const char* stages : {"2", "3", "4"}) {
        expect_override_refused({"--parallel.pipeline=" + std::string(stages), "--batch.global_batch_size=1"},
                                {"parallel.pipeline = " + std::string(stages)});
    }
    expect_override_refused({"--parallel.tensor=2"}, {"parallel.tensor = 2", "use 1"});
    expect_override_refused({"--parallel.tensor=2", "--parallel.pipeline=2"},
                            {"parallel.tensor = 2", "parallel.pipeline = 2"});
}

TEST_F(ConfigCases, MemoryChoicesOfLaterVersions_NU_07_NU_08_NU_11) {
    for (const char* granularity : {"selective", "full"}) {
        expect_override_refused({"--recompute.granularity=" + std::string(granularity)},
                                {"recompute.granularity", granularity, "none"});
    }
    for (const char* stage : {"1", "2", "3"}) {
        expect_override_refused({"--zero.stage=" + std::string(stage)}, {"zero.stage = " + std::string(stage)});
    }
    expect_override_refused({"--zero.offload_optimizer=cpu"}, {"zero.offload_optimizer", "cpu", "none"});
    expect_override_refused({"--zero.offload_parameters=cpu"}, {"zero.offload_parameters", "cpu", "none"});
}

/// Said at once, before the machine has given everything away.
TEST_F(ConfigCases, AModelLargerThanTheMachine) {
    const std::vector<std::string> sizes = {"--model.num_layers=1000000000", "--model.hidden_size=1000000",
                                            "--model.ffn_hidden_size=2000000000"};
    for (const std::string& size : sizes) {
        const Outcome outcome =
                train(config("vast"), {"--model.num_attention_heads=4", "--model.hidden_size=36", size});
        expect_refused(outcome, "gpt_train", {"GiB", "parameters", "model.num_layers"}, 1);
    }
    expect_refused(train(config("vast"), {"--model.num_attention_heads=4", "--model.hidden_size=2000000000"}),
                   "gpt_train", {"parameters", "hidden_size 2000000000"});
    EXPECT_FALSE(fs::exists(run_directory("vast")));
}

/// 300 pieces. The padding to 128 rows more takes no probability; a larger vocabulary is taken at its word.
TEST_F(ConfigCases, OneRuleForTheVocabulary_CF_07) {
    const auto losses = [&](const std::string& name, const std::vector<std::string>& overrides) {
        train_well(config(name), overrides);
        return numbers(name, "loss");
    };
    const std::vector<double> unset = losses("vocabulary_unset", {});
    ASSERT_EQ(unset.size(), 12U);
    EXPECT_EQ(losses("vocabulary_same", {"--model.vocab_size=300"}), unset);
    expect_refused(train(config("vocabulary_small"), {"--model.vocab_size=299"}), "gpt_train", {"299", "300"});
    // An untrained model gives each id of its vocabulary about the same probability, and padding none.
    EXPECT_NEAR(unset.front(), std::log(300), 0.1);
    for (const char* size : {"304", "384", "385"}) {
        const std::string name = std::string("vocabulary_") + size;
        const std::vector<double> larger = losses(name, {"--model.vocab_size=" + std::string(size)});
        EXPECT_NEAR(larger.front() - unset.front(), std::log(std::stod(size) / 300), 0.01) << size;
    }
}

}  // namespace
}  // namespace tessera

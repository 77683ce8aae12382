#include <set>
#include <sstream>

#include "apps/program_support.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using support::Outcome;

class GptGenerate : public support::ProgramTest {
protected:
    static void SetUpTestSuite() {
        ProgramTest::SetUpTestSuite();
        const GptGenerate maker;
        const Outcome outcome = maker.train(
                maker.config("writer",
                             "[model]\nfamily = \"llama\"\nnum_layers = 2\nhidden_size = 48\nnum_attention_heads = "
                             "4\nnum_kv_heads = 2\nffn_hidden_size = 96\nseq_length = 48\n"),
                {"--run.train_steps=200", "--schedule.decay_steps=200", "--optimizer.lr=1e-2",
                 "--evaluation.interval=0", "--log.progress=none"});
        ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    }
    std::string generate(std::vector<std::string> arguments) const {
        arguments.insert(arguments.begin(), run_directory("writer").string());
        const Outcome outcome = support::run_program("gpt_generate", arguments);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
        return outcome.out;
    }
    void TestBody() override {}
};

TEST_F(GptGenerate, GreedyAndTopOneAndTheCacheAgree_GE_01_GE_02) {
    const std::string greedy = generate({"--prompt", "the cat", "--temperature", "0", "--max-tokens", "20"});
    EXPECT_EQ(greedy.rfind("the cat", 0), 0U);
    EXPECT_GT(greedy.size(), std::string("the cat\n").size());
    EXPECT_EQ(greedy, generate({"--prompt", "the cat", "--top-k", "1", "--max-tokens", "20", "--seed", "9"}));
    EXPECT_EQ(greedy, generate({"--prompt", "the cat", "--temperature", "0", "--max-tokens", "20", "--no-cache"}));
}

TEST_F(GptGenerate, SeedsDecide) {
    const std::string a = generate({"--prompt", "a", "--seed", "1", "--ignore-end"});
    EXPECT_EQ(a, generate({"--prompt", "a", "--seed", "1", "--ignore-end"}));
    EXPECT_NE(a, generate({"--prompt", "a", "--seed", "2", "--ignore-end"}));
    const std::string two = generate({"--prompt", "a", "--seed", "1", "--ignore-end", "--samples", "2"});
    EXPECT_EQ(two.rfind(a.substr(0, a.size() - 1), 0), 0U);
}

TEST_F(GptGenerate, StopsAtTheEndOfADocument_GE_04) {
    const std::string text = generate({"--prompt", "", "--temperature", "0.5", "--max-tokens", "47"});
    EXPECT_NE(text.find("end."), std::string::npos) << text;
    EXPECT_EQ(text.find("end.\n"), text.size() - 5) << text;
    EXPECT_EQ(generate({"--prompt", "the", "--max-tokens", "0"}), "the\n");
}

TEST_F(GptGenerate, WritesWordsItHasSeen) {
    const std::string text = generate({"--prompt", "the cat", "--temperature", "0.3", "--max-tokens", "30"});
    std::istringstream words(text);
    const std::set<std::string> known = {"the",  "cat",   "sat",  "on",   "a",     "mat",   "and", "saw",
                                         "blue", "birds", "over", "warm", "hills", "today", "end."};
    int all = 0;
    int seen = 0;
    for (std::string word; words >> word; ++all) seen += known.count(word) > 0 ? 1 : 0;
    EXPECT_GT(all, 5) << text;
    EXPECT_GE(seen, all * 3 / 4) << text;
}

TEST(Programs, HelpAndVersionGoToStdout) {
    for (const char* program : {"gpt_train", "gpt_data", "gpt_generate", "gpt_bench"}) {
        const Outcome help = support::run_program(program, {"--help"});
        EXPECT_EQ(help.exit_code, 0) << program;
        EXPECT_NE(help.out.find("--version"), std::string::npos) << program;
        EXPECT_LT(std::count(help.out.begin(), help.out.end(), '\n'), 45) << program;
        const Outcome version = support::run_program(program, {"--version"});
        EXPECT_EQ(version.exit_code, 0) << program;
        EXPECT_NE(version.out.find("0.1.0"), std::string::npos) << version.out;
        EXPECT_EQ(support::run_program(program, {"--no-such-option"}).exit_code, 2) << program;
    }
    EXPECT_NE(support::run_program("gpt_train", {"--config-reference"}).out.find("global_batch_size"),
              std::string::npos);
}

TEST(Programs, BenchPrintsItsTables) {
    const Outcome outcome = support::run_program(
            "gpt_bench", {"step", std::string(TESSERA_SOURCE_DIR) + "/configs/gpt2_124m.toml", "--steps", "2",
                          "--warmup", "1", "--model.num_layers=2", "--model.hidden_size=48", "--model.seq_length=32",
                          "--model.vocab_size=101", "--batch.global_batch_size=2", "--batch.micro_batch_size=2"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    for (const char* part : {"tokens/s", "model TFLOP/s", "linear_forward", "attention_backward", "adamw",
                             "activations", "kept by the tape"}) {
        EXPECT_NE(outcome.out.find(part), std::string::npos) << part;
    }
}

}  // namespace
}  // namespace tessera

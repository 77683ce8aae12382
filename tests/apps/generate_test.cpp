#include <set>
#include <sstream>

#include "apps/program_support.h"
#include "data/tokenizer.h"

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

/// A text of exactly so many tokens, and the first so many bytes of the corpus longer.
TEST_F(GptGenerate, PromptsUpToTheContext_GE_02_GE_05) {
    const data::Tokenizer tokenizer = data::Tokenizer::load((folder / "tokenizer.model").string());
    const std::string corpus = support::read_file(folder / "corpus.txt");
    auto prompt_of = [&](std::size_t tokens) {
        for (std::size_t length = 1; length < corpus.size(); ++length) {
            if (tokenizer.encode(corpus.substr(0, length)).size() == tokens) return corpus.substr(0, length);
        }
        ADD_FAILURE() << "no text of " << tokens << " tokens";
        return std::string();
    };
    for (const std::size_t tokens : {1U, 7U, 47U, 48U}) {
        const std::string prompt = prompt_of(tokens);
        const std::string text = generate({"--prompt", prompt, "--temperature", "0", "--ignore-end"});
        EXPECT_EQ(text.rfind(prompt, 0), 0U);
        EXPECT_EQ(text, generate({"--prompt", prompt, "--temperature", "0", "--ignore-end", "--no-cache"}));
        EXPECT_EQ(text == prompt + "\n", tokens == 48) << "a full context leaves room for nothing";
    }
    for (const std::size_t tokens : {49U, 1000U}) {
        const std::vector<std::string> arguments = {run_directory("writer").string(), "--prompt", prompt_of(tokens)};
        const Outcome outcome = support::run_program("gpt_generate", arguments);
        support::expect_refused(outcome, "gpt_generate", {std::to_string(tokens), "48", "context"});
        EXPECT_EQ(outcome.out, "");
    }
    EXPECT_GT(generate({"--prompt", "", "--ignore-end"}).size(), 20U);
    EXPECT_EQ(generate({"--prompt", "", "--max-tokens", "0"}), "\n");
}

TEST_F(GptGenerate, ExtremeSettingsStayFinite_GE_01) {
    const std::string greedy = generate({"--prompt", "the", "--temperature", "0", "--max-tokens", "9"});
    for (const std::vector<std::string>& almost :
         {std::vector<std::string>{"--temperature", "1e-6"}, {"--top-p", "1e-9"}, {"--top-k", "1"}}) {
        std::vector<std::string> arguments = {"--prompt", "the", "--max-tokens", "9", "--seed", "5"};
        arguments.insert(arguments.end(), almost.begin(), almost.end());
        EXPECT_EQ(generate(arguments), greedy) << almost[0];
    }
    EXPECT_GT(generate({"--prompt", "the", "--temperature", "1e6", "--ignore-end"}).size(), 4U);
    EXPECT_EQ(generate({"--prompt", "a", "--top-k", "100000", "--seed", "3"}),
              generate({"--prompt", "a", "--seed", "3"}));
    EXPECT_EQ(generate({"--prompt", "a", "--top-k", "0", "--top-p", "1", "--seed", "3"}),
              generate({"--prompt", "a", "--seed", "3"}));
}

/// 300 pieces are padded inside; whatever an untrained model draws must be a piece.
TEST_F(GptGenerate, PaddingIsNeverDrawn_GE_03) {
    train_well(config("untrained"), {"--run.train_steps=1", "--optimizer.lr=0", "--optimizer.min_lr=0"});
    const std::string run = run_directory("untrained").string();
    const Outcome outcome = support::run_program(
            "gpt_generate", {run, "--temperature", "100", "--samples", "200", "--ignore-end", "--prompt", "a"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_GT(outcome.out.size(), 3000U);
}

TEST_F(GptGenerate, EverySourceAndPromptFile_IN_02) {
    const std::string text = generate({"--prompt", "the cat", "--seed", "4"});
    const std::string checkpoints = (run_directory("writer") / "checkpoints").string();
    support::write_file(folder / "prompt.txt", "the cat");
    const std::vector<std::vector<std::string>> ways = {
            {"runs/writer", "--prompt", "the cat"},
            {"./runs/writer/", "--prompt", "the cat"},
            {checkpoints, "--prompt-file", "prompt.txt"},
            {"runs/writer/checkpoints/step_00000200", "--prompt", "the cat"},
            {"runs/writer/checkpoints/step_00000200/", "--prompt", "the cat"},
            {"runs/writer", "--prompt", "the cat", "--tokenizer", "tokenizer.model"}};
    for (std::vector<std::string> way : ways) {
        const std::string source = way[0];
        way.insert(way.end(), {"--seed", "4"});
        const Outcome outcome = support::run_program("gpt_generate", way, folder);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
        EXPECT_EQ(outcome.out, text) << source;
    }
    // From within the run, and from the root by an absolute path.
    for (const auto& [place, source] :
         std::vector<std::pair<fs::path, std::string>>{{run_directory("writer"), "."},
                                                       {run_directory("writer") / "checkpoints", "step_00000200"},
                                                       {"/", run_directory("writer").string()}}) {
        const Outcome outcome =
                support::run_program("gpt_generate", {source, "--prompt", "the cat", "--seed", "4"}, place);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
        EXPECT_EQ(outcome.out, text) << source;
    }
}

}  // namespace
}  // namespace tessera

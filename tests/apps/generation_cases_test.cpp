// Generation, each case as a user met it.
#include <cmath>

#include "apps/case_support.h"
#include "data/tokenizer.h"
#include "train/checkpoint.h"
#include "train/generation.h"
#include "train/settings.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using support::expect_refused;
using support::Outcome;
using support::run_program;

/// A model of context 16 that has learned the document "a b c" by heart.
class GenerationCases : public support::ProgramTest {
protected:
    static void SetUpTestSuite() {
        make_folder();
        std::string corpus;
        for (int i = 0; i < 200; ++i) corpus += "a b c\n\n";
        support::write_file(folder / "corpus.txt", corpus);
        const std::string tokenizer = (folder / "tokenizer.model").string();
        const Outcome learned = run_program("gpt_data", {"tokenizer", (folder / "corpus.txt").string(), "--output",
                                                         tokenizer, "--vocab-size", "300", "--soft-limit"});
        ASSERT_EQ(learned.exit_code, 0) << learned.err;
        const Outcome shards = run_program("gpt_data", {"tokenize", (folder / "corpus.txt").string(), "--tokenizer",
                                                        tokenizer, "--output", (folder / "text").string()});
        ASSERT_EQ(shards.exit_code, 0) << shards.err;
        support::write_file(folder / "abc.toml",
                            "[run]\ntrain_steps = 60\ndirectory = \"abc\"\n"
                            "[model]\nfamily = \"llama\"\nnum_layers = 2\nhidden_size = 32\nnum_attention_heads = 4\n"
                            "seq_length = 16\n[data]\ntrain = \"text_train_*.h5\"\ntokenizer = \"tokenizer.model\"\n"
                            "[batch]\nglobal_batch_size = 8\n[optimizer]\nlr = 1e-2\n");
        const Outcome trained = run_program("gpt_train", {(folder / "abc.toml").string()});
        ASSERT_EQ(trained.exit_code, 0) << trained.err;
    }
    Outcome generate(std::vector<std::string> arguments) const {
        arguments.insert(arguments.begin(), (folder / "abc").string());
        return run_program("gpt_generate", arguments);
    }
    std::string text(const std::vector<std::string>& arguments) const {
        const Outcome outcome = generate(arguments);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
        return outcome.out;
    }
    void TestBody() override {}
};

TEST_F(GenerationCases, TemperatureZeroAndItsNeighbours_GE_01) {
    const std::string greedy = text({"--prompt", "a", "--temperature", "0", "--max-tokens", "12", "--ignore-end"});
    EXPECT_EQ(greedy.rfind("a b c", 0), 0U) << "the most probable, not one token for ever";
    const std::vector<std::vector<std::string>> same = {{"--temperature", "0", "--seed", "77"},
                                                        {"--temperature", "-0.0"},
                                                        {"--temperature", "1", "--top-k", "1", "--seed", "5"},
                                                        {"--temperature", "1e-6", "--seed", "9"},
                                                        {"--temperature", "1e-300"}};
    for (std::vector<std::string> arguments : same) {
        arguments.insert(arguments.end(), {"--prompt", "a", "--max-tokens", "12", "--ignore-end"});
        EXPECT_EQ(text(arguments), greedy) << arguments[1];
    }
    for (const char* hot : {"1e6", "1e300"}) {
        EXPECT_GT(text({"--prompt", "a", "--temperature", hot, "--max-tokens", "12", "--ignore-end"}).size(), 2U);
    }
    // A top-k of 0 or beyond the vocabulary and a top-p of 1 keep everything.
    const std::string all = text({"--prompt", "a", "--seed", "3"});
    EXPECT_EQ(text({"--prompt", "a", "--seed", "3", "--top-k", "0"}), all);
    EXPECT_EQ(text({"--prompt", "a", "--seed", "3", "--top-k", "1000000"}), all);
    EXPECT_EQ(text({"--prompt", "a", "--seed", "3", "--top-p", "1"}), all);
    const std::vector<std::pair<std::string, std::string>> senseless = {
            {"--temperature", "-1"}, {"--temperature", "nan"}, {"--temperature", "inf"},
            {"--top-k", "-1"},       {"--top-k", "2.5"},       {"--top-p", "0"},
            {"--top-p", "-0.5"},     {"--top-p", "1.5"},       {"--top-p", "nan"}};
    for (const auto& [option, value] : senseless) {
        const Outcome refused = generate({"--prompt", "a", option, value});
        expect_refused(refused, "gpt_generate", {option.substr(2), value.substr(0, 2)});
        EXPECT_EQ(refused.out, "");
    }
}

/// The same logits from one token after the other as from all at once, in a trained model.
TEST_F(GenerationCases, TheCacheGivesTheSameLogits_GE_02) {
    const auto reader = train::find_checkpoint((folder / "abc/checkpoints").string(), "auto");
    ASSERT_TRUE(reader);
    train::EngineSettings settings =
            train::engine_settings(train::parse_config(reader->state().config_toml, "index.json"));
    settings.state = zero::StateKind::values_only;
    train::Engine engine(settings);
    train::load_engine(engine, *reader, train::LoadParts::weights_only);
    const auto vocabulary = static_cast<std::int32_t>(engine.model().config().vocab_size);
    for (const std::size_t length : {1U, 7U, 15U, 16U}) {
        std::vector<std::int32_t> tokens;
        for (std::size_t i = 0; i < length; ++i) {
            tokens.push_back(static_cast<std::int32_t>(i * 37 + 5) % vocabulary);
        }
        layers::KvCache cache = engine.model().make_cache(engine.backend(), 16);
        for (std::size_t i = 0; i < length; ++i) {
            const train::MicroBatch one =
                    train::make_sequence(engine.backend(), {tokens[i]}, static_cast<std::int64_t>(i), 16);
            const layers::ForwardContext ctx{
                    .backend = engine.backend(), .stream = engine.stream(), .tokens = one.map, .cache = &cache};
            const layers::Var hidden = engine.model().forward(ctx, one.tokens);
            ++cache.length;
            const layers::Var logits = engine.model().logits(ctx, hidden);
            const float* cached = logits.value.data<float>();
            const std::vector<float> whole = train::next_token_logits(
                    engine, {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(i) + 1});
            for (std::size_t id = 0; id < whole.size(); ++id) {
                ASSERT_NEAR(cached[id], whole[id], 1e-5 * std::max(1.0F, std::abs(whole[id])))
                        << "token " << i << ", id " << id;
            }
        }
    }
}

TEST_F(GenerationCases, WhatWasLearnedByHeartEndsWhereItEnds_GE_04) {
    EXPECT_EQ(text({"--prompt", "a", "--temperature", "0"}), "a b c\n");
    EXPECT_EQ(text({"--prompt", "", "--temperature", "0"}), "a b c\n");
    // Told to go on, it writes documents until the limit.
    const std::string on = text({"--prompt", "a", "--temperature", "0", "--max-tokens", "12", "--ignore-end"});
    EXPECT_GT(support::count_of(on, "a b c"), 2U) << on;
    // Each sample of several ends for itself, as it does alone.
    std::string apart;
    for (const char* seed : {"4", "5", "6"}) {
        apart += (apart.empty() ? "" : "\n") + text({"--prompt", "a", "--temperature", "3", "--seed", seed});
    }
    EXPECT_EQ(text({"--prompt", "a", "--temperature", "3", "--seed", "4", "--samples", "3"}), apart);
}

TEST_F(GenerationCases, APromptFileThatIsNone) {
    expect_refused(generate({"--prompt-file", folder.string()}), "gpt_generate", {"prompt file", folder.string()});
    expect_refused(generate({"--prompt-file", (folder / "absent").string()}), "gpt_generate",
                   {"prompt file", "absent"});
}

TEST_F(GenerationCases, PromptsAndWishesAroundTheContext_GE_05) {
    const data::Tokenizer tokenizer = data::Tokenizer::load((folder / "tokenizer.model").string());
    for (const std::size_t length : {0U, 1U, 15U, 16U, 17U, 1000U}) {
        std::string prompt;
        // No piece joins two of these.
        while (tokenizer.encode(prompt).size() < length) prompt += "#";
        ASSERT_EQ(tokenizer.encode(prompt).size(), length);
        for (const std::size_t wanted : {0U, 1U, 100U}) {
            const std::vector<std::string> arguments = {"--prompt",      prompt, "--max-tokens", std::to_string(wanted),
                                                        "--temperature", "0",    "--ignore-end"};
            const Outcome cached = generate(arguments);
            if (length > 16) {
                expect_refused(cached, "gpt_generate", {std::to_string(length), "16", "context"});
                EXPECT_EQ(cached.out, "");
                continue;
            }
            ASSERT_EQ(cached.exit_code, 0) << cached.err;
            EXPECT_EQ(cached.out.rfind(prompt, 0), 0U);
            const std::size_t room = 16 - std::max<std::size_t>(length, 1);
            if (std::min(wanted, room) == 0) {
                EXPECT_EQ(cached.out, prompt + "\n") << length << " and " << wanted;
            }
            // Fewer tokens than were asked for: it says why.
            EXPECT_EQ(support::count_of(cached.err, "context of 16 tokens is full"), wanted > room ? 1U : 0U)
                    << length << " and " << wanted << ": " << cached.err;
            std::vector<std::string> anew = arguments;
            anew.emplace_back("--no-cache");
            EXPECT_EQ(text(anew), cached.out) << length << " and " << wanted;
        }
    }
}

}  // namespace
}  // namespace tessera

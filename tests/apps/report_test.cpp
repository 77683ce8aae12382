// The numbers that a run reports: FLOPs, rates, the summary and the tables of --profile.
#include <cmath>
#include <numeric>
#include <regex>
#include <sstream>

#include "apps/program_support.h"
#include "data/data_support.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using support::Outcome;

class Report : public support::ProgramTest {
protected:
    std::vector<double> numbers(const std::string& name, const std::string& key) const {
        std::vector<double> values;
        for (const std::string& text : support::field_of(run_directory(name) / "metrics.jsonl", key)) {
            values.push_back(std::stod(text));
        }
        return values;
    }
    static double sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }
    /// The first number after a text; NaN if there is none.
    static double number_after(const std::string& text, const std::string& before) {
        const std::size_t at = text.find(before);
        return at == std::string::npos ? std::nan("") : std::strtod(text.c_str() + at + before.size(), nullptr);
    }
};

/// 2 layers, 4 heads, hidden 32: forward and twice as much backward, 2 FLOPs per multiply-add.
TEST_F(Report, LoggedFlopsFollowTheRealShapes_LO_01) {
    constexpr std::int64_t kHidden = 32;
    constexpr std::int64_t kLayers = 2;
    constexpr std::int64_t kSamples = 2;
    const std::string shard = (folder / "sixty.h5").string();
    data::test::write_foreign(shard, data::test::counting(5000, 60));
    for (const std::int64_t factor : {2, 4, 8}) {
        for (const std::int64_t vocabulary : {64, 1024}) {
            for (const std::int64_t length : {16, 128}) {
                std::ostringstream text;
                text << "[run]\ndirectory = \"runs/flops\"\ntrain_steps = 2\n[model]\nnum_layers = " << kLayers
                     << "\nhidden_size = " << kHidden << "\nnum_attention_heads = 4\nseq_length = " << length
                     << "\nffn_hidden_size = " << factor * kHidden << "\nvocab_size = " << vocabulary
                     << "\n[data]\ntrain = '" << shard << "'\n[batch]\nglobal_batch_size = " << kSamples
                     << "\nmicro_batch_size = 1\n[optimizer]\nlr = 1e-3\n"
                     << "[checkpoint]\nresume = \"none\"\n[log]\nloss_curve = false\ntensorboard = false\n";
                support::write_file(folder / "flops.toml", text.str());
                fs::remove_all(run_directory("flops"));
                train_well(folder / "flops.toml");
                const std::int64_t tokens = kSamples * length;
                const std::int64_t projections = kHidden * 3 * kHidden + kHidden * kHidden;
                const std::int64_t mlp = 2 * kHidden * factor * kHidden;
                const std::int64_t pairs = kSamples * length * length / 2;  // query and key, the causal half
                const std::int64_t multiplications =
                        tokens * (kLayers * (projections + mlp) + kHidden * vocabulary) + kLayers * 2 * kHidden * pairs;
                const auto expected = static_cast<double>(3 * 2 * multiplications);
                const auto tflops = numbers("flops", "tflops");
                const auto elapsed = numbers("flops", "elapsed_ms");
                ASSERT_EQ(tflops.size(), 2U);
                for (std::size_t i = 0; i < 2; ++i) {
                    EXPECT_NEAR(tflops[i] * 1e12 * elapsed[i] / 1e3 / expected, 1, 0.02) << text.str();
                }
            }
        }
    }
}

TEST_F(Report, RatesExcludeEvaluationAndSaving_LO_03) {
    // Each step is followed by an evaluation of 144 samples (a step has 6) and a save.
    const Outcome outcome = train_well(
            config("slow", "", "[checkpoint]\ninterval = 1\n"),
            {"--evaluation.interval=1", "--evaluation.steps=0", "--run.train_steps=10", "--schedule.decay_steps=10"});
    const auto rates = numbers("slow", "tokens_per_s");
    const auto elapsed = numbers("slow", "elapsed_ms");
    ASSERT_EQ(rates.size(), 10U);
    double tokens = 0;
    // The records of evaluations have an elapsed_ms, too: steps and evaluations alternate.
    ASSERT_EQ(elapsed.size(), 20U);
    double in_steps = 0;
    double evaluating = 0;
    for (std::size_t i = 0; i < 10; ++i) {
        tokens += rates[i] * elapsed[2 * i] / 1e3;
        in_steps += elapsed[2 * i];
        evaluating += elapsed[2 * i + 1];
    }
    EXPECT_NEAR(tokens / (10 * 6 * 19), 1, 0.05);
    // What a step reports as spent before it on evaluation and saving is not in its own time.
    const auto reported = numbers("slow", "evaluation_ms");
    EXPECT_NEAR(sum(reported), evaluating - elapsed.back(), 0.01 * evaluating);
    EXPECT_GT(sum(numbers("slow", "checkpoint_ms")), 0);
    const double wall = number_after(outcome.out, "time         ");
    EXPECT_NEAR(number_after(outcome.out, ": steps "), in_steps / 1e3, 0.051);
    EXPECT_NEAR(number_after(outcome.out, "evaluation "), evaluating / 1e3, 0.051);
    const double saving = number_after(outcome.out, "saving ");
    // Nothing is counted twice.
    EXPECT_LE(in_steps / 1e3 + evaluating / 1e3 + saving, wall + 0.15);
    EXPECT_NEAR(number_after(outcome.out, "in steps     ") * in_steps / 1e3 / (10 * 6 * 19), 1, 0.05) << outcome.out;
    EXPECT_NE(outcome.out.find("trained 10 steps, 1140 tokens"), std::string::npos) << outcome.out;
}

TEST_F(Report, ALogLineGivesTheMeanTimeOfItsSteps_LO_03) {
    const Outcome outcome = train_well(config("interval"), {"--log.interval=5"});
    const auto records = support::field_of(run_directory("interval") / "metrics.jsonl", "elapsed_ms");
    ASSERT_EQ(records.size(), 14U) << "12 steps; evaluations after the 6th and the last";
    const auto mean = [&](std::vector<std::size_t> which) {
        double total = 0;
        for (const std::size_t i : which) total += std::stod(records[i]);
        return total / static_cast<double>(which.size());
    };
    const std::string before = "elapsed time per iteration (ms): ";
    std::vector<double> logged;
    for (std::size_t at = outcome.out.find(before); at != std::string::npos; at = outcome.out.find(before, at + 1)) {
        logged.push_back(std::stod(outcome.out.substr(at + before.size())));
    }
    ASSERT_EQ(logged.size(), 3U) << outcome.out;
    EXPECT_NEAR(logged[0], mean({0, 1, 2, 3, 4}), 0.051);
    EXPECT_NEAR(logged[1], mean({5, 7, 8, 9, 10}), 0.051);
    EXPECT_NEAR(logged[2], mean({11, 12}), 0.051);
}

TEST_F(Report, TheProfileAddsUp) {
    const Outcome outcome = train_well(config("profiled", "", "[checkpoint]\ninterval = 4\n"), {"--profile"});
    const std::regex row(R"((.+?)  +(?:\d+ +)?[\d.]+ +([\d.]+)%.*)");
    std::vector<std::pair<std::string, double>> rows;
    std::istringstream lines(outcome.out);
    for (std::string line; std::getline(lines, line);) {
        std::smatch match;
        if (std::regex_match(line, match, row)) rows.emplace_back(match[1], std::stod(match[2]));
        if (line.find('%') != std::string::npos && line.find(':') == std::string::npos) {
            EXPECT_LE(line.size(), 80U) << line;
        }
    }
    double shares = 0;
    double parts = 0;
    bool in_steps = true;
    bool waiting = false;
    for (const auto& [name, share] : rows) {
        if (name == "whole step") {
            EXPECT_EQ(share, 100);
            in_steps = false;
        } else if (name == "whole run") {
            EXPECT_EQ(share, 100);
        } else {
            (in_steps ? shares : parts) += share;
            waiting = waiting || name == "waiting for data";
        }
    }
    EXPECT_FALSE(in_steps) << outcome.out;
    EXPECT_TRUE(waiting) << outcome.out;
    EXPECT_NEAR(shares, 100, 1.2) << outcome.out;
    EXPECT_NEAR(parts, 100, 0.3) << outcome.out;
    // Evaluations are not in the account of the steps: 2 layers of 4 products and the head, 3 micro-batches.
    EXPECT_TRUE(std::regex_search(outcome.out, std::regex("linear_forward +27 "))) << outcome.out;
    for (const char* part :
         {"activations", "kept by the tape", "resident set of the process", "evaluation", "saving"}) {
        EXPECT_NE(outcome.out.find(part), std::string::npos) << part;
    }
    EXPECT_EQ(train_well(config("plain")).out.find("whole step"), std::string::npos);
}

}  // namespace
}  // namespace tessera

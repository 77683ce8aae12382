// Numbers that must not depend on how a run is cut up, each case as a user met it.
#include <cmath>
#include <sstream>

#include "apps/case_support.h"
#include "data/data_support.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using support::Outcome;

constexpr std::int64_t kWindow = 16;

class NumericsCases : public support::CaseTest {
protected:
    /// Samples of the document mask: `loss_tokens[i % n]` of the 16 targets of sample i carry loss. All others begin a
    /// document of their own.
    std::string uneven_shard(const std::string& name, const std::vector<std::int64_t>& loss_tokens,
                             std::int64_t samples) const {
        std::vector<std::int64_t> tokens;
        std::vector<std::int64_t> offsets;
        for (std::int64_t i = 0; i < samples * kWindow + 1; ++i) tokens.push_back((i * i / 3 + i) % 64);
        for (std::int64_t sample = 0; sample < samples; ++sample) {
            const std::int64_t kept = loss_tokens[static_cast<std::size_t>(sample) % loss_tokens.size()];
            // A first document of kept + 1 tokens has `kept` targets inside; then every token is a document.
            for (std::int64_t at = 0; at < kWindow; ++at) {
                if (at == 0 || at > kept) offsets.push_back(sample * kWindow + at);
            }
        }
        offsets.push_back(samples * kWindow);
        offsets.push_back(samples * kWindow + 1);
        return shard(name, tokens, offsets);
    }
    void expect_close(const std::string& one, const std::string& other, std::int64_t step, double tolerance) const {
        const auto a = values(one, step);
        const auto b = values(other, step);
        ASSERT_EQ(a.size(), b.size());
        for (const auto& [name, numbers_of_a] : a) {
            const std::vector<float>& numbers_of_b = b.at(name);
            ASSERT_EQ(numbers_of_a.size(), numbers_of_b.size());
            double worst = 0;
            for (std::size_t i = 0; i < numbers_of_a.size(); ++i) {
                worst = std::max(worst, std::abs(static_cast<double>(numbers_of_a[i]) - numbers_of_b[i]));
            }
            EXPECT_LT(worst, tolerance) << name << " of " << one << " and " << other;
        }
    }
};

TEST_F(NumericsCases, UnequalSamplesInAnySplitGiveTheSameWeights_NU_09) {
    const std::string data = uneven_shard("uneven", {1, 15}, 48);
    // A large epsilon keeps AdamW from magnifying the rounding of gradients near zero.
    const std::string lines = "[precision]\ndtype = \"f32\"\n";
    const std::vector<int> sizes = {8, 4, 2, 1};
    for (const int size : sizes) {
        train_well(tiny("split_" + std::to_string(size), data, lines),
                   {"--run.train_steps=5", "--data.document_mask=true", "--batch.global_batch_size=8",
                    "--optimizer.eps=1e-3", "--batch.micro_batch_size=" + std::to_string(size)});
    }
    const auto whole = numbers("split_8", "loss");
    ASSERT_EQ(whole.size(), 5U);
    for (const int size : {4, 2, 1}) {
        const std::string name = "split_" + std::to_string(size);
        const auto losses = numbers(name, "loss");
        for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(losses[i] / whole[i], 1, 1e-6) << name;
        expect_close("split_8", name, 5, 1e-6);
    }
    // The samples do differ: were the loss a mean of means, splits of one sample would show another loss. With four of
    // each kind in a batch, 4 of 64 loss tokens are in the short ones, not half of them.
    train_well(tiny("split_short", uneven_shard("short", {1}, 48), lines),
               {"--run.train_steps=5", "--data.document_mask=true", "--batch.global_batch_size=8"});
    EXPECT_GT(std::abs(numbers("split_short", "loss").front() - whole.front()), 1e-3);
}

TEST_F(NumericsCases, SamplesWithoutAnyLoss_NU_13) {
    const std::vector<std::string> masked = {"--data.document_mask=true", "--batch.micro_batch_size=1",
                                             "--run.train_steps=6"};
    // Every second micro-batch has none, and sometimes a whole step.
    train_well(tiny("half_masked", uneven_shard("half", {0, 15}, 48)),
               {masked[0], masked[1], masked[2], "--batch.global_batch_size=4"});
    for (const double loss : numbers("half_masked", "loss")) EXPECT_TRUE(std::isfinite(loss));
    // No step has any: nothing is trained, every step is counted as skipped, nothing is called a number that is none.
    const Outcome nothing = train_well(tiny("all_masked", uneven_shard("all", {0}, 48)), masked);
    EXPECT_NE(nothing.out.find("number of skipped iterations:   6 |"), std::string::npos) << nothing.out;
    EXPECT_EQ(nothing.out.find(": nan"), std::string::npos) << nothing.out;
    EXPECT_EQ(support::field_of(run_directory("all_masked") / "metrics.jsonl", "skipped_steps").back(), "6");
    EXPECT_EQ(support::field_of(run_directory("all_masked") / "metrics.jsonl", "nan_steps").back(), "0");
    train_well(tiny("first_weights", uneven_shard("first", {0}, 48)),
               {masked[0], masked[1], "--run.train_steps=1", "--optimizer.lr=0"});
    EXPECT_TRUE(values("all_masked", 6) == values("first_weights", 1)) << "weights changed without a loss";
    // One id over and over is no trouble either.
    train_well(tiny("one_id", shard("same", std::vector<std::int64_t>(500, 7))));
    for (const double loss : numbers("one_id", "loss")) EXPECT_TRUE(std::isfinite(loss));
}

TEST_F(NumericsCases, DecayScalesMatricesAndNothingElse_NU_10_NU_11) {
    const std::string data = shard("decay", data::test::counting(4000, 61));
    // Sizes that no vector width divides.
    const auto run = [&](const std::string& name, const std::string& rate, const std::string& decay) {
        return train_well(tiny(name, data),
                          {"--run.train_steps=1", "--optimizer.lr=" + rate, "--optimizer.weight_decay=" + decay,
                           "--model.hidden_size=20", "--model.ffn_hidden_size=51", "--schedule.style=constant"});
    };
    run("decay_start", "0", "10");
    const Outcome without = run("decay_0", "1e-3", "0");
    const Outcome with = run("decay_10", "1e-3", "10");
    EXPECT_NE(with.err.find("decay 10 on matrices and embeddings, none on biases and norms"), std::string::npos);
    EXPECT_NE(without.err.find("decay 0 on"), std::string::npos) << without.err;
    const auto start = values("decay_start", 1);
    const auto plain = values("decay_0", 1);
    const auto decayed = values("decay_10", 1);
    std::size_t vectors = 0;
    std::size_t matrices = 0;
    for (const auto& [name, before] : start) {
        const bool is_vector = name.find("norm") != std::string::npos || name.find("bias") != std::string::npos;
        ++(is_vector ? vectors : matrices);
        double moved = 0;
        for (std::size_t i = 0; i < before.size(); ++i) {
            // W (1 - lr wd) - lr u against W - lr u, with the same step u.
            const double expected = static_cast<double>(plain.at(name)[i]) - (is_vector ? 0 : 1e-3 * 10 * before[i]);
            if (is_vector) {
                EXPECT_EQ(decayed.at(name)[i], plain.at(name)[i]) << name << " " << i;
            } else {
                EXPECT_NEAR(decayed.at(name)[i], expected, 1e-7) << name << " " << i;
            }
            moved = std::max(moved, std::abs(static_cast<double>(plain.at(name)[i]) - before[i]));
        }
        // A constant added to all keys of a token changes no attention weight.
        if (name.find("key.bias") == std::string::npos) {
            EXPECT_GT(moved, 1e-4) << name << " was not trained at all";
        }
    }
    // Two layers of query, key, value, projection and two of the feed-forward layer; words and positions.
    EXPECT_EQ(matrices, 14U);
    EXPECT_EQ(vectors, 2U * (6 + 4) + 2);
}

TEST_F(NumericsCases, TheSameSeedIsTheSameRun_NU_06) {
    const std::string data = shard("seeds", data::test::counting(4000, 61));
    const auto run = [&](const std::string& name, const std::string& more) {
        train_well(tiny(name, data), {"--model.hidden_dropout=0.5", "--model.attention_dropout=0.5", more});
    };
    run("seed_a", "--run.seed=7");
    run("seed_b", "--run.seed=7");
    run("seed_c", "--run.seed=8");
    expect_same_run("seed_a", "seed_b", 12);
    EXPECT_NE(numbers("seed_a", "loss"), numbers("seed_c", "loss"));
    // Reading more of the data, for evaluation, draws nothing from the run's random numbers.
    run("seed_d", "--data.validation=" + data);
    run("seed_e", "--run.seed=1234");
    EXPECT_EQ(numbers("seed_d", "loss"), numbers("seed_e", "loss"));
    EXPECT_TRUE(tensors("seed_d", 12) == tensors("seed_e", 12));
}

/// Step and loss of each line of the console: "iteration  3/  11 | ... | lm loss: 4.158883E+00 |".
std::map<int, double> shown_losses(const std::string& out) {
    std::map<int, double> shown;
    std::istringstream lines(out);
    for (std::string line; std::getline(lines, line);) {
        const std::size_t step = line.find("] iteration ");
        const std::size_t loss = line.find("lm loss: ");
        if (step == std::string::npos || loss == std::string::npos) continue;
        shown[std::stoi(line.substr(step + 12))] = std::stod(line.substr(loss + 9));
    }
    return shown;
}

TEST_F(NumericsCases, ConsoleAndMetricsShowTheTrueLoss_LO_02) {
    const std::string data = shard("shown", data::test::counting(4000, 61));
    for (const int interval : {1, 3, 5}) {
        const std::string name = "shown_" + std::to_string(interval);
        const Outcome outcome = train_well(
                tiny(name, data), {"--log.interval=" + std::to_string(interval), "--run.train_steps=11",
                                   "--data.validation=" + data, "--evaluation.interval=4", "--evaluation.steps=1"});
        const auto losses = numbers(name, "loss");
        ASSERT_EQ(losses.size(), 11U) << "metrics.jsonl has every step, whatever the console shows";
        for (const double loss : losses) EXPECT_GT(loss, 0);
        const std::map<int, double> shown = shown_losses(outcome.out);
        // Every interval-th step, and the last.
        EXPECT_EQ(shown.size(), static_cast<std::size_t>(11 / interval + (11 % interval == 0 ? 0 : 1))) << outcome.out;
        EXPECT_EQ(shown.rbegin()->first, 11) << outcome.out;
        for (const auto& [step, loss] : shown) {
            EXPECT_NEAR(loss / losses.at(static_cast<std::size_t>(step) - 1), 1, 1e-6) << "step " << step;
        }
        EXPECT_EQ(numbers(name, "validation_loss").size(), 3U);
    }
}

}  // namespace
}  // namespace tessera

// Interrupted runs, each as a user met it.
#include <signal.h>

#include "apps/case_support.h"
#include "data/data_support.h"
#include "train/checkpoint_files.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using support::Outcome;
using support::read_file;

class ResumeCases : public support::CaseTest {
protected:
    std::string shard_of(std::int64_t tokens) const {
        return shard("tokens_" + std::to_string(tokens), data::test::counting(tokens, 61));
    }
    std::vector<std::string> column(const std::string& name, const std::string& key) const {
        return support::field_of(run_directory(name) / "metrics.jsonl", key);
    }
};

TEST_F(ResumeCases, AKilledCosineRunFollowsItsCurve_CK_06) {
    const std::string lines = "[checkpoint]\ninterval = 10\n[schedule]\nwarmup_steps = 2\n";
    const std::string data = shard_of(4000);
    train_well(tiny("curve", data, lines), {"--run.train_steps=30"});
    const fs::path path = tiny("curve_killed", data, lines);
    const fs::path log = folder / "curve.log";
    const int process = support::start_program("gpt_train", {path.string(), "--run.train_steps=30"}, log);
    ASSERT_TRUE(support::wait_for_text(process, log, "info: saved ", 1)) << read_file(log);
    kill(process, SIGKILL);
    support::wait_for(process);
    const Outcome resumed = train_well(path, {"--run.train_steps=30"});
    EXPECT_NE(resumed.err.find("resumed after step "), std::string::npos) << resumed.err;
    const auto rates = column("curve", "learning_rate");
    ASSERT_EQ(rates.size(), 30U);
    EXPECT_EQ(rates, column("curve_killed", "learning_rate"));
    // The curve falls, so a rate that stood still would show, and so would one that was only written down.
    for (std::size_t i = 3; i < 30; ++i) EXPECT_LT(std::stod(rates[i]), std::stod(rates[i - 1])) << i;
    expect_same_run("curve", "curve_killed", 30);
}

TEST_F(ResumeCases, TheScheduleIsNotShiftedWhereverTheSaveFell_CK_07) {
    const std::string lines =
            "[schedule]\nstyle = \"linear\"\nwarmup_steps = 3\n[checkpoint]\ninterval = 1\nkeep = 0\n";
    const std::string data = shard_of(4000);
    const std::string length = "--run.train_steps=10";
    train_well(tiny("linear", data, lines), {length});
    const auto rates = column("linear", "learning_rate");
    ASSERT_EQ(rates.size(), 10U);
    EXPECT_LT(std::stod(rates[1]), std::stod(rates[2])) << "the warmup rises";
    for (std::int64_t saved = 1; saved <= 9; ++saved) {
        const std::string name = "linear_" + std::to_string(saved);
        train_well(tiny(name, data, lines),
                   {length, "--checkpoint.interval=0", "--checkpoint.resume=" + checkpoint("linear", saved).string()});
        EXPECT_EQ(column(name, "learning_rate"), std::vector<std::string>(rates.begin() + saved, rates.end())) << saved;
        EXPECT_TRUE(tensors("linear", 10) == tensors(name, 10)) << saved;
    }
}

/// A batch of one sample at a rate of 0: the loss of a step is the name of its sample.
TEST_F(ResumeCases, EachSampleOnceAnEpochAlsoAfterAStop_CK_10) {
    std::vector<std::int64_t> tokens;
    for (std::int64_t i = 0; i < 12 * 16 + 1; ++i) tokens.push_back((i * i / 7 + i % 5) % 61);
    const fs::path path = tiny("epochs", shard("twelve", tokens));
    const std::vector<std::string> still = {"--optimizer.lr=0", "--batch.global_batch_size=1"};
    const auto train_to = [&](std::int64_t steps) {
        train_well(path, {still[0], still[1], "--run.train_steps=" + std::to_string(steps)});
    };
    train_to(18);  // in the middle of the second epoch
    train_to(31);
    train_to(48);
    const auto losses = column("epochs", "loss");
    ASSERT_EQ(losses.size(), 48U);
    std::map<std::string, int> total;
    for (std::size_t epoch = 0; epoch < 4; ++epoch) {
        std::map<std::string, int> seen;
        for (std::size_t i = 0; i < 12; ++i) ++seen[losses[12 * epoch + i]];
        EXPECT_EQ(seen.size(), 12U) << "epoch " << epoch;
        for (const auto& [loss, count] : seen) total[loss] += count;
    }
    EXPECT_EQ(total.size(), 12U);
    for (const auto& [loss, count] : total) EXPECT_EQ(count, 4) << loss;
}

TEST_F(ResumeCases, TheVocabularyIsSavedWithoutItsPadding_CK_15) {
    const std::string data = shard_of(4000);
    for (const char* family : {"gpt2", "llama"}) {
        const std::string name = std::string("padding_") + family;
        train_well(tiny(name, data),
                   {"--model.vocab_size=61", "--run.train_steps=2", "--model.family=" + std::string(family)});
        const auto reader = train::CheckpointReader::open(checkpoint(name, 2).string());
        std::size_t found = 0;
        for (const train::TensorInfo& tensor : reader.tensors()) {
            if (tensor.name.find("word") == std::string::npos && tensor.name.find("head") == std::string::npos) {
                continue;
            }
            EXPECT_EQ(tensor.shape, (core::Shape{61, 32})) << tensor.name;
            ++found;
        }
        // The weights and two moments, of the embedding and of a head of its own.
        EXPECT_EQ(found, std::string(family) == "gpt2" ? 3U : 6U);
    }
}

TEST_F(ResumeCases, NoPartOfAnotherStepIsMixedIn_CK_16) {
    const std::string data = shard_of(4000);
    const std::string lines = "[checkpoint]\ninterval = 10\n";
    train_well(tiny("parts_whole", data, lines));
    for (const char* part : {"rank_00000.safetensors", "rank_00000_optimizer.safetensors", "index.json"}) {
        const std::string name = "parts_" + std::string(part).substr(0, std::string(part).find('.'));
        const fs::path path = tiny(name, data, lines);
        train_well(path);
        fs::remove(checkpoint(name, 12) / part);
        const Outcome resumed = train_well(path);
        EXPECT_NE(resumed.err.find("resumed after step 10 from "), std::string::npos) << resumed.err;
        expect_same_run("parts_whole", name, 12);
    }
    // The newest checkpoint's data position with the older one's model would be step 12 with the weights of step 10.
    const fs::path path = tiny("parts_mixed", data, lines);
    train_well(path);
    fs::copy_file(checkpoint("parts_mixed", 10) / "rank_00000.safetensors",
                  checkpoint("parts_mixed", 12) / "rank_00000.safetensors", fs::copy_options::overwrite_existing);
    support::expect_refused(train(path, {"--checkpoint.resume=12"}), "gpt_train", {"rank_00000.safetensors"});
    const Outcome resumed = train_well(path);
    EXPECT_NE(resumed.err.find("resumed after step 10 from "), std::string::npos) << resumed.err;
    expect_same_run("parts_whole", "parts_mixed", 12);
}

}  // namespace
}  // namespace tessera

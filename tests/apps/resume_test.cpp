// No interruption changes a run: not a restart, not a signal. (Kills: endurance_test.cpp.)
#include <signal.h>

#include <ostream>

#include "apps/program_support.h"
#include "data/data_support.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using support::count_of;
using support::Outcome;
using support::read_file;
using support::step_values;

const std::string kGpt2 =
        "[model]\nfamily = \"gpt2\"\nnum_layers = 2\nhidden_size = 36\nnum_attention_heads = 3\nseq_length = 19\n"
        "hidden_dropout = 0.1\nattention_dropout = 0.1\n";
const std::string kLlama =
        "[model]\nfamily = \"llama\"\nnum_layers = 2\nhidden_size = 32\nnum_attention_heads = 4\nnum_kv_heads = 2\n"
        "ffn_hidden_size = 52\nseq_length = 24\nhidden_dropout = 0.1\nattention_dropout = 0.1\n";

struct Variant {
    std::string name, model, rest;

    friend void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }
};

std::vector<Variant> variants() {
    std::vector<Variant> all;
    for (const char* family : {"gpt2", "llama"}) {
        for (const char* dtype : {"f32", "bf16", "f16"}) {
            std::string rest = "[precision]\ndtype = \"" + std::string(dtype) + "\"\n";
            // The first steps overflow and are skipped, later the scale doubles and halves again.
            if (rest.find("f16\"") != std::string::npos && rest.find("bf16") == std::string::npos) {
                rest += "initial_loss_scale = 3e7\nloss_scale_window = 2\nhysteresis = 1\n";
            }
            all.push_back({std::string(family) + "_" + dtype, std::string(family) == "gpt2" ? kGpt2 : kLlama, rest});
        }
    }
    return all;
}

class ResumeLaw : public support::ProgramTest, public testing::WithParamInterface<Variant> {};

TEST_P(ResumeLaw, AResumedRunIsAnUnbrokenOne_CK_06_CK_07_CK_08_CK_14) {
    const auto& [name, model, rest] = GetParam();
    const std::vector<std::string> length = {"--run.train_steps=20", "--schedule.decay_steps=20"};
    const std::string whole = name + "_whole";
    const std::string halves = name + "_broken";
    train_well(config(whole, model, rest), length);
    const fs::path broken = config(halves, model, rest);
    // Inside the warmup, in the middle, and right after the first half.
    std::int64_t before = 0;
    for (const std::int64_t stop : {2, 10, 20}) {
        const Outcome outcome =
                train_well(broken, {"--run.train_steps=" + std::to_string(stop), "--schedule.decay_steps=20"});
        const std::string start = before > 0 ? "resumed after step " + std::to_string(before) : "a fresh start in ";
        EXPECT_NE(outcome.err.find(start), std::string::npos) << outcome.err;
        before = stop;
    }
    expect_same_run(whole, halves, 20);
    // A law about runs in which nothing happens would hold, too.
    const auto losses = support::field_of(run_directory(whole) / "metrics.jsonl", "loss");
    EXPECT_LT(std::stod(losses.back()), std::stod(losses.front()) - 0.2);
    if (name.find("_f16") != std::string::npos) {
        // The first stop comes before the first update. Later some steps overflow, but not all.
        EXPECT_EQ(support::field_of(run_directory(whole) / "metrics.jsonl", "skipped_steps").at(1), "2");
        EXPECT_GT(std::stoi(support::field_of(run_directory(whole) / "metrics.jsonl", "skipped_steps").back()), 2);
    }
}

INSTANTIATE_TEST_SUITE_P(Families, ResumeLaw, testing::ValuesIn(variants()),
                         [](const testing::TestParamInfo<Variant>& each) { return each.param.name; });

class Interruptions : public support::ProgramTest {
protected:
    /// Runs in the background with one log line a step.
    int start(const fs::path& path, const fs::path& log, const std::string& more) const {
        return support::start_program("gpt_train", {path.string(), more}, log);
    }
    std::int64_t latest_step(const std::string& name) const {
        const std::string latest = read_file(run_directory(name) / "checkpoints/latest");
        return latest.rfind("step_", 0) == 0 ? std::stoll(latest.substr(5)) : -1;
    }
};

TEST_F(Interruptions, EveryWayToNameACheckpoint_CK_08_CK_13) {
    const std::string saves = "[checkpoint]\ninterval = 5\nkeep = 0\n";
    train_well(config("source", "", saves));
    const std::string five = checkpoint("source", 5).string();
    // A folder of checkpoints in which the newest is step 5.
    fs::create_directories(folder / "old checkpoints/step_abc");
    fs::copy(five, folder / "old checkpoints/step_00000005", fs::copy_options::recursive);
    support::write_file(folder / "old checkpoints/tmp", "x");
    const std::vector<std::string> ways = {five, "runs/source/checkpoints/step_00000005",
                                           (folder / "old checkpoints").string()};
    for (std::size_t i = 0; i < ways.size(); ++i) {
        const std::string name = "way_" + std::to_string(i);
        const Outcome outcome = support::run_program(
                "gpt_train", {config(name, "", saves).string(), "--checkpoint.resume=" + ways[i]}, folder);
        ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
        EXPECT_NE(outcome.err.find("resumed after step 5 from "), std::string::npos) << outcome.err;
        EXPECT_TRUE(tensors("source", 12) == tensors(name, 12)) << ways[i];
        auto values = step_values(run_directory("source") / "metrics.jsonl");
        values.erase(values.begin(), values.begin() + 5);
        EXPECT_EQ(values, step_values(run_directory(name) / "metrics.jsonl"));
    }
    // A step number: the run goes back and comes to the same end.
    fs::copy(run_directory("source"), run_directory("back"), fs::copy_options::recursive);
    const Outcome back = train_well(config("back", "", saves), {"--checkpoint.resume=5"});
    EXPECT_NE(back.err.find("resumed after step 5 from "), std::string::npos) << back.err;
    expect_same_run("source", "back", 12);
    // None: a start anew, which also comes to the same end, and says so.
    const Outcome anew = train_well(config("back", "", saves), {"--checkpoint.resume=none"});
    EXPECT_NE(anew.err.find("a fresh start in "), std::string::npos) << anew.err;
    expect_same_run("source", "back", 12);
    // The checkpoint one resumed from is as it was.
    EXPECT_TRUE(support::contents_of(five) == support::contents_of(folder / "old checkpoints/step_00000005"));
}

TEST_F(Interruptions, AutoStartsAfreshAndPassesOverJunk_CK_13) {
    for (const char* junk : {"tmp", "iter_abc", "step_5", "step_abc", "step_00000009"}) {
        fs::create_directories(run_directory("junk") / "checkpoints" / junk);
    }
    support::write_file(run_directory("junk") / "checkpoints/step_00000008", "a plain file");
    const Outcome outcome = train_well(config("junk"), {"--run.train_steps=3"});
    EXPECT_NE(outcome.err.find("a fresh start in "), std::string::npos) << outcome.err;
    EXPECT_EQ(latest_step("junk"), 3);
    EXPECT_EQ(read_file(run_directory("junk") / "checkpoints/step_00000008"), "a plain file");
    const Outcome absent = train(config("junk"), {"--checkpoint.resume=9999"});
    support::expect_refused(absent, "gpt_train", {"9999", "3"});
}

TEST_F(Interruptions, SignalsSaveAndStop_CK_17) {
    for (const int signal : {SIGTERM, SIGUSR1, SIGINT}) {
        const std::string name = "signal_" + std::to_string(signal);
        const fs::path log = folder / (name + ".log");
        const fs::path path = config(name, "", "[checkpoint]\ninterval = 0\n");
        const int process = start(path, log, "--run.train_steps=100000");
        ASSERT_TRUE(support::wait_for_text(process, log, " iteration ", 3)) << read_file(log);
        kill(process, signal);
        // A second, impatient one must not spoil the save.
        if (signal != SIGINT) kill(process, signal);
        EXPECT_EQ(support::wait_for(process), 75) << read_file(log);
        const std::int64_t step = latest_step(name);
        ASSERT_EQ(step, static_cast<std::int64_t>(step_values(run_directory(name) / "metrics.jsonl").size()));
        EXPECT_GE(step, 3);
        EXPECT_NE(read_file(log).find("stopping on signal"), std::string::npos) << read_file(log);
        EXPECT_TRUE(fs::exists(run_directory(name) / "loss.svg"));
        // Three steps more, and the same without the stop.
        const std::string length = "--run.train_steps=" + std::to_string(step + 3);
        const Outcome resumed = train_well(path, {length});
        EXPECT_NE(resumed.err.find("resumed after step " + std::to_string(step)), std::string::npos) << resumed.err;
        train_well(config(name + "_unbroken", "", "[checkpoint]\ninterval = 0\n"), {length});
        expect_same_run(name + "_unbroken", name, step + 3);
    }
}

TEST_F(Interruptions, ADamagedCheckpointIsPassedOver_CK_03) {
    const fs::path path = config("damaged", "", "[checkpoint]\ninterval = 4\n");
    train_well(path);
    const fs::path newest = checkpoint("damaged", 12);
    const std::string sound = read_file(newest / "rank_00000.safetensors");
    std::string flipped = sound;
    flipped[sound.size() / 2] = static_cast<char>(flipped[sound.size() / 2] ^ 4);
    for (const std::string& bytes : {flipped, sound.substr(0, sound.size() / 3), std::string()}) {
        support::write_file(newest / "rank_00000.safetensors", bytes);
        const auto before = support::contents_of(run_directory("damaged"));
        for (const std::string& name : {newest.string(), std::string("12")}) {
            support::expect_refused(train(path, {"--checkpoint.resume=" + name}), "gpt_train",
                                    {"rank_00000.safetensors"});
        }
        EXPECT_TRUE(before == support::contents_of(run_directory("damaged")));
        // One may still generate from the run, and is told from what.
        const Outcome text = support::run_program(
                "gpt_generate", {run_directory("damaged").string(), "--prompt", "the", "--max-tokens", "3"});
        EXPECT_EQ(text.exit_code, 0) << text.err;
        EXPECT_NE(text.err.find("step_00000008 instead"), std::string::npos) << text.err;
        const Outcome outcome = train_well(path);
        EXPECT_NE(outcome.err.find("warning: passing over step_00000012"), std::string::npos) << outcome.err;
        EXPECT_NE(outcome.err.find("resumed after step 8"), std::string::npos) << outcome.err;
        EXPECT_TRUE(read_file(newest / "rank_00000.safetensors") == sound) << "the step was not saved anew";
    }
    // One part of three is missing.
    fs::remove(newest / "rank_00000_optimizer.safetensors");
    support::expect_refused(train(path, {"--checkpoint.resume=12"}), "gpt_train", {"rank_00000_optimizer.safetensors"});
    for (const std::int64_t step : {4, 8, 12}) fs::resize_file(checkpoint("damaged", step) / "index.json", 100);
    support::expect_refused(train(path), "gpt_train", {"none of the", "index.json"});
}

/// Twelve samples and six passes over them; the stop is in the middle of the second.
TEST_F(Interruptions, AnEpochIsFinishedWhereItWasLeft_CK_10) {
    const std::string shard = (folder / "twelve.h5").string();
    data::test::write_foreign(shard, data::test::counting(12 * 19 + 1, 60));
    auto make = [&](const std::string& name) {
        std::string text = read_file(config(name));
        text.replace(text.find("train = "), text.find("[batch]") - text.find("train = "), "train = '" + shard + "'\n");
        text.erase(text.find("[evaluation]"));
        text.replace(text.find("seq_length"), 0, "vocab_size = 60\n");
        support::write_file(folder / (name + ".toml"), text);
        return folder / (name + ".toml");
    };
    const Outcome outcome = train_well(make("epochs"));
    EXPECT_NE(outcome.err.find("72 samples of 19 tokens needed, 12 in one pass"), std::string::npos) << outcome.err;
    train_well(make("epochs_broken"), {"--run.train_steps=3"});
    train_well(make("epochs_broken"), {"--run.train_steps=4"});
    train_well(make("epochs_broken"));
    expect_same_run("epochs", "epochs_broken", 12);
    // At a rate of 0 the losses tell that each pass sees every sample once: pairs of steps sum to the same.
    const fs::path still = make("epochs_still");
    std::string text = read_file(still);
    text.replace(text.find("hidden_dropout = 0.1"), 20, "hidden_dropout = 0.0");
    text.replace(text.find("attention_dropout = 0.1"), 23, "attention_dropout = 0.0");
    support::write_file(still, text);
    const std::vector<std::string> rate = {"--optimizer.lr=0", "--optimizer.min_lr=0"};
    train_well(still, {rate[0], rate[1], "--run.train_steps=5"});
    train_well(still, rate);
    std::vector<double> loss;
    for (const std::string& value : support::field_of(run_directory("epochs_still") / "metrics.jsonl", "loss")) {
        loss.push_back(std::stod(value));
    }
    ASSERT_EQ(loss.size(), 12U);
    for (std::size_t i = 2; i < 12; i += 2) EXPECT_NEAR(loss[i] + loss[i + 1], loss[0] + loss[1], 1e-5) << i;
}

TEST_F(Interruptions, TheBatchMayChangeOnResume_CK_11) {
    // With a learning rate of 0 and no dropout the loss of a step tells its samples.
    const std::string still = "[model]\nnum_layers = 2\nhidden_size = 32\nnum_attention_heads = 4\nseq_length = 16\n";
    const std::vector<std::string> rate = {"--optimizer.lr=0", "--optimizer.min_lr=0", "--batch.micro_batch_size=2"};
    auto with = [&](std::vector<std::string> more) {
        more.insert(more.end(), rate.begin(), rate.end());
        return more;
    };
    const fs::path path = config("changed", still);
    train_well(path, with({"--run.train_steps=6", "--batch.global_batch_size=8"}));
    train_well(path, with({"--run.train_steps=8", "--batch.global_batch_size=4"}));
    train_well(config("small", still), with({"--run.train_steps=14", "--batch.global_batch_size=4"}));
    const fs::path changed = run_directory("changed") / "metrics.jsonl";
    const fs::path small = run_directory("small") / "metrics.jsonl";
    const auto values = step_values(changed);
    ASSERT_EQ(values.size(), 8U);
    EXPECT_EQ(values[6].substr(values[6].rfind(' ')), " 52");
    EXPECT_EQ(values[7].substr(values[7].rfind(' ')), " 56");
    for (const std::size_t i : {0U, 1U}) {
        EXPECT_EQ(support::field_of(changed, "loss").at(6 + i), support::field_of(small, "loss").at(12 + i));
    }
    EXPECT_NE(support::field_of(changed, "loss").at(6), support::field_of(small, "loss").at(11));
}

}  // namespace
}  // namespace tessera

// gpt_train from outside: what a run leaves, and that no interruption changes it.
#include <signal.h>

#include <chrono>
#include <thread>

#include "apps/program_support.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using support::last_line;
using support::Outcome;
using support::read_file;
using support::step_values;

const std::string kLlama =
        "[model]\nfamily = \"llama\"\nnum_layers = 2\nhidden_size = 32\nnum_attention_heads = 4\nnum_kv_heads = "
        "2\nffn_hidden_size = 52\n"
        "seq_length = 24\nhidden_dropout = 0.1\nattention_dropout = 0.1\n";

class GptTrain : public support::ProgramTest {
protected:
    /// The tensors of a checkpoint, byte for byte.
    std::string tensors(const std::string& name, int step) const {
        const fs::path checkpoint = run_directory(name) / "checkpoints" /
                                    ("step_000000" + std::string(step < 10 ? "0" : "") + std::to_string(step));
        const std::string bytes = read_file(checkpoint / "rank_00000.safetensors") +
                                  read_file(checkpoint / "rank_00000_optimizer.safetensors");
        EXPECT_GT(bytes.size(), 10000U) << checkpoint;
        return bytes;
    }
    void expect_same_end(const std::string& one, const std::string& other) const {
        EXPECT_TRUE(tensors(one, 12) == tensors(other, 12)) << one << " and " << other;
        EXPECT_EQ(step_values(run_directory(one) / "metrics.jsonl"),
                  step_values(run_directory(other) / "metrics.jsonl"));
    }
};

TEST_F(GptTrain, LeavesEverythingARunShould) {
    const Outcome outcome = train(config("whole"), {"--run.train_steps=60", "--schedule.decay_steps=60"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    for (const char* file : {"config.toml", "metrics.jsonl", "loss.svg", "tokenizer.model", "checkpoints/latest",
                             "checkpoints/step_00000060/index.json"}) {
        EXPECT_TRUE(fs::exists(run_directory("whole") / file)) << file;
    }
    EXPECT_NE(outcome.out.find("iteration       60/      60 | consumed samples:          360 |"), std::string::npos)
            << outcome.out;
    for (const char* field : {"elapsed time per iteration (ms): ", "throughput per GPU (TFLOP/s/GPU): ",
                              "learning rate: ", "global batch size:     6 |",
                              "lm loss: ", "loss scale: ", "grad norm: ", "number of skipped iterations:   0 |"}) {
        EXPECT_NE(outcome.out.find(field), std::string::npos) << field;
    }
    EXPECT_NE(outcome.out.find("bits per byte: "), std::string::npos);
    const auto values = step_values(run_directory("whole") / "metrics.jsonl");
    ASSERT_EQ(values.size(), 60U);
    const auto loss_of = [](const std::string& line) { return std::stod(line.substr(line.find(' '))); };
    EXPECT_LT(loss_of(values.back()), loss_of(values.front()) - 1.0);
    const Outcome again = train(config("whole"), {"--run.train_steps=60", "--schedule.decay_steps=60"});
    EXPECT_EQ(again.exit_code, 0);
    EXPECT_NE(again.out.find("nothing was trained"), std::string::npos) << again.out;
}

TEST_F(GptTrain, ResumingGivesTheBitsOfAnUnbrokenRun_CK_08) {
    struct Variant {
        std::string name, model, rest;
    };
    const std::vector<Variant> variants = {
            {"gpt2", "", ""},
            {"llama", kLlama, "[precision]\ndtype = \"bf16\"\n"},
            {"half", "",
             "[precision]\ndtype = \"f16\"\ninitial_loss_scale = 1e12\nloss_scale_window = 2\nhysteresis = 1\n"}};
    for (const Variant& v : variants) {
        const Outcome whole = train(config(v.name + "_whole", v.model, v.rest));
        ASSERT_EQ(whole.exit_code, 0) << whole.err;
        const fs::path broken = config(v.name + "_broken", v.model, v.rest);
        ASSERT_EQ(train(broken, {"--run.train_steps=3"}).exit_code, 0);
        ASSERT_EQ(train(broken, {"--run.train_steps=7"}).exit_code, 0);
        const Outcome resumed = train(broken);
        ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
        EXPECT_NE(resumed.err.find("resumed after step 7"), std::string::npos) << resumed.err;
        expect_same_end(v.name + "_whole", v.name + "_broken");
    }
}

TEST_F(GptTrain, SignalsSaveAndStop_CK_17) {
    ASSERT_EQ(train(config("unbroken", "", "[checkpoint]\ninterval = 0\n")).exit_code, 0);
    for (const int signal : {SIGTERM, SIGUSR1, SIGINT}) {
        const std::string name = "signal_" + std::to_string(signal);
        const fs::path path = config(name, "", "[checkpoint]\ninterval = 0\n");
        // Long enough that the signal arrives in the middle; the schedule's end is the unbroken run's.
        const int process = support::start_program("gpt_train", {path.string(), "--run.train_steps=100000"},
                                                   folder / (name + ".log"));
        ASSERT_TRUE(support::wait_for_lines(run_directory(name) / "metrics.jsonl", 3));
        kill(process, signal);
        EXPECT_EQ(support::wait_for(process), 75) << read_file(folder / (name + ".log"));
        EXPECT_TRUE(fs::exists(run_directory(name) / "checkpoints/latest"));
        const auto values = step_values(run_directory(name) / "metrics.jsonl");
        const std::string latest = read_file(run_directory(name) / "checkpoints/latest");
        EXPECT_EQ(std::stol(latest.substr(latest.find('_') + 1)), static_cast<long>(values.size()));
        if (values.size() < 12) {
            ASSERT_EQ(train(path).exit_code, 0);
            expect_same_end("unbroken", name);
        }
    }
}

TEST_F(GptTrain, KilledAtAnyMomentItGoesOn_CK_01) {
    ASSERT_EQ(train(config("unkilled")).exit_code, 0);
    const fs::path path = config("killed", "", "[checkpoint]\ninterval = 1\nkeep = 2\n");
    for (int attempt = 0; attempt < 6; ++attempt) {
        const int process =
                support::start_program("gpt_train", {path.string(), "--log.progress=none"}, folder / "killed.log");
        std::this_thread::sleep_for(std::chrono::milliseconds(60 + 37 * attempt));
        kill(process, SIGKILL);
        const int code = support::wait_for(process);
        ASSERT_TRUE(code == 128 + SIGKILL || code == 0) << code << read_file(folder / "killed.log");
    }
    ASSERT_EQ(train(path).exit_code, 0) << read_file(folder / "killed.log");
    expect_same_end("unkilled", "killed");
}

TEST_F(GptTrain, AnyMicroBatchGivesTheSameLosses_CF_08) {
    const Outcome all = train(config("micro_6"), {"--batch.micro_batch_size=6"});
    ASSERT_EQ(all.exit_code, 0) << all.err;
    ASSERT_EQ(train(config("micro_1"), {"--batch.micro_batch_size=1"}).exit_code, 0);
    const auto a = step_values(run_directory("micro_6") / "metrics.jsonl");
    const auto b = step_values(run_directory("micro_1") / "metrics.jsonl");
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
        EXPECT_NEAR(std::stod(a[i].substr(a[i].find(' '))), std::stod(b[i].substr(b[i].find(' '))), 1e-4);
    }
}

TEST_F(GptTrain, EvaluationIsTheSameEachTime_DA_15) {
    const Outcome outcome = train(config("still"), {"--optimizer.lr=0.0000000001", "--optimizer.min_lr=0",
                                                    "--optimizer.weight_decay=0", "--evaluation.interval=3"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    std::vector<std::string> losses;
    for (std::size_t at = outcome.out.find("lm loss value: "); at != std::string::npos;
         at = outcome.out.find("lm loss value: ", at + 1)) {
        losses.push_back(outcome.out.substr(at + 15, 7));
    }
    ASSERT_EQ(losses.size(), 4U) << outcome.out;
    EXPECT_EQ(losses[0], losses[3]);
    EXPECT_EQ(train(config("no_interval"), {"--evaluation.interval=0"}).exit_code, 0);
    std::string text = read_file(config("no_validation"));
    text.erase(text.find("validation = "), text.find("tokenizer = ") - text.find("validation = "));
    text.erase(text.find("[evaluation]"));
    support::write_file(folder / "no_validation.toml", text);
    const Outcome none = train(folder / "no_validation.toml");
    EXPECT_EQ(none.exit_code, 0) << none.err;
    EXPECT_EQ(none.out.find("validation loss"), std::string::npos);
}

TEST_F(GptTrain, ADamagedCheckpointIsPassedOver_CK_03) {
    const fs::path path = config("damaged", "", "[checkpoint]\ninterval = 4\n");
    ASSERT_EQ(train(path).exit_code, 0);
    const fs::path newest = run_directory("damaged") / "checkpoints/step_00000012/rank_00000.safetensors";
    std::string bytes = read_file(newest);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
    support::write_file(newest, bytes);
    const Outcome explicit_path = train(path, {"--checkpoint.resume=" + newest.parent_path().string()});
    EXPECT_EQ(explicit_path.exit_code, 2);
    EXPECT_NE(last_line(explicit_path.err).find("rank_00000.safetensors"), std::string::npos) << explicit_path.err;
    const Outcome outcome = train(path);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_NE(outcome.err.find("warning"), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find("resumed after step 8"), std::string::npos) << outcome.err;
}

TEST_F(GptTrain, StopsWhenTheNumbersBreak_NU_02) {
    const fs::path path = config("broken_numbers", "", "[checkpoint]\ninterval = 1\n");
    ASSERT_EQ(train(path, {"--run.train_steps=2"}).exit_code, 0);
    const Outcome outcome = train(path, {"--optimizer.lr=1e30", "--optimizer.min_lr=1e30"});
    EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
    EXPECT_NE(last_line(outcome.err).find("are not finite; stopped before the update (the last checkpoint, of step"),
              std::string::npos)
            << outcome.err;
}

TEST_F(GptTrain, ADryRunWritesNothing) {
    const Outcome outcome = train(config("dry"), {"--dry-run"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find("parameters"), std::string::npos);
    EXPECT_FALSE(fs::exists(run_directory("dry")));
}

TEST_F(GptTrain, WorksFromAnyDirectory_IN_02) {
    config("elsewhere");
    const Outcome outcome = support::run_program(
            "gpt_train", {"elsewhere.toml", "--run.train_steps=2", "--data.train=./text_train_00000.h5"}, folder);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_TRUE(fs::exists(run_directory("elsewhere") / "loss.svg"));
}

}  // namespace
}  // namespace tessera

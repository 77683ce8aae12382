// gpt_train from outside: what a run says and leaves.
#include "apps/program_support.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using support::count_of;
using support::Outcome;
using support::read_file;
using support::step_values;

class GptTrain : public support::ProgramTest {
protected:
    std::vector<double> losses(const std::string& name) const {
        std::vector<double> values;
        for (const std::string& text : support::field_of(run_directory(name) / "metrics.jsonl", "loss")) {
            values.push_back(std::stod(text));
        }
        return values;
    }
};

/// The path of a newcomer, from a text to a text.
TEST_F(GptTrain, FromTextToText) {
    const fs::path place = folder / "newcomer";
    fs::create_directories(place);
    fs::copy(folder / "corpus.txt", place / "corpus.txt");
    auto run_in = [&](const std::string& program, const std::vector<std::string>& arguments) {
        const Outcome outcome = support::run_program(program, arguments, place);
        EXPECT_EQ(outcome.exit_code, 0) << program << ": " << outcome.err;
        return outcome;
    };
    run_in("gpt_data", {"tokenizer", "corpus.txt", "--output", "my.model", "--vocab-size", "300"});
    run_in("gpt_data", {"tokenize", "corpus.txt", "--tokenizer", "my.model", "--output", "shards/text", "--validation",
                        "0.1", "--validation-text", "held_out.txt"});
    EXPECT_GT(read_file(place / "held_out.txt").size(), 1000U);
    run_in("gpt_data", {"inspect", "--check", "shards/text_train_00000.h5", "shards/text_validation_00000.h5"});
    support::write_file(place / "my_run.toml",
                        "[run]\ntrain_steps = 60\n[model]\nnum_layers = 2\nhidden_size = 32\n"
                        "num_attention_heads = 4\nseq_length = 32\n"
                        "[data]\ntrain = \"shards/text_train_*.h5\"\nvalidation = \"shards/text_validation_*.h5\"\n"
                        "tokenizer = \"my.model\"\n[batch]\nglobal_batch_size = 8\n[optimizer]\nlr = 1e-2\n");
    run_in("gpt_train", {"my_run.toml"});
    const auto metrics = place / "runs/my_run/metrics.jsonl";
    const auto loss = support::field_of(metrics, "loss");
    ASSERT_EQ(loss.size(), 60U);
    EXPECT_LT(std::stod(loss.back()), std::stod(loss.front()) - 2.0);
    // Held-out text is predicted about as well: bits per byte are in reach of the loss.
    const auto validation = support::field_of(metrics, "validation_loss");
    ASSERT_FALSE(validation.empty());
    EXPECT_NEAR(std::stod(validation.back()), std::stod(loss.back()), 0.5);
    EXPECT_LT(std::stod(support::field_of(metrics, "bits_per_byte").back()), 4.0);
    EXPECT_TRUE(read_file(place / "my.model") == read_file(place / "runs/my_run/tokenizer.model"));
    EXPECT_EQ(read_file(place / "runs/my_run/checkpoints/latest"), "step_00000060\n");
    EXPECT_EQ(read_file(place / "runs/my_run/loss.svg").find("<svg"), 0U);
    const Outcome text =
            run_in("gpt_generate", {"runs/my_run", "--prompt", "the cat", "--max-tokens", "12", "--ignore-end"});
    EXPECT_EQ(text.out.rfind("the cat", 0), 0U);
    EXPECT_GT(text.out.size(), std::string("the cat\n").size());
    EXPECT_EQ(text.err, "");
}

/// What a run resolved is a config that makes the same run.
TEST_F(GptTrain, TheResolvedConfigMakesTheSameRun) {
    train_well(config("first"));
    const std::string text = read_file(run_directory("first") / "config.toml");
    EXPECT_NE(text.find("ffn_hidden_size = 144"), std::string::npos) << text;
    support::write_file(folder / "second.toml", text);
    train_well(folder / "second.toml",
               {"--run.directory=" + run_directory("second").string(),
                "--checkpoint.directory=" + (run_directory("second") / "checkpoints").string()});
    expect_same_run("first", "second", 12);
}

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

TEST_F(GptTrain, AnyMicroBatchGivesTheSameLosses_CF_08) {
    const std::vector<int> sizes = {6, 3, 2, 1};
    for (const int size : sizes) {
        train_well(config("micro_" + std::to_string(size)), {"--batch.micro_batch_size=" + std::to_string(size)});
    }
    const auto all = losses("micro_6");
    ASSERT_EQ(all.size(), 12U);
    for (const int size : {3, 2, 1}) {
        const auto other = losses("micro_" + std::to_string(size));
        ASSERT_EQ(all.size(), other.size());
        for (std::size_t i = 0; i < all.size(); ++i) EXPECT_NEAR(all[i] / other[i], 1, 1e-5) << size << " step " << i;
    }
}

TEST_F(GptTrain, EvaluationIsTheSameEachTime_DA_15) {
    const std::vector<std::string> still = {"--optimizer.lr=0", "--optimizer.min_lr=0", "--evaluation.interval=3"};
    const fs::path path = config("still");
    auto first = still;
    first.push_back("--run.train_steps=7");
    train_well(path, first);
    train_well(path, still);  // the later half after a restart
    const auto values = support::field_of(run_directory("still") / "metrics.jsonl", "validation_loss");
    ASSERT_EQ(values.size(), 5U) << "steps 3, 6, 7 (the end), 9 and 12";
    for (const std::string& value : values) EXPECT_EQ(value, values.front());
    EXPECT_EQ(support::field_of(run_directory("still") / "metrics.jsonl", "perplexity").size(), 5U);
}

TEST_F(GptTrain, EvaluationCanBeOff_DA_16) {
    EXPECT_EQ(count_of(train_well(config("rare"), {"--evaluation.interval=0"}).out, "validation loss at"), 1U);
    EXPECT_EQ(count_of(train_well(config("never"), {"--evaluation.interval=1000000000"}).out, "validation loss at"),
              1U);
    train_well(config("all"), {"--evaluation.steps=0"});
    const auto samples = support::field_of(run_directory("all") / "metrics.jsonl", "tokens");
    ASSERT_EQ(samples.size(), 2U);
    EXPECT_GT(std::stol(samples[0]), 2 * 6 * 19) << "steps = 0 stands for all of the validation data";
    std::string text = read_file(config("no_validation"));
    text.erase(text.find("validation = "), text.find("tokenizer = ") - text.find("validation = "));
    text.erase(text.find("[evaluation]"));
    support::write_file(folder / "no_validation.toml", text);
    const Outcome none = train_well(folder / "no_validation.toml");
    EXPECT_EQ(none.out.find("validation loss"), std::string::npos);
    EXPECT_NE(none.err.find("validation: none"), std::string::npos) << none.err;
}

TEST_F(GptTrain, StopsWhenTheNumbersBreak_NU_02) {
    for (const char* dtype : {"f32", "bf16", "f16"}) {
        const std::string name = "broken_" + std::string(dtype);
        const fs::path path =
                config(name, "", "[checkpoint]\ninterval = 2\n[precision]\ndtype = \"" + std::string(dtype) + "\"\n");
        train_well(path, {"--run.train_steps=3"});
        const auto sound = support::contents_of(checkpoint(name, 3));
        const Outcome outcome = train(path, {"--run.train_steps=500", "--optimizer.lr=1e30", "--optimizer.min_lr=1e30",
                                             "--checkpoint.interval=0"});
        if (std::string(dtype) == "f16") {
            support::expect_refused(outcome, "gpt_train", {"loss scale", "floor", "optimizer.lr"}, 1);
            // Every step without a number was counted, and none of them was called a step that went well.
            const fs::path metrics = run_directory(name) / "metrics.jsonl";
            EXPECT_GT(std::stoi(support::field_of(metrics, "nan_steps").back()), 5);
            EXPECT_GT(std::stoi(support::field_of(metrics, "skipped_steps").back()), 5);
            EXPECT_EQ(outcome.out.find("-nan"), std::string::npos);
            EXPECT_EQ(outcome.out.find("-NAN"), std::string::npos);
        } else {
            support::expect_refused(outcome, "gpt_train",
                                    {"step 5: loss ", "not finite", "the last checkpoint, of step 3, is intact"}, 1);
        }
        EXPECT_TRUE(support::contents_of(checkpoint(name, 3)) == sound);
        // The very same run with a sane rate goes on as if nothing had happened.
        const Outcome mended = train_well(path);
        EXPECT_NE(mended.err.find("resumed after step 3"), std::string::npos) << mended.err;
        train_well(config(name + "_unbroken", "", "[precision]\ndtype = \"" + std::string(dtype) + "\"\n"));
        expect_same_run(name + "_unbroken", name, 12);
    }
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

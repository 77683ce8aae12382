// Each mistake: one clear line on stderr, exit code 2, nothing lost.
#include "apps/program_support.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using support::last_line;
using support::Outcome;
using support::read_file;

class BadInput : public support::ProgramTest {
protected:
    void expect_refused(const Outcome& outcome, const std::string& program, const std::vector<std::string>& parts,
                        int code = 2) const {
        EXPECT_EQ(outcome.exit_code, code) << outcome.err;
        const std::string line = last_line(outcome.err);
        EXPECT_EQ(line.rfind(program + ": error: ", 0), 0U) << outcome.err;
        EXPECT_EQ(outcome.err.find(": error: "), outcome.err.rfind(": error: ")) << outcome.err;
        for (const std::string& part : parts)
            EXPECT_NE(line.find(part), std::string::npos) << "no '" << part << "' in: " << line;
    }
    void expect_train_refuses(const std::vector<std::string>& overrides, const std::vector<std::string>& parts) const {
        const fs::path path = config("refused");
        expect_refused(train(path, overrides), "gpt_train", parts);
        EXPECT_FALSE(fs::exists(run_directory("refused")));
    }
};

TEST_F(BadInput, ConfigKeys_CF_01) {
    expect_train_refuses({"--optimizer.learning_rate=1e-3"}, {"optimizer.learning_rate", "optimizer.lr"});
    expect_train_refuses({"--model.num_layer=3"}, {"model.num_layer", "model.num_layers"});
    expect_train_refuses({"--model.num_layers=two"}, {"model.num_layers"});
    expect_train_refuses({"--model.num_layers=2.5"}, {"model.num_layers"});
    expect_train_refuses({"--optimizer.lr=-1"}, {"optimizer.lr"});
    expect_train_refuses({"--model.hidden_size=37"}, {"37", "3", "num_attention_heads"});
    expect_train_refuses({"--batch.micro_batch_size=8", "--batch.global_batch_size=6"}, {"8", "6"});
    expect_train_refuses({"--parallel.tensor=2"}, {"parallel.tensor", "2"});
    expect_train_refuses({"--zero.stage=3"}, {"zero.stage", "3"});
    const fs::path missing = folder / "missing.toml";
    support::write_file(missing, "[run]\ntrain_steps = 3\n");
    expect_refused(train(missing), "gpt_train", {"model.num_layers", "optimizer.lr", "data.train"});
    support::write_file(missing, "[run]\ntrain_steps = \n");
    expect_refused(train(missing), "gpt_train", {"missing.toml:2"});
    expect_refused(train(folder / "absent.toml"), "gpt_train", {"absent.toml"});
    expect_refused(support::run_program("gpt_train", {}), "gpt_train", {"no config"});
    expect_refused(support::run_program("gpt_train", {missing.string(), "--nonsense"}), "gpt_train", {"--nonsense"});
}

TEST_F(BadInput, Vocabulary_CF_07_DA_06) {
    expect_train_refuses({"--model.vocab_size=299"}, {"299", "300", "tokenizer"});
    // Without a tokenizer nobody warns early: the shards name a larger vocabulary.
    std::string text = read_file(config("untold"));
    text.erase(text.find("tokenizer = "), text.find("[batch]") - text.find("tokenizer = "));
    support::write_file(folder / "untold.toml", text);
    expect_refused(train(folder / "untold.toml", {"--model.vocab_size=200"}), "gpt_train",
                   {"200", "300", "text_train_00000.h5"});
    expect_train_refuses({"--data.tokenizer=" + (folder / "none.model").string()}, {"none.model"});
    const Outcome other = support::run_program("gpt_data", {"tokenizer", (folder / "corpus.txt").string(), "--output",
                                                            (folder / "other.model").string(), "--vocab-size", "290"});
    ASSERT_EQ(other.exit_code, 0) << other.err;
    expect_train_refuses({"--data.tokenizer=" + (folder / "other.model").string()}, {"text_train_00000.h5"});
}

TEST_F(BadInput, Shards_DA_10) {
    const std::string good = read_file(folder / "text_train_00000.h5");
    support::write_file(folder / "bad/cut.h5", good.substr(0, good.size() / 2));
    support::write_file(folder / "bad/empty.h5", "");
    support::write_file(folder / "bad/plain.h5", "This is no HDF5 file.\n");
    for (const char* name : {"cut.h5", "empty.h5", "plain.h5", "absent.h5"}) {
        expect_train_refuses({"--data.train=" + (folder / "bad" / name).string()}, {name});
    }
    // All of them in one message.
    expect_train_refuses({"--data.train=" + (folder / "bad/*.h5").string()}, {"cut.h5", "empty.h5", "plain.h5"});
    expect_train_refuses({"--model.seq_length=100000"}, {"100001", "text_train"});
}

TEST_F(BadInput, Checkpoints_CK_12_CK_13) {
    const fs::path path = config("shapes");
    ASSERT_EQ(train(path, {"--run.train_steps=2"}).exit_code, 0);
    expect_refused(train(path, {"--model.hidden_size=48"}), "gpt_train", {"model/embedding.word.weight", "36", "48"});
    expect_refused(train(path, {"--model.num_layers=3"}), "gpt_train", {"layers.2"});
    expect_refused(train(path, {"--model.tie_embeddings=false"}), "gpt_train", {"head.weight"});
    expect_refused(train(path, {"--checkpoint.resume=" + (folder / "nowhere").string()}), "gpt_train", {"nowhere"});
    expect_refused(train(path, {"--checkpoint.resume=9"}), "gpt_train", {"9", "2"});
    // What was there is still there.
    EXPECT_EQ(train(path, {"--run.train_steps=4"}).exit_code, 0);
}

TEST_F(BadInput, ARunDirectoryThatCannotBe) {
    support::write_file(folder / "a_file", "x");
    const Outcome outcome = train(config("nowhere"), {"--run.directory=" + (folder / "a_file/run").string()});
    expect_refused(outcome, "gpt_train", {"a_file"}, 1);
}

TEST_F(BadInput, Generation_GE_01_GE_05) {
    ASSERT_EQ(train(config("generator"), {"--run.train_steps=2"}).exit_code, 0);
    const std::string run = run_directory("generator").string();
    auto generate = [&](std::vector<std::string> arguments) {
        arguments.insert(arguments.begin(), run);
        const Outcome outcome = support::run_program("gpt_generate", arguments);
        EXPECT_EQ(outcome.out, "");
        return outcome;
    };
    expect_refused(generate({"--prompt", std::string(400, 'x')}), "gpt_generate", {"19", "context"});
    expect_refused(generate({"--temperature", "-1"}), "gpt_generate", {"temperature"});
    expect_refused(generate({"--temperature", "nan"}), "gpt_generate", {"temperature"});
    expect_refused(generate({"--top-k", "-1"}), "gpt_generate", {"top-k"});
    expect_refused(generate({"--top-p", "0"}), "gpt_generate", {"top-p"});
    expect_refused(generate({"--top-p", "1.5"}), "gpt_generate", {"top-p"});
    expect_refused(generate({"--tokenizer", (folder / "corpus.txt").string()}), "gpt_generate", {"corpus.txt"});
    expect_refused(support::run_program("gpt_generate", {(folder / "nothing").string()}), "gpt_generate", {"nothing"});
}

TEST_F(BadInput, Text_TX) {
    const std::string tokenizer = (folder / "tokenizer.model").string();
    support::write_file(folder / "bad.jsonl", "{\"text\": \"fine\"}\n{\"text\": broken\n");
    expect_refused(support::run_program("gpt_data", {"tokenize", (folder / "bad.jsonl").string(), "--tokenizer",
                                                     tokenizer, "--output", (folder / "x").string()}),
                   "gpt_data", {"bad.jsonl", "2"});
    support::write_file(folder / "bytes.txt", "fine \xff text\n\nmore\n");
    expect_refused(support::run_program("gpt_data", {"tokenize", (folder / "bytes.txt").string(), "--tokenizer",
                                                     tokenizer, "--output", (folder / "y").string(), "--strict"}),
                   "gpt_data", {"bytes.txt", "5"});
    const Outcome replaced =
            support::run_program("gpt_data", {"tokenize", (folder / "bytes.txt").string(), "--tokenizer", tokenizer,
                                              "--output", (folder / "z").string()});
    EXPECT_EQ(replaced.exit_code, 0) << replaced.err;
    EXPECT_NE(replaced.out.find("1 replaced"), std::string::npos) << replaced.out;
    EXPECT_FALSE(fs::exists(folder / "x_train_00000.h5"));
    EXPECT_FALSE(fs::exists(folder / "y_train_00000.h5"));
}

}  // namespace
}  // namespace tessera

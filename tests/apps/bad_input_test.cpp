// Each mistake: one clear line on stderr, exit code 2, nothing lost.
#include <algorithm>

#include "apps/program_support.h"
#include "data/data_support.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using support::expect_refused;
using support::Outcome;
using support::read_file;

class BadInput : public support::ProgramTest {
protected:
    void expect_train_refuses(const std::vector<std::string>& overrides, const std::vector<std::string>& parts) const {
        const fs::path path = config("refused");
        const auto before = support::contents_of(folder);
        expect_refused(train(path, overrides), "gpt_train", parts);
        EXPECT_TRUE(before == support::contents_of(folder)) << "something was written";
        EXPECT_FALSE(fs::exists(run_directory("refused")));
    }
    /// The usual config with a line put in after the first that contains `where`.
    void expect_file_refused(const std::string& where, const std::string& line,
                             const std::vector<std::string>& parts) const {
        std::string text = read_file(config("edited"));
        const std::size_t end = text.find('\n', text.find(where));
        const std::string number = std::to_string(1 + std::count(text.begin(), text.begin() + end, '\n') + 1);
        text.insert(end + 1, line + "\n");
        support::write_file(folder / "edited.toml", text);
        std::vector<std::string> all = parts;
        all.push_back("edited.toml:" + number);
        expect_refused(train(folder / "edited.toml"), "gpt_train", all);
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
    for (const char* value : {"true", "nan", "\"1e-4\"", "fast", "[1e-4]", "", "inf"}) {
        expect_train_refuses({"--optimizer.lr=" + std::string(value)}, {"optimizer.lr"});
    }
    expect_train_refuses({"--run.seed=true"}, {"run.seed"});
    expect_train_refuses({"--optimizer.betas=[0.9]"}, {"optimizer.betas"});
    expect_train_refuses({"--optimizer.betas=[0.9, 1.0]"}, {"optimizer.betas"});
    expect_train_refuses({"--model.num-layers=2"}, {"model.num-layers", "model.num_layers"});
    expect_train_refuses({"--model.lr=1"}, {"model.lr", "optimizer.lr"});
    expect_train_refuses({"--modle.num_layers=2"}, {"modle", "model"});
    expect_train_refuses({"--model.family=lama"}, {"model.family", "llama"});
}

TEST_F(BadInput, ConfigFiles_CF_01) {
    expect_file_refused("[optimizer]", "learning_rate = 1e-3", {"learning_rate", "lr"});
    expect_file_refused("[model]", "num_layer = 3", {"num_layer", "num_layers"});
    expect_file_refused("[batch]", "lr = 1e-3", {"batch.lr", "optimizer.lr"});
    expect_file_refused("[run]", "seed = \"one\"", {"seed"});
    expect_file_refused("[run]", "seed = 1.5", {"seed"});
    expect_file_refused("num_layers", "num_layers = 3", {"num_layers"});
    expect_file_refused("[run]", "seed 3", {});
    const fs::path missing = folder / "missing.toml";
    support::write_file(missing, "[run]\ntrain_steps = 3\n");
    expect_refused(train(missing), "gpt_train", {"model.num_layers", "optimizer.lr", "data.train"});
    support::write_file(missing, "[run]\ntrain_steps = \n");
    expect_refused(train(missing), "gpt_train", {"missing.toml:2"});
    support::write_file(missing, "");
    expect_refused(train(missing), "gpt_train", {"model.num_layers"});
    support::write_file(missing, std::string("\x00\xff\xfe binary", 10));
    expect_refused(train(missing), "gpt_train", {"missing.toml:1"});
    expect_refused(train(folder / "absent.toml"), "gpt_train", {"absent.toml"});
    expect_refused(train(folder), "gpt_train", {folder.string()});
    // A byte order mark is no mistake.
    support::write_file(folder / "marked.toml", "\xEF\xBB\xBF" + read_file(config("marked")));
    train_well(folder / "marked.toml", {"--dry-run"});
}

TEST_F(BadInput, Batches_CF_02_CF_08) {
    expect_train_refuses({"--batch.global_batch_size=10", "--batch.micro_batch_size=4"}, {"10", "4", "2, 5"});
    expect_train_refuses({"--batch.micro_batch_size=0"}, {"micro_batch_size", "0"});
    expect_train_refuses({"--batch.global_batch_size=0"}, {"global_batch_size", "0"});
    expect_train_refuses({"--batch.micro_batch_size=-2"}, {"micro_batch_size", "-2"});
    expect_train_refuses({"--model.num_attention_heads=5"}, {"36", "5", "num_attention_heads"});
    expect_train_refuses({"--model.num_kv_heads=2"}, {"3", "2", "num_kv_heads"});
    expect_train_refuses({"--model.family=llama", "--model.num_attention_heads=12"}, {"head_dim 3", "even"});
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

/// The same number of pieces, but other pieces.
TEST_F(BadInput, ATokenizerTheShardsWereNotMadeWith_DA_07) {
    const std::string twin = (folder / "twin.model").string();
    const Outcome made =
            support::run_program("gpt_data", {"tokenizer", (folder / "corpus.txt").string(), "--output", twin,
                                              "--vocab-size", "300", "--model", "unigram", "--soft-limit"});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    expect_train_refuses({"--data.tokenizer=" + twin}, {"text_train_00000.h5", "tokenizer"});
}

TEST_F(BadInput, IdsBeyondTheVocabulary_DA_06) {
    // 60 is the vocabulary; 63 is what it is padded to, less one.
    for (const std::int64_t id : {60, 63, 65535}) {
        std::vector<std::int64_t> tokens = data::test::counting(800, 60);
        tokens[411] = id;
        const std::string shard = (folder / ("foreign_" + std::to_string(id) + ".h5")).string();
        data::test::write_foreign(shard, tokens, {.document_offsets = {0, 400, 800}});
        const std::string name = "ids_" + std::to_string(id);
        std::string text = read_file(config(name));
        text.replace(text.find("train = "), text.find("[batch]") - text.find("train = "), "train = '" + shard + "'\n");
        text.erase(text.find("[evaluation]"));
        support::write_file(folder / (name + ".toml"), text);
        expect_refused(train(folder / (name + ".toml"), {"--model.vocab_size=60"}), "gpt_train",
                       {shard, "document 1", "11", std::to_string(id), "60"});
        EXPECT_TRUE(fs::is_empty(run_directory(name) / "checkpoints"));
    }
}

TEST_F(BadInput, Shards_DA_10) {
    const std::string good = read_file(folder / "text_train_00000.h5");
    support::write_file(folder / "bad/cut.h5", good.substr(0, good.size() / 2));
    support::write_file(folder / "bad/empty.h5", "");
    support::write_file(folder / "bad/plain.h5", "This is no HDF5 file.\n");
    const std::vector<std::int64_t> tokens = data::test::counting(100, 60);
    data::test::write_foreign((folder / "bad/floats.h5").string(), tokens, {.type = "f32"});
    data::test::write_foreign((folder / "bad/nothing.h5").string(), {});
    data::test::write_foreign((folder / "bad/other_name.h5").string(), tokens, {.dataset = "ids"});
    for (const char* name :
         {"cut.h5", "empty.h5", "plain.h5", "absent.h5", "floats.h5", "nothing.h5", "other_name.h5", "no_such_*.h5"}) {
        expect_train_refuses({"--data.train=" + (folder / "bad" / name).string()}, {name});
        expect_train_refuses({"--data.validation=" + (folder / "bad" / name).string()}, {name});
    }
    expect_train_refuses({"--data.train=" + folder.string()}, {folder.string()});
    // All of them in one message.
    expect_train_refuses({"--data.train=" + (folder / "bad/*.h5").string()},
                         {"cut.h5", "empty.h5", "plain.h5", "floats.h5", "nothing.h5", "other_name.h5"});
    expect_train_refuses({"--model.seq_length=100000"}, {"100001", "text_train"});
}

TEST_F(BadInput, ACorpusShorterThanASequence_DA_17) {
    for (const std::int64_t count : {1, 18, 19, 20}) {
        const std::string name = "short_" + std::to_string(count);
        const std::string shard = (folder / (name + ".h5")).string();
        data::test::write_foreign(shard, data::test::counting(count, 60));
        std::string text = read_file(config(name));
        text.replace(text.find("train = "), text.find("[batch]") - text.find("train = "), "train = '" + shard + "'\n");
        text.erase(text.find("[evaluation]"));
        support::write_file(folder / (name + ".toml"), text);
        const Outcome outcome = train(folder / (name + ".toml"), {"--model.vocab_size=60"});
        if (count < 20) {
            expect_refused(outcome, "gpt_train", {std::to_string(count), "20", shard});
        } else {
            EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
            EXPECT_NE(outcome.err.find(" 1 in one pass"), std::string::npos) << outcome.err;
        }
    }
}

TEST_F(BadInput, Checkpoints_CK_12_CK_13) {
    const fs::path path = config("shapes");
    train_well(path, {"--run.train_steps=2"});
    const auto before = support::contents_of(run_directory("shapes"));
    auto refuse = [&](const std::string& override_text, const std::vector<std::string>& parts) {
        expect_refused(train(path, {override_text}), "gpt_train", parts);
        EXPECT_TRUE(before == support::contents_of(run_directory("shapes"))) << override_text;
    };
    refuse("--model.hidden_size=48", {"model/embedding.word.weight", "36", "48"});
    refuse("--model.num_layers=3", {"layers.2"});
    refuse("--model.num_layers=1", {"layers.1"});
    refuse("--model.vocab_size=320", {"model/embedding.word.weight", "300", "320"});
    refuse("--model.seq_length=20", {"19", "20"});
    refuse("--model.tie_embeddings=false", {"head.weight"});
    refuse("--checkpoint.resume=" + (folder / "nowhere").string(), {"nowhere"});
    refuse("--checkpoint.resume=" + (folder / "corpus.txt").string(), {"corpus.txt"});
    refuse("--checkpoint.resume=" + (folder / "runs").string(), {"runs"});
    refuse("--checkpoint.resume=9", {"9", "2"});
    // What was there is still there.
    train_well(path, {"--run.train_steps=4"});
}

TEST_F(BadInput, ARunDirectoryThatCannotBe) {
    support::write_file(folder / "a_file", "x");
    expect_refused(train(config("nowhere"), {"--run.directory=" + (folder / "a_file/run").string()}), "gpt_train",
                   {"a_file"}, 1);
    expect_refused(train(config("nowhere"), {"--run.directory=" + (folder / "a_file").string()}), "gpt_train",
                   {"a_file"}, 1);
    expect_refused(train(config("nowhere"), {"--checkpoint.directory=" + (folder / "a_file/c").string()}), "gpt_train",
                   {"a_file/c"}, 1);
    EXPECT_EQ(read_file(folder / "a_file"), "x");
    fs::create_directories(run_directory("blocked") / "config.toml");
    expect_refused(train(config("blocked")), "gpt_train", {"config.toml"}, 1);
    // A log that is not one: the run stops rather than loses it.
    train_well(config("scribbled"), {"--run.train_steps=2"});
    support::write_file(run_directory("scribbled") / "metrics.jsonl", "notes of a user\n");
    expect_refused(train(config("scribbled")), "gpt_train", {"metrics.jsonl:1"});
    EXPECT_EQ(read_file(run_directory("scribbled") / "metrics.jsonl"), "notes of a user\n");
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
    expect_refused(generate({"--max-tokens", "-1"}), "gpt_generate", {"--max-tokens"});
    expect_refused(generate({"--temperature", "warm"}), "gpt_generate", {"--temperature"});
    expect_refused(generate({"--prompt-file", "/no/such/prompt"}), "gpt_generate", {"/no/such/prompt"});
    expect_refused(generate({"--tokenizer", (folder / "corpus.txt").string()}), "gpt_generate", {"corpus.txt"});
    expect_refused(generate({"--tokenizer", "/no/such.model"}), "gpt_generate", {"/no/such.model"});
    const Outcome larger =
            support::run_program("gpt_data", {"tokenizer", (folder / "corpus.txt").string(), "--output",
                                              (folder / "larger.model").string(), "--vocab-size", "310"});
    ASSERT_EQ(larger.exit_code, 0) << larger.err;
    expect_refused(generate({"--tokenizer", (folder / "larger.model").string()}), "gpt_generate", {"310", "300"});
    expect_refused(support::run_program("gpt_generate", {(folder / "nothing").string()}), "gpt_generate", {"nothing"});
    expect_refused(support::run_program("gpt_generate", {folder.string()}), "gpt_generate", {folder.string()});
    // A damaged checkpoint is refused by name.
    const fs::path weights = checkpoint("generator", 2) / "rank_00000.safetensors";
    fs::resize_file(weights, fs::file_size(weights) - 7);
    expect_refused(generate({}), "gpt_generate", {"rank_00000.safetensors"});
    expect_refused(support::run_program("gpt_generate", {checkpoint("generator", 2).string()}), "gpt_generate",
                   {"rank_00000.safetensors"});
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

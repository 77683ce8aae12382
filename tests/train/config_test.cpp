#include "train/config.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>

#include "core/error.h"
#include "temporary_folder.h"
#include "train/config_fields.h"
#include "train/config_keys.h"

namespace tessera::train {
namespace {

using core::ConfigError;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kSmall = R"([run]
train_steps = 100

[model]
num_layers = 2
hidden_size = 32
num_attention_heads = 4
seq_length = 16

[data]
train = "train.h5"

[batch]
global_batch_size = 4

[optimizer]
lr = 1e-3
)";

/// kSmall with one line replaced or, if `from` is empty, `to` appended.
std::string changed(const std::string& from, const std::string& to) {
    std::string text = kSmall;
    if (from.empty()) return text + to;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
}

Config parse(const std::string& text, const std::vector<std::string>& overrides = {}) {
    return parse_config(text, "/cfg/small.toml", overrides);
}

std::string refusal(const std::string& text, const std::vector<std::string>& overrides = {}) {
    const std::string message = message_of<ConfigError>([&] { parse(text, overrides); });
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message;
}

TEST(Config, SmallestFileGetsEveryDefault) {
    const Config config = parse(kSmall);
    EXPECT_EQ(config.run.name, "small");
    EXPECT_EQ(config.run.directory, "/cfg/runs/small");
    EXPECT_EQ(config.checkpoint.directory, "/cfg/runs/small/checkpoints");
    EXPECT_EQ(config.model.num_kv_heads, 4);
    EXPECT_EQ(config.model.ffn_hidden_size, 128);
    EXPECT_TRUE(config.model.tie_embeddings);
    EXPECT_EQ(config.model.vocab_size, 0);
    EXPECT_EQ(config.batch.micro_batch_size, 4);
    EXPECT_EQ(config.schedule.decay_steps, 100);
    ASSERT_EQ(config.data.train.size(), 1U);
    EXPECT_EQ(config.data.train[0].path, "/cfg/train.h5");
    EXPECT_EQ(config.origins.at("model.hidden_size"), "/cfg/small.toml:6");
}

TEST(Config, LlamaDefaults) {
    const Config config = parse(changed("num_layers = 2", "num_layers = 2\nfamily = \"llama\""));
    EXPECT_EQ(config.model.ffn_hidden_size, 128);  // 8/3 of 32 is 85.3
    EXPECT_FALSE(config.model.tie_embeddings);
    EXPECT_TRUE(parse(changed("num_layers = 2", "num_layers = 2\nfamily = \"llama\"\ntie_embeddings = true"))
                        .model.tie_embeddings);
}

TEST(Config, TokensAreRoundedUpToSteps) {
    EXPECT_EQ(total_steps(parse(changed("train_steps = 100", "train_tokens = 64"))), 1);
    EXPECT_EQ(total_steps(parse(changed("train_steps = 100", "train_tokens = 65"))), 2);
    EXPECT_EQ(total_steps(parse(changed("train_steps = 100", "train_tokens = 1"))), 1);
    EXPECT_EQ(total_steps(parse(kSmall)), 100);
}

TEST(Config, CF01_UnknownKeysNameTheNearest) {
    EXPECT_THAT(refusal(changed("lr = 1e-3", "lr = 1e-3\nlearning_rte = 1e-3")),
                AllOf(HasSubstr("/cfg/small.toml:18: unknown key optimizer.learning_rte"),
                      HasSubstr("did you mean optimizer.lr?")));
    EXPECT_THAT(refusal(changed("num_layers = 2", "num-layers = 2")),
                AllOf(HasSubstr("/cfg/small.toml:5: unknown key model.num-layers"),
                      HasSubstr("did you mean model.num_layers?"), HasSubstr("missing model.num_layers")));
    EXPECT_THAT(refusal(changed("num_layers = 2", "num_layers = 2\nlr = 1e-3")),
                AllOf(HasSubstr("/cfg/small.toml:6: unknown key model.lr"), HasSubstr("did you mean optimizer.lr?")));
    EXPECT_THAT(refusal(changed("[model]", "[modell]")),
                AllOf(HasSubstr("unknown section [modell]"), HasSubstr("did you mean [model]?")));
    EXPECT_THAT(
            refusal("learning_rate = 1\n" + std::string(kSmall)),
            AllOf(HasSubstr("/cfg/small.toml:1: unknown key learning_rate"), HasSubstr("did you mean optimizer.lr?")));
    EXPECT_THAT(
            refusal(changed("num_layers = 2", "num_layers = 2\nfrobnicate_everything = 1")),
            AllOf(HasSubstr("unknown key model.frobnicate_everything"), HasSubstr("[model] has family, num_layers")));
    EXPECT_THAT(refusal("run = 3\n"), HasSubstr("run is a section; write [run]"));
}

TEST(Config, CF01_WrongTypesAreRefused) {
    EXPECT_THAT(refusal(changed("num_layers = 2", "num_layers = \"two\"")),
                HasSubstr("/cfg/small.toml:5: model.num_layers wants a whole number, not the text \"two\""));
    EXPECT_THAT(refusal(changed("lr = 1e-3", "lr = \"1e-4\"")),
                HasSubstr("optimizer.lr wants a number, not the text \"1e-4\"; remove the quotes"));
    EXPECT_THAT(refusal(changed("num_layers = 2", "num_layers = true")),
                HasSubstr("model.num_layers wants a whole number, not true"));
    EXPECT_THAT(refusal(changed("num_layers = 2", "num_layers = 3.5")),
                HasSubstr("model.num_layers wants a whole number, not 3.5"));
    EXPECT_THAT(refusal(changed("train_steps = 100", "train_tokens = 1e9")), HasSubstr("write 1000000000"));
    EXPECT_THAT(refusal(changed("num_layers = 2", "num_layers = [2]")), HasSubstr("not a list"));
    EXPECT_THAT(refusal(changed("num_layers = 2", "num_layers = 2\ntie_embeddings = 1")),
                HasSubstr("model.tie_embeddings wants true or false, not 1"));
    EXPECT_THAT(refusal(changed("train_steps = 100", "train_steps = 100\nname = 5")),
                HasSubstr("run.name wants text, not 5"));
    EXPECT_THAT(refusal(changed("lr = 1e-3", "lr = 1e-3\nbetas = 0.9")),
                HasSubstr("optimizer.betas wants a list of two numbers"));
    EXPECT_THAT(refusal(changed("lr = 1e-3", "lr = 1e-3\nbetas = [0.9]")), HasSubstr("two numbers, not 1"));
    EXPECT_THAT(refusal(changed("train = \"train.h5\"", "train = 3")), HasSubstr("data.train wants paths or"));
    const std::string batch = "global_batch_size = 4";
    EXPECT_THAT(refusal(changed(batch, batch + "\nrampup = 2")),
                HasSubstr("batch.rampup wants [start, increment, samples], not 2"));
    EXPECT_THAT(refusal(changed(batch, batch + "\nrampup = [2, 2]")), HasSubstr("samples], not 2 values"));
    EXPECT_THAT(refusal(changed(batch, batch + "\nrampup = [2, 0.5, 8]")), HasSubstr("a whole number, not 0.5"));
    EXPECT_THAT(refusal(changed(batch, batch + "\nrampup = [2, 0, 8]")),
                HasSubstr("batch.rampup = 0 is out of range: at least 1"));
}

TEST(Config, CF01_ValuesOutOfRangeAreRefused) {
    EXPECT_THAT(refusal(changed("lr = 1e-3", "lr = nan")), HasSubstr("optimizer.lr = nan is out of range"));
    EXPECT_THAT(refusal(changed("lr = 1e-3", "lr = inf")), HasSubstr("optimizer.lr = inf is out of range"));
    EXPECT_THAT(refusal(changed("lr = 1e-3", "lr = -1e-3")),
                HasSubstr("optimizer.lr = -0.001 is out of range: at least 0"));
    EXPECT_THAT(refusal(changed("num_layers = 2", "num_layers = -2")),
                HasSubstr("model.num_layers = -2 is out of range: at least 1"));
    EXPECT_THAT(refusal(changed("num_layers = 2", "num_layers = 0")), HasSubstr("out of range: at least 1"));
    EXPECT_THAT(refusal(changed("num_layers = 2", "num_layers = 4294967297")), HasSubstr("at most 2147483647"));
    EXPECT_THAT(refusal(changed("num_layers = 2", "num_layers = 2\nhidden_dropout = 1.0")),
                HasSubstr("model.hidden_dropout = 1 is out of range: between 0 and 1 (1 excluded)"));
    EXPECT_THAT(refusal(changed("lr = 1e-3", "lr = 1e-3\nbetas = [0.9, 1.0]")),
                HasSubstr("optimizer.betas = 1 is out of range"));
    EXPECT_THAT(refusal(changed("train = \"train.h5\"", "train = [{path = \"a\", weight = -1.0}]")),
                HasSubstr("data.weight = -1 is out of range: more than 0"));
    EXPECT_THAT(refusal(changed("train = \"train.h5\"", "train = []")), HasSubstr("data.train is an empty list"));
    EXPECT_THAT(refusal(changed("train = \"train.h5\"", "train = [{file = \"a\"}]")), HasSubstr("unknown key 'file'"));
    EXPECT_THAT(refusal(changed("train = \"train.h5\"", "train = [{weight = 2.0}]")), HasSubstr("has no path"));
}

TEST(Config, CF01_DuplicatesAndSyntaxErrorsNameThePlace) {
    EXPECT_THAT(refusal(changed("num_layers = 2", "num_layers = 2\nnum_layers = 3")), HasSubstr("/cfg/small.toml:6:"));
    EXPECT_THAT(refusal(changed("", "[model]\n")), HasSubstr("/cfg/small.toml:18:"));
    EXPECT_THAT(refusal("[run\n"), HasSubstr("/cfg/small.toml:1:"));
    EXPECT_THAT(refusal("[run]\nname = \"a\nb\"\n"), HasSubstr("/cfg/small.toml:2:"));
}

TEST(Config, ALetterOutsideOfAStringIsAnErrorWithItsPlace) {
    for (const char* letter : {"é", "Ї", "ҙ", "ß"}) {
        EXPECT_THAT(refusal(fmt::format("[mod{}le]\nnum_layers = 2\n", letter)),
                    AllOf(HasSubstr("/cfg/small.toml:1:"), HasSubstr(letter)));
        EXPECT_THAT(refusal(fmt::format("[model]\nnum_layers = 2\n{} = 3\n", letter)),
                    AllOf(HasSubstr("/cfg/small.toml:3:"), HasSubstr(letter)));
    }
}

TEST(Config, EveryProblemIsInOneMessage) {
    EXPECT_THAT(refusal("[model]\nnum_layers = true\nhiden_size = 3\n[optimizer]\nname = \"lamb\"\n"),
                AllOf(HasSubstr("model.num_layers wants"), HasSubstr("did you mean model.hidden_size?"),
                      HasSubstr("optimizer.name = \"lamb\" is not available in this version; use \"adamw\""),
                      HasSubstr("missing model.hidden_size, model.num_attention_heads, model.seq_length, data.train, "
                                "batch.global_batch_size, optimizer.lr, run.train_steps (or run.train_tokens)")));
}

TEST(Config, LaterFeaturesAreRefusedByName) {
    const auto with = [](const std::string& text) { return refusal(changed("", text)); };
    EXPECT_THAT(with("[parallel]\ntensor = 2\n"),
                HasSubstr("/cfg/small.toml:19: parallel.tensor = 2 is not available in this version; use 1"));
    EXPECT_THAT(with("[parallel]\nsequence_parallel = true\n"), HasSubstr("sequence_parallel = true is not available"));
    EXPECT_THAT(with("[parallel]\nschedule = \"interleaved\"\n"), HasSubstr("\"interleaved\" is not available"));
    EXPECT_THAT(with("[zero]\nstage = 3\n"), HasSubstr("zero.stage = 3 is not available in this version; use 0"));
    EXPECT_THAT(with("[zero]\nbucket_bytes = 3\n"),
                HasSubstr("zero.bucket_bytes is not available in this version; remove it"));
    EXPECT_THAT(with("[recompute]\ngranularity = \"full\"\n"),
                HasSubstr("recompute.granularity = \"full\" is not available"));
    EXPECT_THAT(with("[device]\nbackend = \"cuda\"\n"), HasSubstr("device.backend = \"cuda\" is not available"));
    EXPECT_THAT(with("[precision]\ngrad_dtype = \"bf16\"\n"),
                HasSubstr("precision.grad_dtype = \"bf16\" is not available"));
    EXPECT_THAT(with("[schedule]\nstyle = \"cosin\"\n"), HasSubstr("did you mean \"cosine\"?"));
    EXPECT_EQ(with("[parallel]\ntensor = 1\nsequence_parallel = false\n[zero]\nstage = 0\n"), "");
}

TEST(Config, OverridesReplaceTheFile) {
    const Config config = parse(kSmall, {"--model.num_layers=3", "run.name=2024-01-01", "--optimizer.betas=[0.8, 0.9]",
                                         "--data.train=[\"a.h5\", {path = \"b.h5\", weight = 2}]",
                                         "--checkpoint.resume=120", "--model.num_layers=5", "--run.seed=7"});
    EXPECT_EQ(config.model.num_layers, 5);
    EXPECT_EQ(config.run.name, "2024-01-01");
    EXPECT_THAT(config.optimizer.betas, ElementsAre(0.8, 0.9));
    ASSERT_EQ(config.data.train.size(), 2U);
    EXPECT_EQ(config.data.train[0].path, (std::filesystem::current_path() / "a.h5").string());
    EXPECT_EQ(config.data.train[1].weight, 2.0);
    EXPECT_EQ(config.checkpoint.resume, "120");
    EXPECT_EQ(config.origins.at("model.num_layers"), "the command line");
    EXPECT_EQ(total_steps(parse(changed("train_steps = 100", "train_tokens = 640"), {"--run.train_steps=3"})), 3);
}

TEST(Config, LengthsOfTheScheduleInEitherUnit) {
    const std::string text = changed("", "[schedule]\nwarmup_tokens = 640\n");
    EXPECT_EQ(parse(text).schedule.decay_tokens, 100 * 4 * 16);
    EXPECT_EQ(parse(text).schedule.decay_steps, 0);
    const Config steps = parse(text, {"--schedule.warmup_steps=3"});
    EXPECT_FALSE(steps.schedule.in_tokens());
    EXPECT_EQ(steps.schedule.decay_steps, 100);
    const Config tokens = parse(changed("", "[schedule]\nwarmup_steps = 3\ndecay_steps = 50\n"),
                                {"--schedule.warmup_tokens=64", "--schedule.decay_tokens=640"});
    EXPECT_EQ(tokens.schedule.decay_tokens, 640);
    EXPECT_EQ(tokens.schedule.warmup_steps, 0);
    EXPECT_THAT(refusal(text + "warmup_steps = 3\n"),
                AllOf(HasSubstr("warmup_steps 3 (schedule.warmup_steps in /cfg/small.toml:20)"),
                      HasSubstr("warmup_tokens 640 (schedule.warmup_tokens in /cfg/small.toml:19)")));
}

TEST(Config, OverrideErrorsNameTheOverride) {
    EXPECT_THAT(refusal(kSmall, {"--model.num_layers=abc"}),
                HasSubstr("--model.num_layers: model.num_layers wants a whole number, not the text \"abc\""));
    EXPECT_THAT(refusal(kSmall, {"--model.layers=3"}), HasSubstr("did you mean model.num_layers?"));
    EXPECT_THAT(refusal(kSmall, {"--model.num_layers"}), HasSubstr("write --model.num_layers=VALUE"));
    EXPECT_THAT(refusal(kSmall, {"--num_layers=3"}), HasSubstr("'--num_layers=3' is not an override"));
    EXPECT_THAT(refusal(kSmall, {"--data.train=[a, b"}), HasSubstr("--data.train=[a, b: "));
    EXPECT_THAT(refusal(kSmall, {"--run.train_steps="}), HasSubstr("run.train_steps wants a whole number"));
    EXPECT_THAT(refusal(kSmall, {"--run.train_steps=1\nx = 2"}), HasSubstr("run.train_steps wants a whole number"));
}

TEST(Config, BytesThatAreNotUtf8AreRefusedWithTheirKey) {
    EXPECT_THAT(refusal(kSmall, {"--run.name=a\xdf\xdf b"}),
                HasSubstr("run.name = \"a\uFFFD\uFFFD b\" is not UTF-8 text"));
    EXPECT_THAT(refusal(kSmall, {"--data.train=[\"x.h5\", \"caf\xe9.h5\"]"}), HasSubstr("data.train"));
    EXPECT_EQ(parse(kSmall, {"--run.name=größe"}).run.name, "größe");
}

TEST(Config, TX08_ByteOrderMarkIsSkipped) {
    EXPECT_EQ(to_toml(parse("\xEF\xBB\xBF" + std::string(kSmall))), to_toml(parse(kSmall)));
}

TEST(Config, IN02_PathsFollowTheConfigFile) {
    TemporaryFolder folder;
    const std::string inner = folder.path("mit Blank und é");
    std::filesystem::create_directories(inner);
    write_bytes(inner + "/small.toml", changed("train = \"train.h5\"",
                                               "train = [\"../a/train.h5\", \"/abs/b.h5\", \"~/c.h5\"]\n"
                                               "tokenizer = \"./t.model\""));
    const Config config = load_config(inner + "/small.toml");
    ASSERT_EQ(config.data.train.size(), 3U);
    EXPECT_EQ(config.data.train[0].path, folder.path("a/train.h5"));
    EXPECT_EQ(config.data.train[1].path, "/abs/b.h5");
    EXPECT_EQ(config.data.train[2].path, std::string(std::getenv("HOME")) + "/c.h5");
    EXPECT_EQ(config.data.tokenizer, inner + "/t.model");
    EXPECT_EQ(config.run.directory, inner + "/runs/small");
    EXPECT_THAT(message_of<ConfigError>([&] { load_config(folder.path("absent.toml")); }),
                AllOf(HasSubstr("absent.toml' does not exist"), HasSubstr("working directory")));
    EXPECT_THAT(message_of<ConfigError>([&] { load_config(inner); }), HasSubstr("is a folder"));
}

TEST(Config, WhatIsSavedReadsBackTheSame) {
    for (const std::string extra :
         {"", "[schedule]\nstyle = \"wsd\"\nwarmup_steps = 3\n", "[precision]\ndtype = \"f16\"\nloss_scale = 128\n",
          "[precision]\ndtype = \"f16\"\n", "[schedule]\nstyle = \"constant\"\n", "[schedule]\nwarmup_steps = 1000\n",
          "rampup", "[schedule]\nwarmup_tokens = 640\n", "[schedule]\nstyle = \"wsd\"\ndecay_tokens = 640\n",
          "[schedule]\nstyle = \"constant\"\nwarmup_tokens = 640\n"}) {
        const std::string batch = "global_batch_size = 4";
        const bool ramp = extra == "rampup";
        Config config = parse(ramp ? changed(batch, batch + "\nrampup = [2, 2, 30]") : changed("", extra));
        EXPECT_EQ(config.batch.rampup.samples, ramp ? 30 : 0);
        config.run.name = "quotes \" and \\ and \t tab";
        config.model.norm_eps = 1.0 / 3.0;
        config.data.validation = {{"/v 1.h5", 0.1}, {"/ü.h5", 1.0}};
        const std::string text = to_toml(config);
        const Config again = parse_config(text, "/elsewhere/saved.toml");
        EXPECT_EQ(to_toml(again), text);
        EXPECT_EQ(again.model.norm_eps, config.model.norm_eps);
        EXPECT_EQ(again.run.name, config.run.name);
        EXPECT_EQ(again.run.directory, "/cfg/runs/small");
        EXPECT_EQ(again.data.validation[0].weight, 0.1);
        EXPECT_EQ(again.precision.loss_scale.value, config.precision.loss_scale.value);
    }
}

TEST(Config, KeysOfTheEndReadBackTheSame) {
    const Config plain = parse(kSmall);
    EXPECT_EQ(plain.run.exit_minutes, 0);
    EXPECT_EQ(to_toml(plain).find("exit_minutes"), std::string::npos);
    EXPECT_EQ(to_toml(plain).find("max_non_finite"), std::string::npos);
    const std::string text = to_toml(parse(kSmall, {"--run.exit_minutes=0.25", "--run.non_finite=skip",
                                                    "--run.max_non_finite=3", "--checkpoint.weights=/runs/old"}));
    const Config again = parse_config(text, "/elsewhere/saved.toml");
    EXPECT_EQ(again.run.exit_minutes, 0.25);
    EXPECT_EQ(again.run.non_finite, NonFinitePolicy::skip);
    EXPECT_EQ(again.run.max_non_finite, 3);
    EXPECT_EQ(again.checkpoint.weights, "/runs/old");
    EXPECT_THAT(refusal(kSmall, {"--run.exit_minutes=0"}),
                HasSubstr("run.exit_minutes = 0 is out of range: more than 0"));
    EXPECT_THAT(refusal(kSmall, {"--run.non_finite=ignore"}), HasSubstr("\"stop\" or \"skip\""));
}

TEST(Config, ReferenceListsEveryKeyOnce) {
    const std::string reference = config_reference();
    const Config defaults;
    int keys = 0;
    for_each_field(defaults, [&](const Field& field, const auto&) {
        EXPECT_FALSE(field.doc.empty()) << field.name();
        EXPECT_THAT(reference, HasSubstr("| `" + std::string(field.key) + "` |"));
        ++keys;
    });
    EXPECT_GT(keys, 60);
    EXPECT_THAT(reference,
                AllOf(HasSubstr("**`[model]`**"), HasSubstr("required"), HasSubstr("only 1 in this version")));
}

TEST(Config, EveryKeyIsTakenFromTheCommandLineAndKnownByName) {
    const Config defaults;
    for_each_field(defaults, [&](const Field& field, const auto&) {
        EXPECT_THAT(suggestion_for(field.section, std::string(field.key) + "x"), HasSubstr(field.name()))
                << field.name();
        EXPECT_THAT(refusal(kSmall, {"--" + field.name() + "x=1"}), HasSubstr("unknown key")) << field.name();
    });
}

TEST(EditDistance, CountsInsertionsDeletionsReplacementsAndSwaps) {
    EXPECT_EQ(edit_distance("", ""), 0U);
    EXPECT_EQ(edit_distance("", "abc"), 3U);
    EXPECT_EQ(edit_distance("abc", "abd"), 1U);
    EXPECT_EQ(edit_distance("abc", "bac"), 1U);
    EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
}

}  // namespace
}  // namespace tessera::train

#include "train/validate.h"

#include <gmock/gmock.h>

#include "core/error.h"
#include "temporary_folder.h"

namespace tessera::train {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Config sound() {
    Config config;
    config.run.name = "test";
    config.run.train_steps = 10;
    config.model.num_layers = 2;
    config.model.hidden_size = 32;
    config.model.num_attention_heads = 4;
    config.model.seq_length = 16;
    config.data.train = {{"a.h5", 1.0}};
    config.batch.global_batch_size = 4;
    config.optimizer.lr = 1e-3;
    return config;
}

std::vector<std::string> problems(Config config) {
    resolve_defaults(config);
    return find_contradictions(config);
}

TEST(Validate, ASoundConfigHasNoProblems) {
    EXPECT_THAT(problems(sound()), IsEmpty());
}

TEST(Validate, CF05_HeadsThatDoNotDivideNameThoseThatDo) {
    Config config = sound();
    config.model.hidden_size = 1000;
    config.model.num_attention_heads = 12;
    config.origins["model.num_attention_heads"] = "gpt2.toml:14";
    EXPECT_THAT(problems(config),
                ElementsAre("hidden_size 1000 is not divisible by num_attention_heads 12 (model.num_attention_heads in "
                            "gpt2.toml:14); nearest that divide: 10, 20"));
    config.model.hidden_size = 30;
    config.model.num_attention_heads = 4;
    EXPECT_THAT(problems(config), ElementsAre(HasSubstr("nearest that divide: 3, 5")));
    config.model.hidden_size = 7;
    config.model.num_attention_heads = 8;
    EXPECT_THAT(problems(config), ElementsAre(HasSubstr("nearest that divide: 7")));
}

TEST(Validate, KvHeadsDivideHeads) {
    Config config = sound();
    config.model.num_kv_heads = 3;
    EXPECT_THAT(problems(config), ElementsAre(HasSubstr("num_attention_heads 4 is not divisible by num_kv_heads 3")));
    config.model.num_kv_heads = 2;
    EXPECT_THAT(problems(config), IsEmpty());
}

TEST(Validate, RotaryNeedsEvenHeads) {
    Config config = sound();
    config.model.hidden_size = 12;
    EXPECT_THAT(problems(config), IsEmpty());
    config.model.family = ModelFamily::llama;
    EXPECT_THAT(problems(config), ElementsAre(HasSubstr("head_dim 3 = hidden_size 12 / num_attention_heads 4")));
}

TEST(Validate, CF02_CF08_BatchesMultiplyOut) {
    Config config = sound();
    config.batch.global_batch_size = 10;
    config.batch.micro_batch_size = 4;
    EXPECT_THAT(problems(config), ElementsAre(HasSubstr("global_batch_size 10 is not divisible by micro_batch_size 4 "
                                                        "(batch.micro_batch_size); nearest that divide: 2, 5")));
    config.batch.global_batch_size = 4;
    config.batch.micro_batch_size = 8;
    EXPECT_THAT(problems(config),
                ElementsAre(AllOf(HasSubstr("micro_batch_size 8"), HasSubstr("larger than global_batch_size 4"),
                                  HasSubstr("use at most 4"))));
    config.batch.micro_batch_size = -1;
    EXPECT_THAT(problems(config), ElementsAre(HasSubstr("micro_batch_size = -1 is out of range")));
}

TEST(Validate, ARampFitsItsBatches) {
    Config config = sound();
    config.batch.global_batch_size = 16;
    config.batch.rampup = {.start = 4, .increment = 6, .samples = 100};
    resolve_defaults(config);
    EXPECT_EQ(config.batch.micro_batch_size, 2);
    EXPECT_THAT(problems(config), IsEmpty());
    config.origins["batch.rampup"] = "a.toml:9";
    config.batch.micro_batch_size = 4;
    EXPECT_THAT(problems(config),
                ElementsAre("micro_batch_size 4 (batch.micro_batch_size) does not divide every batch size of rampup 4, "
                            "10, … (batch.rampup in a.toml:9); nearest that divide: 2"));
    config.batch.micro_batch_size = 2;
    config.batch.rampup.increment = 8;
    EXPECT_THAT(problems(config),
                ElementsAre("global_batch_size 16 - start 4 = 12 is not a multiple of the increment 8 of rampup "
                            "(batch.rampup in a.toml:9); nearest that divide: 6, 12"));
    config.batch.rampup.start = 16;
    EXPECT_THAT(problems(config), ElementsAre(HasSubstr("the start 16 of rampup (batch.rampup in a.toml:9) is not "
                                                        "below global_batch_size 16")));
    config.batch.rampup = {.start = 4, .increment = 0, .samples = 100};
    EXPECT_THAT(problems(config), ElementsAre(HasSubstr("increment 0 of rampup")));
}

TEST(Validate, LengthIsGivenOnce) {
    Config config = sound();
    config.run.train_tokens = 1000;
    EXPECT_THAT(problems(config), ElementsAre(HasSubstr("both train_steps 10")));
    config.run.train_tokens = 0;
    config.run.train_steps = 0;
    EXPECT_THAT(problems(config), ElementsAre(HasSubstr("neither run.train_steps nor run.train_tokens")));
}

TEST(Validate, ScheduleFits) {
    Config config = sound();
    config.optimizer.min_lr = 1;
    EXPECT_THAT(problems(config), ElementsAre(HasSubstr("min_lr 1 (optimizer.min_lr) is more than lr 0.001")));
    config = sound();
    config.schedule.warmup_steps = 5;
    config.schedule.decay_steps = 5;
    config.origins["schedule.decay_steps"] = "the command line";
    EXPECT_THAT(problems(config), ElementsAre(HasSubstr("decay_steps 5 (schedule.decay_steps on the command line)")));
}

TEST(Validate, AScheduleIsInOneUnit) {
    Config config = sound();
    config.schedule.warmup_tokens = 64;
    EXPECT_THAT(problems(config), IsEmpty());
    config.schedule.warmup_steps = 2;
    config.origins["schedule.warmup_tokens"] = "a.toml:3";
    EXPECT_THAT(problems(config),
                ElementsAre("both warmup_steps 2 (schedule.warmup_steps) and warmup_tokens 64 (schedule.warmup_tokens "
                            "in a.toml:3) are given; remove one"));
    config = sound();
    config.schedule.decay_steps = 5;
    config.schedule.decay_tokens = 640;
    EXPECT_THAT(problems(config), ElementsAre(AllOf(HasSubstr("both decay_steps 5"), HasSubstr("decay_tokens 640"))));
    config.schedule.decay_steps = 0;
    config.schedule.warmup_steps = 2;
    EXPECT_THAT(problems(config), ElementsAre(AllOf(HasSubstr("warmup_steps 2"), HasSubstr("counts updates"),
                                                    HasSubstr("decay_tokens 640"), HasSubstr("one unit"))));
    config = sound();
    config.schedule.decay_steps = 5;
    config.schedule.warmup_tokens = 64;
    EXPECT_THAT(problems(config), ElementsAre(AllOf(HasSubstr("decay_steps 5"), HasSubstr("warmup_tokens 64"))));
    config.schedule.decay_steps = 0;
    config.schedule.decay_tokens = 64;
    config.origins["schedule.decay_tokens"] = "a.toml:4";
    EXPECT_THAT(problems(config), ElementsAre(HasSubstr("warmup_tokens 64 (schedule.warmup_tokens) leaves nothing of "
                                                        "decay_tokens 64 (schedule.decay_tokens in a.toml:4)")));
}

TEST(Validate, AKeyWithoutEffectIsRefused) {
    Config config = sound();
    config.origins["precision.loss_scale"] = "a.toml:3";
    config.origins["model.rope_theta"] = "a.toml:4";
    config.origins["schedule.decay_fraction"] = "a.toml:5";
    config.origins["evaluation.interval"] = "a.toml:6";
    config.origins["run.max_non_finite"] = "a.toml:7";
    EXPECT_THAT(
            problems(config),
            ElementsAre(
                    HasSubstr("run.max_non_finite in a.toml:7 has no effect"),
                    HasSubstr("model.rope_theta in a.toml:4 has no effect; it is only used with model.family = "
                              "\"llama\""),
                    HasSubstr("schedule.decay_fraction in a.toml:5 has no effect"),
                    HasSubstr("precision.loss_scale in a.toml:3 has no effect"),
                    HasSubstr("evaluation.interval in a.toml:6 has no effect; it is only used with data.validation")));
}

TEST(Validate, ARunIsContinuedOrBegunFromWeights_CK_19) {
    Config config = sound();
    config.checkpoint.weights = "/runs/old";
    for (const char* resume : {"auto", "none"}) {
        config.checkpoint.resume = resume;
        EXPECT_THAT(problems(config), IsEmpty()) << resume;
    }
    config.origins["checkpoint.weights"] = "a.toml:7";
    for (const char* resume : {"120", "/runs/other"}) {
        config.checkpoint.resume = resume;
        EXPECT_THAT(problems(config),
                    ElementsAre(AllOf(HasSubstr("resume \"" + std::string(resume) + "\" (checkpoint.resume)"),
                                      HasSubstr("weights \"/runs/old\" (checkpoint.weights in a.toml:7)"))));
    }
}

TEST(Validate, EveryProblemIsInOneError) {
    Config config = sound();
    config.model.num_attention_heads = 5;
    config.batch.micro_batch_size = 3;
    resolve_defaults(config);
    const std::string message = message_of<core::ConfigError>([&] { validate(config); });
    EXPECT_THAT(message, AllOf(HasSubstr("num_attention_heads 5"), HasSubstr("; global_batch_size 4")));
    EXPECT_EQ(message.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace tessera::train

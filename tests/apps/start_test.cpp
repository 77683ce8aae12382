// How a run begins and when it ends: from a run's folder, from weights alone, after so many minutes.
#include "apps/case_support.h"
#include "data/data_support.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using support::expect_refused;
using support::field_of;
using support::Outcome;
using support::read_file;

class Start : public support::CaseTest {
protected:
    fs::path run_of(const std::string& name, const std::string& more = "") const {
        return tiny(name, shard("sound", data::test::counting(4000, 61)),
                    "[schedule]\nstyle = \"constant\"\nwarmup_steps = 3\n[checkpoint]\ninterval = 0\n" + more);
    }
    std::vector<std::string> column(const std::string& name, const std::string& key) const {
        return field_of(run_directory(name) / "metrics.jsonl", key);
    }
};

TEST_F(Start, ARunsFolderStandsForItsNewestCheckpoint_CK_13) {
    train_well(run_of("source"), {"--checkpoint.interval=5"});
    const Outcome outcome = support::run_program(
            "gpt_train", {run_of("onwards").string(), "--checkpoint.resume=runs/source", "--run.train_steps=14"},
            folder);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_NE(outcome.err.find("resumed after step 12 from "), std::string::npos) << outcome.err;
    train_well(run_of("source"), {"--run.train_steps=14"});
    EXPECT_TRUE(tensors("source", 14) == tensors("onwards", 14));
    fs::create_directories(run_directory("hollow") / "checkpoints");
    expect_refused(train(run_of("other"), {"--checkpoint.resume=" + run_directory("hollow").string()}), "gpt_train",
                   {"hollow", "or of a run"});
}

TEST_F(Start, WeightsAloneBeginARunOfTheirOwn_CK_19) {
    const std::vector<std::string> validation = {
            "--data.validation=" + shard("held_out", data::test::counting(400, 59)), "--evaluation.at_start=true"};
    const auto with = [&](std::vector<std::string> more) {
        more.insert(more.end(), validation.begin(), validation.end());
        return more;
    };
    for (const char* dtype : {"f32", "bf16"}) {
        const std::string precision = std::string("[precision]\ndtype = \"") + dtype + "\"\n";
        const std::string source = std::string("trained_") + dtype;
        train_well(run_of(source, precision), with({}));
        const double saved = numbers(source, "validation_loss").back();
        fs::remove(checkpoint(source, 12) / "rank_00000_optimizer.safetensors");
        const auto before = support::contents_of(run_directory(source));

        // Without the mode nothing begins, and the message says what would.
        const std::string hint = "checkpoint.weights";
        expect_refused(train(run_of(source, precision), {"--run.train_steps=13"}), "gpt_train",
                       {"rank_00000_optimizer.safetensors", hint});
        for (const fs::path& path : {run_directory(source), checkpoint(source, 12)}) {
            expect_refused(train(run_of("unasked", precision), {"--checkpoint.resume=" + path.string()}), "gpt_train",
                           {"rank_00000_optimizer.safetensors", hint});
        }
        // With it the model is the saved one, and everything else is at its beginning.
        const std::string fresh = std::string("fresh_") + dtype;
        train_well(run_of(fresh, precision), with({}));
        for (const fs::path& path : {run_directory(source), checkpoint(source, 12)}) {
            const std::string name = std::string("tuned_") + dtype + "_" + path.filename().string();
            const std::string weights = "--checkpoint.weights=" + path.string();
            const Outcome outcome = train_well(run_of(name, precision), with({weights}));
            EXPECT_NE(outcome.err.find("a fresh start in "), std::string::npos) << outcome.err;
            EXPECT_NE(outcome.err.find(checkpoint(source, 12).string()), std::string::npos) << outcome.err;
            EXPECT_NEAR(numbers(name, "validation_loss").front(), saved, 1e-6);
            EXPECT_GT(std::abs(numbers(fresh, "validation_loss").front() - saved), 1e-2);
            EXPECT_EQ(column(name, "learning_rate"), column(fresh, "learning_rate"));
            EXPECT_EQ(column(name, "consumed_samples"), column(fresh, "consumed_samples"));
            EXPECT_EQ(column(name, "step"), column(fresh, "step"));
            // Once there is a checkpoint of its own, that goes on.
            const Outcome again = train_well(run_of(name, precision), with({weights, "--run.train_steps=14"}));
            EXPECT_NE(again.err.find("resumed after step 12 from " + run_directory(name).string()), std::string::npos)
                    << again.err;
            EXPECT_NE(again.err.find("checkpoint.weights"), std::string::npos) << again.err;
        }
        // At a rate of 0 the weights come out as they went in.
        const std::string still = std::string("still_") + dtype;
        train_well(run_of(still, precision), {"--checkpoint.weights=" + run_directory(source).string(),
                                              "--optimizer.lr=0", "--run.train_steps=2"});
        EXPECT_TRUE(read_file(checkpoint(still, 2) / "rank_00000.safetensors") ==
                    read_file(checkpoint(source, 12) / "rank_00000.safetensors"));
        EXPECT_TRUE(before == support::contents_of(run_directory(source)));
    }
}

TEST_F(Start, WeightsThatDoNotFitAreRefused_CK_12_CK_19) {
    train_well(run_of("small"), {"--run.train_steps=1"});
    const std::string weights = "--checkpoint.weights=" + run_directory("small").string();
    expect_refused(train(run_of("large"), {weights, "--model.hidden_size=48"}), "gpt_train",
                   {"model/embedding.word.weight", "32", "48"});
    expect_refused(train(run_of("large"), {weights, "--checkpoint.resume=5"}), "gpt_train",
                   {"resume \"5\"", "weights", "remove one"});
    expect_refused(train(run_of("large"), {"--checkpoint.weights=" + (folder / "nowhere").string()}), "gpt_train",
                   {"nowhere"});
    // Weights of the run itself, from which it is to begin anew, are not removed under it.
    const Outcome anew = train_well(run_of("small"), {weights, "--checkpoint.resume=none", "--checkpoint.keep=1",
                                                      "--checkpoint.interval=1", "--run.train_steps=4"});
    EXPECT_NE(anew.err.find("a fresh start in "), std::string::npos) << anew.err;
}

TEST_F(Start, EvaluationBeforeTheFirstStep) {
    const std::string held_out = "--data.validation=" + shard("held_out", data::test::counting(400, 59));
    train_well(run_of("early"), {held_out, "--evaluation.at_start=true", "--run.train_steps=2"});
    // Only a run that begins does it.
    train_well(run_of("early"), {held_out, "--evaluation.at_start=true"});
    EXPECT_EQ(numbers("early", "validation_loss").size(), 3U) << "before step 1, after steps 2 and 12";
    train_well(run_of("late"), {held_out});
    EXPECT_EQ(numbers("late", "validation_loss").size(), 1U);
    EXPECT_TRUE(tensors("early", 12) == tensors("late", 12));
    expect_refused(train(run_of("blind"), {"--evaluation.at_start=true"}), "gpt_train",
                   {"evaluation.at_start", "data.validation"});
}

TEST_F(Start, AfterExitMinutesTheStepIsSavedAndTheProgramLeft_CK_17) {
    const fs::path path = run_of("timed");
    const Outcome timed = train(path, {"--run.train_steps=1000000", "--run.exit_minutes=0.01"});
    EXPECT_EQ(timed.exit_code, 75) << timed.err;
    EXPECT_NE(timed.err.find("stopping as run.exit_minutes = 0.01 are over after step "), std::string::npos)
            << timed.err;
    const std::size_t steps = support::step_values(run_directory("timed") / "metrics.jsonl").size();
    EXPECT_EQ(read_file(run_directory("timed") / "checkpoints/latest"),
              checkpoint("timed", static_cast<std::int64_t>(steps)).filename().string() + "\n");
    // A time that is over at once still allows one step, so that restarts come to an end.
    for (std::size_t i = 1; i <= 2; ++i) {
        EXPECT_EQ(train(path, {"--run.train_steps=1000000", "--run.exit_minutes=1e-9"}).exit_code, 75);
        EXPECT_EQ(support::step_values(run_directory("timed") / "metrics.jsonl").size(), steps + i);
    }
    const std::string length = "--run.train_steps=" + std::to_string(steps + 3);
    EXPECT_EQ(train(path, {length, "--run.exit_minutes=1e-9"}).exit_code, 0) << "the last step is the end";
    train_well(run_of("untimed"), {length, "--run.exit_minutes=60"});
    expect_same_run("untimed", "timed", static_cast<std::int64_t>(steps) + 3);
}

}  // namespace
}  // namespace tessera

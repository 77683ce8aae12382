// A run whose data.train changes between two starts reads nothing twice, and says what changed.
#include "apps/program_support.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using support::Outcome;

class BlendChange : public support::ProgramTest {
protected:
    static void SetUpTestSuite() {
        ProgramTest::SetUpTestSuite();
        const Outcome more =
                support::run_program("gpt_data", {"tokenize", (folder / "corpus.txt").string(), "--tokenizer",
                                                  (folder / "tokenizer.model").string(), "--output",
                                                  (folder / "more").string(), "--seed", "9", "--validation", "0.5"});
        ASSERT_EQ(more.exit_code, 0) << more.err;
    }

    /// "--data.train=[...]" of files of the folder with their weights.
    static std::string sources(const std::vector<std::pair<std::string, int>>& files) {
        std::string text = "--data.train=[";
        for (const auto& [file, weight] : files) {
            text += "{path = \"" + (folder / file).string() + "\", weight = " + std::to_string(weight) + "}, ";
        }
        return text + "]";
    }
};

const std::string kA = "text_train_00000.h5";
const std::string kB = "more_train_00000.h5";
const std::string kC = "more_validation_00000.h5";

TEST_F(BlendChange, SourcesGoOnWhereTheyStoodAndTheLogSaysSo) {
    const std::string first = sources({{kA, 1}, {kB, 1}});
    const std::string second = sources({{kC, 1}, {kA, 3}});
    for (const char* name : {"straight", "stopped"}) {
        const fs::path path = config(name);
        const Outcome begun = train_well(path, {first, "--run.train_steps=4"});
        EXPECT_EQ(begun.err.find("blend changed"), std::string::npos) << begun.err;
        const int stop = std::string(name) == "stopped" ? 7 : 12;
        const Outcome changed = train_well(path, {second, "--run.train_steps=" + std::to_string(stop)});
        // 4 steps of 6 samples, half of them of either source.
        EXPECT_NE(changed.err.find("data: the data blend changed after 24 samples:"), std::string::npos) << changed.err;
        EXPECT_NE(changed.err.find(kC + ": new, share 25.000 %"), std::string::npos) << changed.err;
        EXPECT_NE(changed.err.find(kA + ": share 75.000 % (was 50.000 %), goes on after 12 samples"), std::string::npos)
                << changed.err;
        EXPECT_NE(changed.err.find(kB + ": left out after 12 samples"), std::string::npos) << changed.err;
    }
    // A stop inside the changed blend, whose file has moved meanwhile, changes nothing more.
    fs::create_directories(folder / "elsewhere");
    fs::copy(folder / kA, folder / "elsewhere" / kA);
    const Outcome last = train_well(folder / "stopped.toml", {sources({{kC, 10}, {"elsewhere/" + kA, 30}})});
    EXPECT_EQ(last.err.find("blend changed"), std::string::npos) << last.err;
    expect_same_run("straight", "stopped", 12);
    // A run that never changed is another one.
    train_well(config("unchanged"), {first});
    EXPECT_FALSE(tensors("straight", 12) == tensors("unchanged", 12));
}

}  // namespace
}  // namespace tessera

// What TensorBoard itself (scripts/setup --test installs it) reads from a run's event files.
#include <signal.h>

#include <cstdlib>

#include "apps/program_support.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using support::Outcome;

class TensorBoard : public support::ProgramTest {
protected:
    static std::string python() {
        const char* cache = std::getenv("XDG_CACHE_HOME");
        const char* home = std::getenv("HOME");
        const std::string base = cache != nullptr && *cache != '\0' ? cache : std::string(home) + "/.cache";
        return base + "/tessera/tensorboard/bin/python";
    }
    /// What TensorBoard reads against metrics.jsonl, point by point; the number of points.
    int compared_points(const std::string& name, const std::string& events = "") const {
        if (!fs::exists(python())) {
            ADD_FAILURE() << python() << " is missing: run scripts/setup --test";
            return 0;
        }
        const std::string output = (folder / "compared.out").string();
        const std::string script = std::string(TESSERA_SOURCE_DIR) + "/tests/apps/compare_events.py";
        std::string command = "'" + python() + "' '" + script + "' '" + run_directory(name).string() + "'";
        if (!events.empty()) command += " '" + events + "'";
        const int status = std::system((command + " >'" + output + "' 2>&1").c_str());
        EXPECT_EQ(status, 0) << support::read_file(output);
        return std::atoi(support::read_file(output).c_str());
    }
    std::vector<fs::path> event_files(const std::string& name) const {
        std::vector<fs::path> files;
        for (const auto& entry : fs::directory_iterator(run_directory(name) / "tensorboard")) files.push_back(entry);
        std::sort(files.begin(), files.end());
        return files;
    }
};

TEST_F(TensorBoard, SeesEveryPointOnce) {
    const fs::path path = config("seen", "", "[checkpoint]\ninterval = 4\n");
    train_well(path);
    // 12 steps of 8 scalars, 2 evaluations of 3.
    EXPECT_EQ(compared_points("seen"), 12 * 8 + 2 * 3);
    // A start anew in the same folder: what the first run wrote beyond it is forgotten, too.
    train_well(path, {"--checkpoint.resume=none", "--run.train_steps=5"});
    EXPECT_EQ(compared_points("seen"), 5 * 8 + 1 * 3);
    EXPECT_EQ(event_files("seen").size(), 2U);
}

TEST_F(TensorBoard, SeesNoStepTwiceAfterAKill) {
    const fs::path path = config("torn", "", "[checkpoint]\ninterval = 10\n[evaluation]\ninterval = 4\n");
    std::string text = support::read_file(path);
    text.erase(text.find("[evaluation]\ninterval = 6\nsteps = 2\n"), 36);
    support::write_file(path, text);
    const fs::path log = folder / "torn.log";
    const int process = support::start_program("gpt_train", {path.string(), "--run.train_steps=100000"}, log);
    ASSERT_TRUE(support::wait_for_text(process, log, " | lm loss: ", 17)) << support::read_file(log);
    kill(process, SIGKILL);
    ASSERT_EQ(support::wait_for(process), 128 + SIGKILL);
    ASSERT_EQ(event_files("torn").size(), 1U);
    // A kill may cut the last record, too.
    const fs::path first = event_files("torn").front();
    fs::resize_file(first, fs::file_size(first) - 7);
    const std::size_t done = support::step_values(run_directory("torn") / "metrics.jsonl").size();
    const std::size_t length = done + 5;
    const Outcome resumed = train_well(path, {"--run.train_steps=" + std::to_string(length)});
    EXPECT_NE(resumed.err.find("resumed after step "), std::string::npos) << resumed.err;
    const std::size_t evaluations =
            support::field_of(run_directory("torn") / "metrics.jsonl", "validation_loss").size();
    EXPECT_EQ(compared_points("torn"), static_cast<int>(length * 8 + evaluations * 3));
    EXPECT_EQ(event_files("torn").size(), 2U);
}

TEST_F(TensorBoard, GoesWhereItIsTold) {
    const std::string events = (folder / "my events").string();
    train_well(config("told"), {"--log.tensorboard_directory=" + events, "--run.train_steps=3"});
    EXPECT_EQ(compared_points("told", events), 3 * 8 + 1 * 3);
    EXPECT_FALSE(fs::exists(run_directory("told") / "tensorboard"));
    train_well(config("off"), {"--log.tensorboard=false", "--run.train_steps=3"});
    EXPECT_FALSE(fs::exists(run_directory("off") / "tensorboard"));
}

/// Steps without a number are points, too.
TEST_F(TensorBoard, ReadsStepsThatBroke) {
    const fs::path path = config("f16", "", "[precision]\ndtype = \"f16\"\ninitial_loss_scale = 1e30\n");
    train_well(path);
    EXPECT_EQ(compared_points("f16"), 12 * 8 + 2 * 3);
}

}  // namespace
}  // namespace tessera

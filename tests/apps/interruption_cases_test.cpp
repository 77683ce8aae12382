// Kills, signals and full disks at the worst moments, each as often as the report of it says.
#include <signal.h>
#include <sys/mount.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "apps/case_support.h"
#include "data/data_support.h"
#include "train/checkpoint_files.h"
#include "train/file_size_limit.h"
#include "train/training_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using support::expect_refused;
using support::field_of;
using support::Outcome;
using support::read_file;

class InterruptionCases : public support::CaseTest {
protected:
    fs::path run_of(const std::string& name, const std::string& more) const {
        return tiny(name, shard("sound", data::test::counting(4000, 61)), more);
    }
    std::int64_t latest_step(const std::string& name) const {
        const std::string latest = read_file(run_directory(name) / "checkpoints/latest");
        return latest.rfind("step_", 0) == 0 ? std::stoll(latest.substr(5)) : 0;
    }
    static std::vector<std::string> names_in(const fs::path& path) {
        std::vector<std::string> names;
        for (const auto& entry : fs::directory_iterator(path)) names.push_back(entry.path().filename().string());
        std::sort(names.begin(), names.end());
        return names;
    }
    /// True once a save has begun and not ended; false if the process ends before.
    static bool wait_for_a_save(int process, const fs::path& checkpoints) {
        for (int i = 0; i < 300000; ++i) {
            siginfo_t state{};
            if (waitid(P_PID, static_cast<id_t>(process), &state, WEXITED | WNOHANG | WNOWAIT) != 0 ||
                state.si_pid != 0) {
                return false;
            }
            std::error_code error;
            for (fs::directory_iterator entry(checkpoints, error), end; !error && entry != end;
                 entry.increment(error)) {
                if (entry->path().filename().string().rfind(".step_", 0) == 0) return true;
            }
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
        return false;
    }
};

/// A file system of its own in memory.
class SmallDisk {
public:
    SmallDisk(const fs::path& place, std::int64_t bytes) : place_(place) {
        fs::create_directories(place_);
        const std::string size = "size=" + std::to_string(bytes);
        mounted_ = ::mount("tmpfs", place_.c_str(), "tmpfs", 0, size.c_str()) == 0;
    }
    ~SmallDisk() {
        if (mounted_) ::umount2(place_.c_str(), MNT_DETACH);
    }
    SmallDisk(const SmallDisk&) = delete;
    SmallDisk& operator=(const SmallDisk&) = delete;
    bool mounted() const { return mounted_; }
    bool grow(std::int64_t bytes) const {
        const std::string size = "size=" + std::to_string(bytes);
        return ::mount("tmpfs", place_.c_str(), "tmpfs", MS_REMOUNT, size.c_str()) == 0;
    }

private:
    fs::path place_;
    bool mounted_ = false;
};

constexpr std::int64_t kMiB = 1 << 20;
/// About 3 MiB a checkpoint.
const std::string kWide = "--model.hidden_size=96";

TEST_F(InterruptionCases, AFileLimitStopsTheRunBeforeItsFirstStep_CK_02) {
    const fs::path path = run_of("limited", "[checkpoint]\ninterval = 4\n");
    const train::FileSizeLimit limit(kMiB);
    const Outcome outcome = train(path, {kWide});
    expect_refused(outcome, "gpt_train", {(run_directory("limited") / "checkpoints").string(), "bytes"}, 1);
    EXPECT_EQ(outcome.out.find("iteration"), std::string::npos) << outcome.out;
    EXPECT_TRUE(names_in(run_directory("limited") / "checkpoints").empty());
}

TEST_F(InterruptionCases, ADiskTooSmallStopsTheRunBeforeItsFirstStep_CK_02) {
    const fs::path place = folder / "small disk";
    const SmallDisk disk(place, kMiB);
    if (!disk.mounted()) GTEST_SKIP() << "cannot mount a file system here: " << std::strerror(errno);
    const Outcome outcome = train(run_of("cramped", ""), {kWide, "--checkpoint.directory=" + place.string()});
    expect_refused(outcome, "gpt_train", {place.string(), "bytes needed", "free"}, 1);
    EXPECT_EQ(outcome.out.find("iteration"), std::string::npos) << outcome.out;
    EXPECT_TRUE(names_in(place).empty());
}

TEST_F(InterruptionCases, ADiskThatFillsKeepsTheLastCheckpoint_CK_02) {
    const fs::path reference = run_of("roomy", "[checkpoint]\ninterval = 4\n");
    train_well(reference, {kWide});
    std::int64_t bytes = 0;
    for (const auto& entry : fs::directory_iterator(checkpoint("roomy", 4))) {
        bytes += static_cast<std::int64_t>(entry.file_size());
    }
    EXPECT_GT(bytes, 2 * kMiB);
    const fs::path place = folder / "filling disk";
    const SmallDisk disk(place, bytes * 3 / 2);
    if (!disk.mounted()) GTEST_SKIP() << "cannot mount a file system here: " << std::strerror(errno);
    const std::vector<std::string> wide = {kWide, "--checkpoint.directory=" + place.string()};
    const fs::path path = run_of("filling", "[checkpoint]\ninterval = 4\n");
    expect_refused(train(path, wide), "gpt_train", {place.string(), "bytes needed", "free"}, 1);
    EXPECT_EQ(names_in(place), (std::vector<std::string>{"latest", "step_00000004"}));
    EXPECT_TRUE(support::contents_of(place / "step_00000004").size() == 3);
    train::CheckpointReader::open((place / "step_00000004").string()).verify();
    ASSERT_TRUE(disk.grow(64 * kMiB));
    const Outcome resumed = train_well(path, wide);
    EXPECT_NE(resumed.err.find("resumed after step 4 from "), std::string::npos) << resumed.err;
    for (const char* file : {"rank_00000.safetensors", "rank_00000_optimizer.safetensors"}) {
        EXPECT_TRUE(read_file(place / "step_00000012" / file) == read_file(checkpoint("roomy", 12) / file)) << file;
    }
}

TEST_F(InterruptionCases, SavedBeforeTheFirstUpdate_CK_14) {
    const std::string lines =
            "[checkpoint]\ninterval = 0\n[precision]\ndtype = \"f16\"\ninitial_loss_scale = 1099511627776\n";
    const std::string length = "--run.train_steps=40";
    train_well(run_of("unbroken", lines), {length});
    const fs::path metrics = run_directory("unbroken") / "metrics.jsonl";
    EXPECT_EQ(field_of(metrics, "skipped_steps").at(1), "2");
    EXPECT_LT(std::stoi(field_of(metrics, "skipped_steps").back()), 39) << "some steps are updates";
    // Asked to stop before it has begun, a run saves step 0.
    const fs::path path = run_of("broken", lines);
    {
        train::StopRequest stop;
        stop.request(SIGTERM);
        train::TrainingRun run(train::load_config(path.string(), {"--log.progress=none"}));
        EXPECT_EQ(run.run(stop).exit_code, core::ExitCode::stopped_after_save);
    }
    EXPECT_EQ(read_file(run_directory("broken") / "checkpoints/latest"), "step_00000000\n");
    for (const std::int64_t stop : {1, 2, 40}) {
        const std::int64_t before = latest_step("broken");
        const Outcome outcome = train_well(path, {"--run.train_steps=" + std::to_string(stop)});
        EXPECT_NE(outcome.err.find("resumed after step " + std::to_string(before) + " from "), std::string::npos)
                << outcome.err;
    }
    expect_same_run("unbroken", "broken", 40);
    EXPECT_EQ(field_of(run_directory("broken") / "metrics.jsonl", "skipped_steps"), field_of(metrics, "skipped_steps"));
}

/// A handler's frame on the stack of a thread inside a generated product would lie over the heap (signal_watcher.h): no
/// thread may take the signal, and the process may have no handler for it.
void expect_no_handler(int process, int signal) {
    const auto has = [&](const fs::path& status, const std::string& mask) {
        const std::string text = read_file(status);
        const std::size_t at = text.find(mask + ":");
        EXPECT_NE(at, std::string::npos) << text;
        return (std::stoull(text.substr(at + mask.size() + 1), nullptr, 16) >> (signal - 1) & 1U) != 0;
    };
    const fs::path tasks = "/proc/" + std::to_string(process) + "/task";
    int open_threads = 0;
    for (const auto& task : fs::directory_iterator(tasks)) {
        EXPECT_FALSE(has(task.path() / "status", "SigCgt")) << "signal " << signal;
        if (!has(task.path() / "status", "SigBlk")) ++open_threads;
    }
    EXPECT_EQ(open_threads, 1) << "only the thread that waits for signal " << signal << " has it unblocked";
}

TEST_F(InterruptionCases, ASecondSignalDuringTheSave_CK_17) {
    const std::vector<std::string> large = {"--model.hidden_size=256", "--model.num_layers=4",
                                            "--run.train_steps=1000000"};
    for (const int signal : {SIGTERM, SIGUSR1, SIGINT}) {
        const std::string name = "twice_" + std::to_string(signal);
        const fs::path path = run_of(name, "[checkpoint]\ninterval = 0\n");
        const fs::path log = folder / (name + ".log");
        const int process = support::start_program("gpt_train", {path.string(), large[0], large[1], large[2]}, log);
        ASSERT_TRUE(support::wait_for_text(process, log, " iteration ", 2)) << read_file(log);
        expect_no_handler(process, signal);
        kill(process, signal);
        EXPECT_TRUE(wait_for_a_save(process, run_directory(name) / "checkpoints")) << read_file(log);
        kill(process, signal);
        const int code = support::wait_for(process);
        const bool saved = latest_step(name) > 0;
        if (signal != SIGINT) {
            EXPECT_EQ(code, 75) << read_file(log);
            EXPECT_TRUE(saved);
        } else {
            // The second from the keyboard ends the program at once: with or without the save, never with half of it.
            EXPECT_TRUE(code == 75 || code == 128 + SIGINT) << code << read_file(log);
        }
        const auto steps =
                static_cast<std::int64_t>(support::step_values(run_directory(name) / "metrics.jsonl").size());
        if (saved) {
            EXPECT_EQ(latest_step(name), steps);
            train::CheckpointReader::open(checkpoint(name, steps).string()).verify();
        }
        const Outcome resumed =
                train_well(path, {large[0], large[1], "--run.train_steps=" + std::to_string(saved ? steps + 1 : 1)});
        EXPECT_NE(resumed.err.find(saved ? "resumed after step " + std::to_string(steps) : "a fresh start in "),
                  std::string::npos)
                << resumed.err;
        for (const std::string& entry : names_in(run_directory(name) / "checkpoints")) {
            EXPECT_EQ(entry.find(".tmp-"), std::string::npos) << entry;
        }
    }
}

TEST_F(InterruptionCases, TwentySavesKeepThreeAndEveryFifth_CK_18) {
    const fs::path path = run_of("kept", "[checkpoint]\ninterval = 1\nkeep = 3\nkeep_every = 5\n");
    const fs::path checkpoints = run_directory("kept") / "checkpoints";
    // What others put there, and a checkpoint under a name of a user's own.
    support::write_file(checkpoints / "notes.txt", "a user's");
    support::write_file(checkpoints / "step_notes/index.json", "{}");
    support::write_file(checkpoints / "best/rank_00000.safetensors", "a user's, too");
    train_well(run_of("other", "[checkpoint]\ninterval = 1\nkeep = 0\n"), {"--run.train_steps=4"});
    fs::copy(run_directory("other"), checkpoints / "other run", fs::copy_options::recursive);
    const auto foreign = support::contents_of(checkpoints);
    train_well(path, {"--run.train_steps=20"});
    std::vector<std::string> kept;
    for (const std::string& name : names_in(checkpoints)) {
        if (name.rfind("step_0", 0) == 0) kept.push_back(name);
    }
    EXPECT_EQ(kept, (std::vector<std::string>{"step_00000005", "step_00000010", "step_00000015", "step_00000018",
                                              "step_00000019", "step_00000020"}));
    for (const std::string& name : kept) train::CheckpointReader::open((checkpoints / name).string()).verify();
    const auto after = support::contents_of(checkpoints);
    for (const auto& [file, content] : foreign) EXPECT_TRUE(after.contains(file) && after.at(file) == content) << file;
    EXPECT_EQ(after.size(), foreign.size() + 3 * kept.size() + 1);
}

}  // namespace
}  // namespace tessera

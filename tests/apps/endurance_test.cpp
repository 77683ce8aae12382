// Many kills, many steps, many epochs. TESSERA_ENDURANCE_FACTOR multiplies how many (ctest: endurance.long).
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "apps/case_support.h"
#include "core/philox.h"
#include "data/data_support.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using support::count_of;
using support::read_file;
using support::Usage;

std::int64_t factor() {
    const char* text = std::getenv("TESSERA_ENDURANCE_FACTOR");
    return text == nullptr ? 1 : std::max(1LL, std::atoll(text));
}

bool is_running(int process) {
    siginfo_t state{};
    return waitid(P_PID, static_cast<id_t>(process), &state, WEXITED | WNOHANG | WNOWAIT) == 0 && state.si_pid == 0;
}

/// Resident bytes of a process now.
std::int64_t resident_bytes(int process) {
    std::ifstream status("/proc/" + std::to_string(process) + "/status");
    for (std::string word; status >> word;) {
        std::int64_t kilobytes = 0;
        if (word == "VmRSS:" && status >> kilobytes) return kilobytes * 1024;
    }
    return -1;
}

class Endurance : public support::CaseTest {
protected:
    fs::path checkpoints(const std::string& name) const { return run_directory(name) / "checkpoints"; }

    /// The last finished checkpoint, as the run's folder names it; 0 if there is none.
    std::int64_t latest(const std::string& name) const {
        const std::string text = read_file(checkpoints(name) / "latest");
        return text.rfind("step_", 0) == 0 ? std::stoll(text.substr(5)) : 0;
    }
    /// Whether this process has a save under way, or left one.
    bool has_unfinished_save(const std::string& name, int process) const {
        const std::string ending = "-" + std::to_string(process);
        std::error_code none;
        for (const auto& entry : fs::directory_iterator(checkpoints(name), none)) {
            const std::string file = entry.path().filename().string();
            if (file.find(".tmp-") != std::string::npos && file.ends_with(ending)) return true;
        }
        return false;
    }
    void wait_for_save(const std::string& name, int process) const {
        while (!has_unfinished_save(name, process) && is_running(process)) {
            std::this_thread::sleep_for(std::chrono::microseconds(100));
        }
    }
    /// Starts the run and kills it after a random time; true if that was in the middle of a save.
    bool start_and_kill(const std::string& name, const fs::path& path, const std::string& length,
                        std::uint32_t attempt) const;
};

bool Endurance::start_and_kill(const std::string& name, const fs::path& path, const std::string& length,
                               std::uint32_t attempt) const {
    const fs::path log = folder / "killed.log";
    fs::remove(log);
    const std::int64_t saved = latest(name);
    const int process = support::start_program("gpt_train", {path.string(), length}, log);
    const auto random = core::philox4x32_10({attempt, 0, 0, 0}, {7, 7});
    // Every second one is aimed at a save: the first of this start, or one soon after. The others fall anywhere from
    // the start of the program to its first steps.
    const bool aimed = attempt % 2 == 1;
    if (aimed) {
        if (random[1] % 2 == 1) support::wait_for_text(process, log, "info: saved ", 1 + random[1] / 2 % 2);
        wait_for_save(name, process);
    } else if (random[1] % 2 == 1) {
        support::wait_for_text(process, log, " iteration ", 1 + random[1] / 2 % 3);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random[0] % (aimed ? 1500 : 60000)));
    kill(process, SIGKILL);
    const int code = support::wait_for(process);
    EXPECT_EQ(code, 128 + SIGKILL) << "attempt " << attempt << ": " << read_file(log);
    // What was saved stays saved, and it is what this start began from.
    EXPECT_GE(latest(name), saved) << read_file(log);
    const std::string text = read_file(log);
    EXPECT_EQ(count_of(text, "warning: "), 0U) << text;
    const std::size_t resumed = text.find("resumed after step ");
    if (resumed != std::string::npos) {
        EXPECT_EQ(std::stoll(text.substr(resumed + 19)), saved) << text;
    }
    return has_unfinished_save(name, process);
}

/// A run that saves at every step is killed 50 times. No start fails, none begins before the last finished checkpoint,
/// and the run ends with the bits of one that nobody killed.
TEST_F(Endurance, KilledAtAnyMomentItGoesOn_CK_01) {
    const auto kills = static_cast<std::uint32_t>(50 * factor());
    const std::string length = "--run.train_steps=" + std::to_string(5 * kills);
    const std::string data = shard("killed", data::test::counting(2000, 61));
    const std::string lines = "[checkpoint]\ninterval = 1\nkeep = 2\n";
    train_well(tiny("unkilled", data, lines), {length});
    const fs::path path = tiny("killed", data, lines);
    std::uint32_t during_saves = 0;
    for (std::uint32_t attempt = 0; attempt < kills && !HasFailure(); ++attempt) {
        during_saves += start_and_kill("killed", path, length, attempt) ? 1 : 0;
    }
    RecordProperty("kills_during_saves", static_cast<int>(during_saves));
    EXPECT_GE(during_saves, kills / 5);
    EXPECT_GT(latest("killed"), kills / 5);
    train_well(path, {length});
    expect_same_run("unkilled", "killed", 5 * kills);
    // Nothing half-written is left, and retention was kept.
    std::size_t entries = 0;
    for (const auto& entry : fs::directory_iterator(checkpoints("killed"))) {
        EXPECT_EQ(entry.path().filename().string().find(".tmp-"), std::string::npos) << entry.path();
        ++entries;
    }
    EXPECT_LE(entries, 4U);
}

/// Steps, evaluations and saves: after 2000 of them the process is as large as after 200.
TEST_F(Endurance, MemoryIsFlatOverThousandsOfSteps_ME_01) {
    const std::int64_t steps = 2000 * factor();
    const std::string data = shard("steps", data::test::counting(3000, 61));
    const fs::path path = tiny("steps", data,
                               "interval = 100\n[evaluation]\ninterval = 100\nsteps = 1\n[checkpoint]\ninterval = "
                               "100\nkeep = 2\n[schedule]\nstyle = \"constant\"\n");
    const fs::path log = folder / "steps.log";
    // The last hundred are never measured: they hold the process until it is.
    const int process = support::start_program(
            "gpt_train",
            {path.string(), "--data.validation=" + data, "--run.train_steps=" + std::to_string(steps + 100)}, log);
    const auto resident_after = [&](std::int64_t step) {
        EXPECT_TRUE(support::wait_for_text(process, log, " iteration ", static_cast<std::size_t>(step / 100)))
                << read_file(log);
        kill(process, SIGSTOP);
        const std::int64_t bytes = resident_bytes(process);
        kill(process, SIGCONT);
        return bytes;
    };
    const std::int64_t early = resident_after(200);
    const std::int64_t late = resident_after(steps);
    EXPECT_EQ(support::wait_for(process), 0) << read_file(log);
    RecordProperty("resident_KiB_after_200", static_cast<int>(early / 1024));
    RecordProperty("resident_KiB_at_the_end", static_cast<int>(late / 1024));
    EXPECT_GT(early, std::int64_t{1} << 20);
    EXPECT_LE(static_cast<double>(late), 1.05 * static_cast<double>(early));
}

/// The work of an epoch is its reads: as many in later ones as in the first.
TEST_F(Endurance, EveryEpochReadsTheSame_ME_05) {
    const std::string data = (folder / "epochs.h5").string();
    // In chunks, so that the tokens come through read calls, which are counted, and more of them than HDF5 keeps.
    data::test::write_foreign(data, data::test::counting(40 * 256 + 1, 61),
                              {.type = "i64", .layout = data::test::Layout::chunked});
    const auto epochs = [&](std::int64_t count) {
        const std::string name = "epochs_" + std::to_string(count);
        const fs::path path = tiny(name, data, "[checkpoint]\ninterval = 0\n[schedule]\nstyle = \"constant\"\n");
        const Usage usage =
                support::measure_program("gpt_train",
                                         {path.string(), "--run.train_steps=" + std::to_string(10 * count),
                                          "--model.seq_length=256", "--model.num_layers=1", "--model.hidden_size=8",
                                          "--model.num_attention_heads=1", "--batch.global_batch_size=4"},
                                         folder / (name + ".log"));
        EXPECT_EQ(usage.exit_code, 0) << usage.log;
        EXPECT_EQ(count_of(usage.log, ", 40 in one pass"), 1U) << usage.log;
        return usage;
    };
    const std::int64_t most = 2 + 10 * factor();
    const Usage two = epochs(2);
    const Usage seven = epochs(7);
    const Usage all = epochs(most);
    const double first = static_cast<double>(seven.read_calls - two.read_calls) / 5;
    const double later = static_cast<double>(all.read_calls - seven.read_calls) / static_cast<double>(most - 7);
    // Each of an epoch's samples may have to be read.
    EXPECT_GT(first, 100);
    EXPECT_NEAR(later, first, 0.1 * first);
}

}  // namespace
}  // namespace tessera

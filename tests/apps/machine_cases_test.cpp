// Memory, start-up, paths and the build, each case as a user met it.
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>

#include "apps/case_support.h"
#include "data/data_support.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using support::count_of;
using support::expect_refused;
using support::measure_program;
using support::Outcome;
using support::read_file;
using support::Usage;

constexpr std::int64_t kMiB = 1 << 20;

class MachineCases : public support::CaseTest {
protected:
    Usage measure(const fs::path& config, std::vector<std::string> overrides) const {
        overrides.insert(overrides.begin(), config.string());
        Usage usage = measure_program("gpt_train", overrides, folder / "measured.log");
        EXPECT_EQ(usage.exit_code, 0) << usage.log;
        fs::remove(folder / "measured.log");
        return usage;
    }
};

TEST_F(MachineCases, PeakMemoryDoesNotFollowAccumulation_ME_02) {
    const std::string data = shard("long", data::test::counting(40000, 61));
    const auto peak = [&](const std::string& samples) {
        return measure(tiny("accumulate_" + samples, data),
                       {"--run.train_steps=2", "--batch.global_batch_size=" + samples, "--batch.micro_batch_size=2",
                        "--model.seq_length=512", "--model.hidden_size=64", "--model.num_layers=4"})
                .peak_resident_bytes;
    };
    const std::int64_t one = peak("2");
    const std::int64_t sixteen = peak("32");
    // One micro-batch keeps about this much for its backward: fifteen more of them would show.
    EXPECT_GT(one, 50 * kMiB);
    EXPECT_LT(static_cast<double>(sixteen), 1.1 * static_cast<double>(one));
}

TEST_F(MachineCases, LoadingNeedsNoMoreMemoryThanTraining_ME_03) {
    const std::string data = shard("loaded", data::test::counting(2000, 61));
    const std::vector<std::string> size = {"--model.hidden_size=512", "--batch.global_batch_size=1"};
    const fs::path path = tiny("loaded", data);
    const Usage fresh = measure(path, {size[0], size[1], "--run.train_steps=1"});
    std::int64_t checkpoint_bytes = 0;
    for (const auto& entry : fs::directory_iterator(checkpoint("loaded", 1))) {
        checkpoint_bytes += static_cast<std::int64_t>(entry.file_size());
    }
    ASSERT_GT(checkpoint_bytes, 70 * kMiB);
    const Usage resumed = measure(path, {size[0], size[1], "--run.train_steps=2"});
    ASSERT_EQ(count_of(resumed.log, "resumed after step 1 from "), 1U) << resumed.log;
    // The largest tensor has 4 MiB.
    EXPECT_LT(resumed.peak_resident_bytes, fresh.peak_resident_bytes + 16 * kMiB);
}

TEST_F(MachineCases, AStartReadsThousandsOfShardsOnce_ME_04) {
    const std::string first = shard("many_00000", data::test::counting(64, 61));
    fs::create_directories(folder / "many");
    for (int i = 0; i < 2000; ++i) fs::copy_file(first, folder / "many" / (std::to_string(10000 + i) + ".h5"));
    const fs::path path = tiny("many", (folder / "many/*.h5").string());
    const auto file_bytes = static_cast<std::int64_t>(fs::file_size(first));
    const Usage start = measure(path, {"--run.train_steps=2"});
    const Usage again = measure(path, {"--run.train_steps=4"});
    ASSERT_EQ(count_of(again.log, "resumed after step 2 from "), 1U) << again.log;
    // Not even every byte of every file twice. A resume adds its checkpoint.
    EXPECT_LT(start.read_bytes, 2 * 2000 * file_bytes);
    EXPECT_LT(again.read_bytes, start.read_bytes + kMiB);
    EXPECT_LT(again.read_calls, start.read_calls + 200);
}

/// Far more tokens than a run of a few steps needs: neither a start nor a resume reads through them.
TEST_F(MachineCases, AStartReadsNoMoreThanItsSteps_ME_04) {
    const std::string data = (folder / "late.h5").string();
    // In chunks, so that the tokens come through read calls, which are counted, and not through mapped memory.
    data::test::write_foreign(data, data::test::counting(300000, 61), {.layout = data::test::Layout::chunked});
    const std::string lines = "[schedule]\nstyle = \"constant\"\n";
    const Usage first = measure(tiny("late", data, lines), {"--run.train_steps=10"});
    const Usage all = measure(tiny("late", data, lines), {"--run.train_steps=300"});
    const auto resume_at = [&](std::int64_t step) {
        const Usage usage = measure(tiny("late_" + std::to_string(step), data, lines),
                                    {"--checkpoint.resume=" + checkpoint("late", step).string(),
                                     "--run.train_steps=" + std::to_string(step + 2)});
        EXPECT_EQ(count_of(usage.log, "resumed after step " + std::to_string(step)), 1U) << usage.log;
        return usage;
    };
    const Usage early = resume_at(10);
    const Usage late = resume_at(300);
    // Samples are all over the file, each with a few reads of its own: 290 steps of four would show.
    EXPECT_GT(all.read_calls, first.read_calls + 1000);
    EXPECT_LT(late.read_calls, early.read_calls + 100);
    EXPECT_LT(late.read_bytes, early.read_bytes + 100000);
}

TEST_F(MachineCases, ThreadsAreAsManyAsAskedFor_IN_03) {
    const std::string data = shard("threads", data::test::counting(4000, 61));
    for (const int wanted : {1, 3}) {
        const std::string name = "threads_" + std::to_string(wanted);
        const fs::path log = folder / (name + ".log");
        const int process = support::start_program(
                "gpt_train",
                {tiny(name, data).string(), "--run.train_steps=1000000", "--device.threads=" + std::to_string(wanted)},
                log);
        ASSERT_TRUE(support::wait_for_text(process, log, "] iteration ", 3)) << read_file(log);
        int threads = 0;
        for ([[maybe_unused]] const auto& entry :
             fs::directory_iterator("/proc/" + std::to_string(process) + "/task")) {
            ++threads;
        }
        kill(process, SIGTERM);
        EXPECT_EQ(support::wait_for(process), 75) << read_file(log);
        EXPECT_GE(threads, wanted + 1);
        // One more reads data and one waits for signals.
        EXPECT_LE(threads, wanted + 2);
    }
}

class PathCases : public support::ProgramTest {};

TEST_F(PathCases, AnyDirectoryAndAnyName_IN_02) {
    train_well(config("plain"), {"--run.train_steps=3"});
    const auto expect_same = [&](const std::string& what, const fs::path& run, const Outcome& outcome) {
        ASSERT_EQ(outcome.exit_code, 0) << what << ": " << outcome.err;
        for (const char* file : {"rank_00000.safetensors", "rank_00000_optimizer.safetensors"}) {
            EXPECT_TRUE(read_file(run / "checkpoints/step_00000003" / file) == read_file(checkpoint("plain", 3) / file))
                    << what << ": " << file;
        }
    };
    // A folder with blanks and letters outside of ASCII, its data found relative to the config file.
    const fs::path place = folder / "mon dossier é 文";
    fs::create_directories(place);
    for (const char* file : {"text_train_00000.h5", "text_validation_00000.h5", "tokenizer.model"}) {
        fs::copy_file(folder / file, place / file);
    }
    std::string text = read_file(config("plain"));
    text.replace(text.find("runs/plain"), 10, "runs/here");
    support::write_file(place / "ä config.toml", text);
    const fs::path run = place / "runs/here";
    // /proc can be written by nobody.
    const std::vector<std::pair<fs::path, fs::path>> ways = {{"/", place / "ä config.toml"},
                                                             {place, "ä config.toml"},
                                                             {folder, "mon dossier é 文/ä config.toml"},
                                                             {place, "./../mon dossier é 文/./ä config.toml"},
                                                             {"/proc", place / "ä config.toml"}};
    for (const auto& [directory, path] : ways) {
        fs::remove_all(run);
        expect_same("from " + directory.string() + " with " + path.string(), run,
                    support::run_program("gpt_train", {path.string(), "--run.train_steps=3"}, directory));
    }
    // Through a link to the folder.
    fs::remove_all(run);
    fs::create_directory_symlink(place, folder / "link");
    expect_same("a link", run,
                support::run_program("gpt_train", {(folder / "link/ä config.toml").string(), "--run.train_steps=3"}));
    // Links to the files themselves.
    fs::create_directories(folder / "links");
    for (const char* file : {"text_train_00000.h5", "text_validation_00000.h5", "tokenizer.model"}) {
        fs::create_symlink(place / file, folder / "links" / file);
    }
    support::write_file(folder / "links/c.toml", text);
    expect_same("links to files", folder / "links/runs/here",
                support::run_program("gpt_train", {(folder / "links/c.toml").string(), "--run.train_steps=3"}, "/"));
    // '~' in the file and on the command line, where no shell has replaced it.
    const char* const home = getenv("HOME");
    const std::string old_home = home == nullptr ? "" : home;
    setenv("HOME", place.c_str(), 1);
    std::string at_home = text;
    at_home.replace(at_home.find("\"tokenizer.model"), 16, "\"~/tokenizer.model");
    at_home.replace(at_home.find("\"text_train"), 11, "\"~/text_train");
    at_home.replace(at_home.find("runs/here"), 9, "~/runs/home");
    support::write_file(folder / "links/home.toml", at_home);
    expect_same("~", place / "runs/home",
                support::run_program("gpt_train", {(folder / "links/home.toml").string(), "--run.train_steps=3",
                                                   "--data.validation=~/text_validation_*.h5"}));
    setenv("HOME", old_home.c_str(), 1);
    if (home == nullptr) unsetenv("HOME");
    // What is not there stops the run before it begins.
    for (const char* file : {"tokenizer.model", "text_train_00000.h5"}) {
        fs::remove_all(run);
        fs::rename(place / file, place / "away");
        expect_refused(train(place / "ä config.toml"), "gpt_train", {std::string(file).substr(0, 9)});
        EXPECT_FALSE(fs::exists(run));
        fs::rename(place / "away", place / file);
    }
}

/// cmake's messages when a package is hidden from it.
class BuildCases : public support::CaseTest {
protected:
    std::string configure(const std::vector<std::string>& options, int expected) const {
        const fs::path out = folder / "configured.txt";
        std::string command = "cmake -S '" + std::string(TESSERA_SOURCE_DIR) + "' -B '" + (folder / "build").string() +
                              "' -DTESSERA_BUILD_BENCHMARKS=OFF";
        for (const std::string& option : options) command += " -D" + option;
        const int status = std::system((command + " >'" + out.string() + "' 2>&1").c_str());
        std::string text = read_file(out);
        EXPECT_EQ(status == 0 ? 0 : 1, expected) << text;
        // As one line: cmake folds its messages.
        std::string folded;
        for (const char c : text) {
            const char next = c == '\n' ? ' ' : c;
            if (next != ' ' || folded.empty() || folded.back() != ' ') folded += next;
        }
        return folded;
    }
};

TEST_F(BuildCases, AMissingPackageIsNamed_IN_01) {
    const std::vector<std::vector<std::string>> hidden = {{"HDF5", "HDF5", "libhdf5-dev"},
                                                          {"OpenMP", "OpenMP", "g++"},
                                                          {"spdlog", "spdlog", "libspdlog-dev"},
                                                          {"GTest", "GoogleTest", "libgtest-dev"}};
    for (const std::vector<std::string>& package : hidden) {
        const std::string option = "CMAKE_DISABLE_FIND_PACKAGE_" + package[0];
        const std::string message = configure({option + "=ON", "TESSERA_BUILD_TESTS=ON"}, 1);
        EXPECT_NE(message.find(package[1] + " was not found; install the package " + package[2]), std::string::npos)
                << message;
        // The next round is to find it again.
        configure({option + "=OFF", "TESSERA_BUILD_TESTS=OFF"}, 0);
    }
    const std::string sound = configure({"TESSERA_BUILD_TESTS=OFF", "CMAKE_BUILD_TYPE=Release"}, 0);
    EXPECT_NE(sound.find("Release for the CPU; tests OFF, benchmarks OFF, sanitizers none"), std::string::npos)
            << sound;
    EXPECT_NE(sound.find("Not in this version: CUDA, NCCL"), std::string::npos) << sound;
    // Without MPI one process does everything.
    const std::string alone = configure({"CMAKE_DISABLE_FIND_PACKAGE_MPI=ON", "TESSERA_BUILD_TESTS=OFF"}, 0);
    EXPECT_NE(alone.find("one process (no MPI: install libopenmpi-dev and openmpi-bin for it)"), std::string::npos)
            << alone;
}

}  // namespace
}  // namespace tessera

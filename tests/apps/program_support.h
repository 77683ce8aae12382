#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace tessera::support {

struct Outcome {
    int exit_code = -1;
    std::string out;
    std::string err;
};

/// Runs build/apps/PROGRAM with arguments (each quoted for the shell) under a hard time limit; exit code 124 = too
/// slow.
Outcome run_program(const std::string& program, const std::vector<std::string>& arguments,
                    const std::filesystem::path& working_directory = {});

/// Starts a program in the background; returns its process id. Its output goes to LOG.
int start_program(const std::string& program, const std::vector<std::string>& arguments,
                  const std::filesystem::path& log);
/// Waits for it; 128 + signal if it was killed.
int wait_for(int process);

std::string read_file(const std::filesystem::path& path);
void write_file(const std::filesystem::path& path, const std::string& text);
/// How often a part stands in a text.
std::size_t count_of(const std::string& text, const std::string& part);
/// Waits until a part stands in the log of a process at least so many times; false if the process has ended or 60 s
/// have passed before.
bool wait_for_text(int process, const std::filesystem::path& path, const std::string& part, std::size_t times);
/// Every file under a folder by its path in there, with its content.
std::map<std::string, std::string> contents_of(const std::filesystem::path& folder);
/// The last line of a program's messages.
std::string last_line(const std::string& text);
/// A refusal as users are promised it: the exit code, and on stderr one line "PROGRAM: error: ..." with all the parts,
/// after nothing but lines of other levels.
void expect_refused(const Outcome& outcome, const std::string& program, const std::vector<std::string>& parts,
                    int code = 2);

/// A text corpus, tokenizer and shards, made once by gpt_data, and a place for runs.
class ProgramTest : public testing::Test {
protected:
    static void SetUpTestSuite();
    static void TearDownTestSuite();
    /// The first part of the set-up: a folder without anything in it.
    static void make_folder();

    /// The config of a tiny run of this name, with more lines appended to given sections ("[model]\n…" replaces).
    std::filesystem::path config(const std::string& name, const std::string& model = "",
                                 const std::string& rest = "") const;
    std::filesystem::path run_directory(const std::string& name) const { return folder / "runs" / name; }
    Outcome train(const std::filesystem::path& config_path, std::vector<std::string> overrides = {}) const;
    /// As train; a run that fails fails the test.
    Outcome train_well(const std::filesystem::path& config_path, std::vector<std::string> overrides = {}) const;

    std::filesystem::path checkpoint(const std::string& name, std::int64_t step) const;
    /// The tensors of a checkpoint, byte for byte.
    std::string tensors(const std::string& name, std::int64_t step) const;
    /// Two runs that must not differ: the tensors after `step` and the metrics of every step up to it.
    void expect_same_run(const std::string& one, const std::string& other, std::int64_t step) const;

    static std::filesystem::path folder;
};

/// The text of a field in each record of metrics.jsonl that has it.
std::vector<std::string> field_of(const std::filesystem::path& metrics, const std::string& key);
/// "step loss grad_norm learning_rate loss_scale consumed_samples" of every training record of metrics.jsonl, as text.
std::vector<std::string> step_values(const std::filesystem::path& metrics);

}  // namespace tessera::support

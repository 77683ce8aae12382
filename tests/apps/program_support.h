#pragma once
#include <gtest/gtest.h>

#include <filesystem>
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
/// Waits until a file has at least so many lines (or 60 s have passed: false).
bool wait_for_lines(const std::filesystem::path& path, std::size_t lines);
/// The last line of a program's messages.
std::string last_line(const std::string& text);

/// A text corpus, tokenizer and shards, made once by gpt_data, and a place for runs.
class ProgramTest : public testing::Test {
protected:
    static void SetUpTestSuite();
    static void TearDownTestSuite();

    /// The config of a tiny run of this name, with more lines appended to given sections ("[model]\n…" replaces).
    std::filesystem::path config(const std::string& name, const std::string& model = "",
                                 const std::string& rest = "") const;
    std::filesystem::path run_directory(const std::string& name) const { return folder / "runs" / name; }
    Outcome train(const std::filesystem::path& config_path, std::vector<std::string> overrides = {}) const;

    static std::filesystem::path folder;
};

/// "loss", "grad_norm" and "learning_rate" of every training record of metrics.jsonl, as text.
std::vector<std::string> step_values(const std::filesystem::path& metrics);

}  // namespace tessera::support

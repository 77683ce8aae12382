// What every program owes its user: help, a version, clear refusals of its command line.
#include <algorithm>
#include <sstream>

#include "apps/program_support.h"

namespace tessera {
namespace {

using support::expect_refused;
using support::Outcome;
using support::run_program;

const std::vector<std::string> kPrograms = {"gpt_train", "gpt_data", "gpt_generate", "gpt_bench"};

void expect_help(const std::string& program, std::vector<std::string> arguments) {
    const Outcome help = run_program(program, arguments);
    EXPECT_EQ(help.exit_code, 0) << program;
    EXPECT_EQ(help.err, "") << program;
    EXPECT_NE(help.out.find("--help"), std::string::npos) << program;
    // 80 x 24, and the prompt needs the last line.
    EXPECT_LE(std::count(help.out.begin(), help.out.end(), '\n'), 23) << program << "\n" << help.out;
    EXPECT_GE(support::count_of(help.out, "\n  " + program + " "), 2U) << "examples\n" << help.out;
    std::istringstream lines(help.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << program << ": " << line;
}

TEST(CommandLine, HelpGoesToStdoutAndFitsAScreen) {
    for (const std::string& program : kPrograms) expect_help(program, {"--help"});
    for (const char* command : {"tokenizer", "tokenize", "inspect", "verify"})
        expect_help("gpt_data", {command, "--help"});
    for (const char* command : {"step", "generate"}) expect_help("gpt_bench", {command, "--help"});
}

TEST(CommandLine, VersionsAgree) {
    for (const std::string& program : kPrograms) {
        const Outcome version = run_program(program, {"--version"});
        EXPECT_EQ(version.exit_code, 0) << program;
        EXPECT_EQ(version.out.rfind(program + " ", 0), 0U) << version.out;
        EXPECT_NE(version.out.find("0.1.0\n"), std::string::npos) << version.out;
        EXPECT_EQ(version.err, "");
    }
}

TEST(CommandLine, MistakesAreOneLine) {
    for (const std::string& program : kPrograms) {
        expect_refused(run_program(program, {"--no-such-option"}), program, {"--no-such-option"});
    }
    expect_refused(run_program("gpt_data", {"tokenizer", "--nonsense"}), "gpt_data", {"--nonsense"});
    expect_refused(run_program("gpt_data", {"tokenise", "x"}), "gpt_data", {"tokenise"});
    expect_refused(run_program("gpt_train", {}), "gpt_train", {"no config"});
    expect_refused(run_program("gpt_train", {"a.toml", "b.toml"}), "gpt_train", {"b.toml"});
    expect_refused(run_program("gpt_train", {"a.toml", "--optimizer.lr"}), "gpt_train", {"--optimizer.lr"});
    expect_refused(run_program("gpt_data", {}), "gpt_data", {"subcommand"});
    expect_refused(run_program("gpt_generate", {}), "gpt_generate", {"SOURCE"});
    expect_refused(run_program("gpt_generate", {"x", "--max-tokens", "many"}), "gpt_generate",
                   {"--max-tokens", "many"});
    expect_refused(run_program("gpt_generate", {"x", "--samples", "0"}), "gpt_generate", {"--samples"});
    expect_refused(run_program("gpt_generate", {"x", "--seed", "-1"}), "gpt_generate", {"--seed", "'-1'"});
    expect_refused(run_program("gpt_generate", {"x", "--seed", "18446744073709551616"}), "gpt_generate",
                   {"--seed", "18446744073709551615"});
    expect_refused(run_program("gpt_bench", {"step", "x", "--steps", "1.5"}), "gpt_bench", {"--steps", "'1.5'"});
    expect_refused(run_program("gpt_data", {"inspect", "x", "--documents", "-3"}), "gpt_data", {"--documents"});
    expect_refused(run_program("gpt_bench", {}), "gpt_bench", {"subcommand"});
    expect_refused(run_program("gpt_bench", {"step", "/no/such.toml"}), "gpt_bench", {"/no/such.toml"});
    expect_refused(run_program("gpt_bench", {"step"}), "gpt_bench", {"CONFIG"});
}

TEST(CommandLine, TheConfigReferenceIsATable) {
    const Outcome reference = run_program("gpt_train", {"--config-reference"});
    EXPECT_EQ(reference.exit_code, 0);
    for (const char* part : {"**`[run]`**", "| `global_batch_size` |", "| `resume` |", "| Key | Value | Default |"}) {
        EXPECT_NE(reference.out.find(part), std::string::npos) << part;
    }
}

TEST(CommandLine, BenchPrintsItsTables) {
    for (const char* family : {"gpt2", "llama"}) {
        std::vector<std::string> arguments = {"step",
                                              std::string(TESSERA_SOURCE_DIR) + "/configs/gpt2_124m.toml",
                                              "--steps",
                                              "2",
                                              "--warmup",
                                              "1",
                                              "--model.num_layers=2",
                                              "--model.hidden_size=48",
                                              "--model.seq_length=32",
                                              "--model.vocab_size=101",
                                              "--batch.global_batch_size=2",
                                              "--batch.micro_batch_size=1",
                                              "--model.family=" + std::string(family)};
        const Outcome outcome = run_program("gpt_bench", arguments);
        ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
        for (const char* part : {"tokens/s", "model TFLOP/s", "linear_forward", "attention_backward", "adamw",
                                 "activations", "kept by the tape"}) {
            EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
        }
        arguments.emplace_back("--csv");
        const Outcome figures = run_program("gpt_bench", arguments);
        EXPECT_EQ(figures.exit_code, 0) << figures.err;
        EXPECT_LE(std::count(figures.out.begin(), figures.out.end(), '\n'), 2) << figures.out;
    }
}

}  // namespace
}  // namespace tessera

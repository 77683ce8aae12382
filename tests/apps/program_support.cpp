#include "apps/program_support.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "core/philox.h"

namespace tessera::support {
namespace {

namespace fs = std::filesystem;

std::string path_of(const std::string& program) {
    return std::string(TESSERA_BINARY_DIR) + "/apps/" + program;
}

std::string quoted(const std::string& text) {
    std::string result = "'";
    for (const char c : text) {
        if (c == '\'') {
            result += "'\\''";
        } else {
            result += c;
        }
    }
    return result + "'";
}

/// Sentences from a few words, documents apart by blank lines: learnable, and the same on every machine.
std::string make_corpus() {
    const char* words[] = {"the", "cat",  "sat",   "on",   "a",    "mat",   "and",
                           "saw", "blue", "birds", "over", "warm", "hills", "today"};
    std::string text;
    for (std::uint32_t document = 0; document < 600; ++document) {
        const auto words_in = 8 + core::philox4x32_10({document, 1, 0, 0}, {1, 1})[0] % 20;
        for (std::uint32_t i = 0; i < words_in; ++i) {
            text += words[core::philox4x32_10({document, i, 2, 0}, {1, 1})[0] % 14];
            text += i % 7 == 6 ? "\n" : " ";
        }
        text += "end.\n\n";
    }
    return text;
}

}  // namespace

fs::path ProgramTest::folder;

Outcome run_program(const std::string& program, const std::vector<std::string>& arguments,
                    const fs::path& working_directory) {
    static int counter = 0;
    const fs::path out =
            fs::temp_directory_path() / ("tessera_out_" + std::to_string(getpid()) + "_" + std::to_string(counter++));
    std::string command = working_directory.empty() ? "" : "cd " + quoted(working_directory.string()) + " && ";
    command += "timeout 120 " + quoted(path_of(program));
    for (const std::string& argument : arguments) command += " " + quoted(argument);
    command += " >" + quoted(out.string() + ".out") + " 2>" + quoted(out.string() + ".err") + " </dev/null";
    const int status = std::system(command.c_str());
    Outcome outcome{.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                    .out = read_file(out.string() + ".out"),
                    .err = read_file(out.string() + ".err")};
    fs::remove(out.string() + ".out");
    fs::remove(out.string() + ".err");
    return outcome;
}

int start_program(const std::string& program, const std::vector<std::string>& arguments, const fs::path& log) {
    const std::string path = path_of(program);
    std::vector<char*> raw{const_cast<char*>(path.c_str())};
    for (const std::string& argument : arguments) raw.push_back(const_cast<char*>(argument.c_str()));
    raw.push_back(nullptr);
    const pid_t process = fork();
    if (process == 0) {
        const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
        dup2(file, STDOUT_FILENO);
        dup2(file, STDERR_FILENO);
        execv(path.c_str(), raw.data());
        _exit(127);
    }
    return process;
}

int wait_for(int process) {
    int status = 0;
    waitpid(process, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string read_file(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

void write_file(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
}

std::size_t count_of(const std::string& text, const std::string& part) {
    std::size_t count = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
    return count;
}

bool wait_for_text(int process, const fs::path& path, const std::string& part, std::size_t times) {
    bool running = true;
    for (int i = 0; running && i < 12000; ++i) {
        siginfo_t state{};
        running = waitid(P_PID, static_cast<id_t>(process), &state, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                  state.si_pid == 0;
        if (count_of(read_file(path), part) >= times) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
}

std::map<std::string, std::string> contents_of(const fs::path& folder) {
    std::map<std::string, std::string> contents;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
        if (entry.is_regular_file()) {
            contents[fs::relative(entry.path(), folder).string()] = read_file(entry.path());
        }
    }
    return contents;
}

void expect_refused(const Outcome& outcome, const std::string& program, const std::vector<std::string>& parts,
                    int code) {
    EXPECT_EQ(outcome.exit_code, code) << outcome.err;
    const std::string line = last_line(outcome.err);
    EXPECT_EQ(line.rfind(program + ": error: ", 0), 0U) << outcome.err;
    EXPECT_EQ(count_of(outcome.err, ": error: "), 1U) << outcome.err;
    for (const std::string& part : parts) {
        EXPECT_NE(line.find(part), std::string::npos) << "no '" << part << "' in: " << line;
    }
    std::istringstream before(outcome.err.substr(0, outcome.err.rfind(line)));
    for (std::string other; std::getline(before, other);) {
        EXPECT_TRUE(other.find("] info: ") == 20 || other.find("] warning: ") == 20) << other;
    }
}

std::string last_line(const std::string& text) {
    const std::size_t end = text.find_last_not_of('\n');
    if (end == std::string::npos) return "";
    const std::size_t begin = text.rfind('\n', end);
    return text.substr(begin == std::string::npos ? 0 : begin + 1,
                       end - (begin == std::string::npos ? 0 : begin + 1) + 1);
}

void ProgramTest::make_folder() {
    // Threads that spin while others want the cores make a busy machine far slower.
    setenv("OMP_WAIT_POLICY", "passive", 0);
    folder = fs::temp_directory_path() / ("tessera programs " + std::to_string(getpid()));
    fs::create_directories(folder);
}

void ProgramTest::SetUpTestSuite() {
    make_folder();
    write_file(folder / "corpus.txt", make_corpus());
    const Outcome tokenizer = run_program("gpt_data", {"tokenizer", (folder / "corpus.txt").string(), "--output",
                                                       (folder / "tokenizer.model").string(), "--vocab-size", "300"});
    ASSERT_EQ(tokenizer.exit_code, 0) << tokenizer.err;
    const Outcome shards = run_program("gpt_data", {"tokenize", (folder / "corpus.txt").string(), "--tokenizer",
                                                    (folder / "tokenizer.model").string(), "--output",
                                                    (folder / "text").string(), "--validation", "0.1"});
    ASSERT_EQ(shards.exit_code, 0) << shards.err;
}

void ProgramTest::TearDownTestSuite() {
    fs::remove_all(folder);
}

fs::path ProgramTest::config(const std::string& name, const std::string& model, const std::string& rest) const {
    const fs::path path = folder / (name + ".toml");
    std::string text = "[run]\ndirectory = \"runs/" + name + "\"\ntrain_steps = 12\n";
    text += model.empty() ? "[model]\nfamily = \"gpt2\"\nnum_layers = 2\nhidden_size = 36\nnum_attention_heads = "
                            "3\nseq_length = 19\n"
                            "hidden_dropout = 0.1\nattention_dropout = 0.1\n"
                          : model;
    text += "[data]\ntrain = \"text_train_*.h5\"\nvalidation = \"text_validation_*.h5\"\ntokenizer = "
            "\"tokenizer.model\"\n"
            "[batch]\nglobal_batch_size = 6\nmicro_batch_size = 2\n"
            "[optimizer]\nlr = 3e-3\nmin_lr = 1e-4\nclip_grad_norm = 0.5\n"
            "[schedule]\nwarmup_steps = 3\ndecay_steps = 12\n"
            "[evaluation]\ninterval = 6\nsteps = 2\n" +
            rest;
    write_file(path, text);
    return path;
}

Outcome ProgramTest::train(const fs::path& config_path, std::vector<std::string> overrides) const {
    overrides.insert(overrides.begin(), config_path.string());
    return run_program("gpt_train", overrides);
}

Outcome ProgramTest::train_well(const fs::path& config_path, std::vector<std::string> overrides) const {
    Outcome outcome = train(config_path, std::move(overrides));
    EXPECT_EQ(outcome.exit_code, 0) << config_path << "\n" << outcome.err;
    return outcome;
}

fs::path ProgramTest::checkpoint(const std::string& name, std::int64_t step) const {
    const std::string digits = std::to_string(step);
    return run_directory(name) / "checkpoints" / ("step_" + std::string(8 - digits.size(), '0') + digits);
}

std::string ProgramTest::tensors(const std::string& name, std::int64_t step) const {
    std::string bytes;
    for (const char* file : {"rank_00000.safetensors", "rank_00000_optimizer.safetensors"}) {
        const std::string part = read_file(checkpoint(name, step) / file);
        EXPECT_GT(part.size(), 10000U) << checkpoint(name, step) / file;
        bytes += part;
    }
    return bytes;
}

void ProgramTest::expect_same_run(const std::string& one, const std::string& other, std::int64_t step) const {
    EXPECT_TRUE(tensors(one, step) == tensors(other, step)) << one << " and " << other << " after step " << step;
    const auto values = step_values(run_directory(one) / "metrics.jsonl");
    EXPECT_EQ(static_cast<std::int64_t>(values.size()), step);
    EXPECT_EQ(values, step_values(run_directory(other) / "metrics.jsonl")) << one << " and " << other;
}

namespace {

std::string field(const std::string& line, const std::string& key) {
    const std::size_t at = line.find("\"" + key + "\":");
    if (at == std::string::npos) return "";
    const std::size_t begin = at + key.size() + 3;
    return line.substr(begin, line.find_first_of(",}", begin) - begin);
}

}  // namespace

std::vector<std::string> field_of(const fs::path& metrics, const std::string& key) {
    std::vector<std::string> values;
    std::ifstream in(metrics);
    for (std::string line; std::getline(in, line);) {
        if (const std::string value = field(line, key); !value.empty()) values.push_back(value);
    }
    return values;
}

std::vector<std::string> step_values(const fs::path& metrics) {
    std::vector<std::string> values;
    std::ifstream in(metrics);
    for (std::string line; std::getline(in, line);) {
        if (field(line, "grad_norm").empty()) continue;
        std::string value = field(line, "step");
        for (const char* key : {"loss", "grad_norm", "learning_rate", "loss_scale", "consumed_samples"}) {
            value += " " + field(line, key);
        }
        values.push_back(value);
    }
    return values;
}

}  // namespace tessera::support

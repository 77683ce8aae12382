// Completion as bash would ask for it; the other shells' scripts are checked where these shells are installed.
#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "apps/program_support.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using support::Outcome;
using support::run_program;

class Completion : public testing::Test {
protected:
    void SetUp() override {
        folder = fs::temp_directory_path() / ("tessera completion " + std::to_string(getpid()));
        fs::create_directories(folder / "a folder");
        support::write_file(folder / "my run.toml", "");
    }
    void TearDown() override { fs::remove_all(folder); }

    fs::path script(const std::string& program, const std::string& shell) const {
        const Outcome outcome = run_program(program, {"--completion", shell});
        EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
        EXPECT_EQ(outcome.err, "");
        const fs::path path = folder / (program + "." + shell);
        support::write_file(path, outcome.out);
        return path;
    }
    /// What bash proposes for the last of these words (as bash splits them: "=" is a word), sorted.
    std::vector<std::string> proposals(const std::string& program, const std::vector<std::string>& words) const {
        std::string text = "source '" + script(program, "bash").string() + "' || exit 1\nCOMP_WORDS=(" + program;
        for (const std::string& word : words) text += " '" + word + "'";
        text += ")\nCOMP_CWORD=" + std::to_string(words.size()) + "\n_" + program +
                "\nprintf '%s\\n' \"${COMPREPLY[@]}\"\ncomplete -p " + program + " >&2\n";
        const fs::path asked = folder / "asked.bash";
        support::write_file(asked, text);
        const fs::path out = folder / "answer";
        const std::string command = "cd '" + folder.string() + "' && bash --norc '" + asked.string() + "' >'" +
                                    out.string() + "' 2>'" + out.string() + ".err'";
        EXPECT_EQ(std::system(command.c_str()), 0) << support::read_file(out.string() + ".err");
        EXPECT_EQ(support::read_file(out.string() + ".err"), "complete -F _" + program + " " + program + "\n");
        std::vector<std::string> found;
        std::istringstream in(support::read_file(out));
        for (std::string line; std::getline(in, line);) {
            if (!line.empty()) found.push_back(line);
        }
        std::sort(found.begin(), found.end());
        return found;
    }
    static bool installed(const std::string& shell) {
        return std::system(("command -v " + shell + " >/dev/null 2>&1").c_str()) == 0;
    }

    fs::path folder;
};

using Words = std::vector<std::string>;

TEST_F(Completion, OptionsAndConfigKeys) {
    EXPECT_EQ(proposals("gpt_train", {"--dr"}), Words{"--dry-run"});
    EXPECT_EQ(proposals("gpt_train", {"a.toml", "--model.fam"}), Words{"--model.family="});
    EXPECT_EQ(proposals("gpt_train", {"--log.te"}), (Words{"--log.tensorboard=", "--log.tensorboard_directory="}));
    EXPECT_EQ(proposals("gpt_train", {"--nothing"}), Words{});
    const Words all = proposals("gpt_train", {"--"});
    // Every key of the reference is there.
    std::size_t keys = 0;
    std::string section;
    std::istringstream reference(run_program("gpt_train", {"--config-reference"}).out);
    for (std::string line; std::getline(reference, line);) {
        if (line.rfind("**`[", 0) == 0) section = line.substr(4, line.find(']') - 4);
        if (line.rfind("| `", 0) != 0) continue;
        const std::string key = "--" + section + "." + line.substr(3, line.find('`', 3) - 3) + "=";
        EXPECT_NE(std::find(all.begin(), all.end(), key), all.end()) << key;
        ++keys;
    }
    EXPECT_GT(keys, 50U);
    EXPECT_GT(all.size(), keys);
}

TEST_F(Completion, ValuesOfKeysAndOptions) {
    EXPECT_EQ(proposals("gpt_train", {"--model.family", "="}), (Words{"gpt2", "llama"}));
    EXPECT_EQ(proposals("gpt_train", {"--model.family", "=", "l"}), Words{"llama"});
    EXPECT_EQ(proposals("gpt_train", {"--precision.dtype", "=", "f"}), (Words{"f16", "f32"}));
    EXPECT_EQ(proposals("gpt_train", {"a.toml", "--log.tensorboard", "=", ""}), (Words{"false", "true"}));
    EXPECT_EQ(proposals("gpt_train", {"--run.train_steps", "=", ""}), Words{}) << "a number";
    EXPECT_EQ(proposals("gpt_train", {"--completion", ""}), (Words{"bash", "fish", "zsh"}));
    EXPECT_EQ(proposals("gpt_generate", {"run", "--top-k", ""}), Words{});
}

TEST_F(Completion, Files) {
    EXPECT_EQ(proposals("gpt_train", {"my"}), Words{"my run.toml"});
    EXPECT_EQ(proposals("gpt_train", {"--dry-run", "a"}), (Words{"a folder", "answer", "answer.err", "asked.bash"}));
    EXPECT_EQ(proposals("gpt_train", {"--data.tokenizer", "=", "my"}), Words{"my run.toml"});
    EXPECT_EQ(proposals("gpt_generate", {"--prompt-file", "my"}), Words{"my run.toml"});
}

TEST_F(Completion, Subcommands) {
    EXPECT_EQ(proposals("gpt_data", {"tok"}), (Words{"tokenize", "tokenizer"}));
    EXPECT_EQ(proposals("gpt_data", {"tokenizer", "--voc"}), Words{"--vocab-size"});
    EXPECT_EQ(proposals("gpt_data", {"tokenizer", "--model", ""}), (Words{"bpe", "unigram"}));
    EXPECT_EQ(proposals("gpt_data", {"tokenize", "x", "--format", "j"}), Words{"jsonl"});
    EXPECT_EQ(proposals("gpt_data", {"tokenize", "--voc"}), Words{}) << "an option of another subcommand";
    EXPECT_EQ(proposals("gpt_bench", {"step", "--schedule.style", "=", "c"}), (Words{"constant", "cosine"}));
    EXPECT_EQ(proposals("gpt_bench", {"--schedule.st"}), Words{});
}

TEST_F(Completion, ScriptsParse) {
    for (const std::string program : {"gpt_train", "gpt_data", "gpt_generate", "gpt_bench"}) {
        for (const std::string shell : {"bash", "zsh", "fish"}) {
            const std::string path = script(program, shell).string();
            EXPECT_GT(support::read_file(path).size(), 200U) << program << " " << shell;
            if (!installed(shell)) continue;
            EXPECT_EQ(std::system((shell + " -n '" + path + "'").c_str()), 0) << program << " " << shell;
        }
    }
    support::expect_refused(run_program("gpt_train", {"--completion", "tcsh"}), "gpt_train", {"tcsh", "bash"});
}

}  // namespace
}  // namespace tessera

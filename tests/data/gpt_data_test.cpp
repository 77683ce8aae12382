#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "data/data_support.h"
#include "data/packed_support.h"

namespace tessera::data {
namespace {

using test::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Outcome {
    int code;
    std::string out;
    std::string err;
};

Outcome gpt_data(const TemporaryFolder& folder, const std::string& arguments) {
    const std::string command = fmt::format("{}/apps/gpt_data {} >{} 2>{}", TESSERA_BINARY_DIR, arguments,
                                            folder.path("stdout"), folder.path("stderr"));
    const int status = std::system(command.c_str());
    return {WEXITSTATUS(status), test::read_file(folder.path("stdout")), test::read_file(folder.path("stderr"))};
}

void expect_one_line_refusal(const Outcome& outcome, const std::string& part) {
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err, StartsWith("gpt_data: error: "));
    EXPECT_THAT(outcome.err, HasSubstr(part));
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_EQ(outcome.out, "");
}

TEST(GptData, help_and_version_go_to_stdout) {
    const TemporaryFolder folder;
    const Outcome version = gpt_data(folder, "--version");
    EXPECT_EQ(version.code, 0);
    EXPECT_THAT(version.out, StartsWith("gpt_data "));
    for (const char* command : {"tokenizer", "tokenize", "inspect", "verify"}) {
        const Outcome help = gpt_data(folder, fmt::format("{} --help", command));
        EXPECT_EQ(help.code, 0);
        EXPECT_THAT(help.out, HasSubstr("Examples:"));
        EXPECT_EQ(help.err, "");
    }
}

TEST(GptData, mistakes_on_the_command_line_exit_with_2) {
    const TemporaryFolder folder;
    expect_one_line_refusal(gpt_data(folder, ""), "subcommand");
    expect_one_line_refusal(gpt_data(folder, "tokenise x"), "unknown argument 'tokenise'");
    expect_one_line_refusal(gpt_data(folder, "inspect"), "files");
    expect_one_line_refusal(gpt_data(folder, "inspect --nonsense x"), "nonsense");
    expect_one_line_refusal(gpt_data(folder, "tokenizer x.txt -o m --model word"), "word");
    expect_one_line_refusal(gpt_data(folder, "tokenizer /no/such.txt -o " + folder.path("m")),
                            "/no/such.txt no such file");
    expect_one_line_refusal(gpt_data(folder, "inspect /no/such.h5"), "/no/such.h5 does not exist");
}

TEST(GptData, from_text_to_shards_and_back) {
    const TemporaryFolder folder;
    const std::string corpus = folder.file("corpus.txt", test::sample_text(300));
    const Outcome trained =
            gpt_data(folder, fmt::format("tokenizer {} --vocab-size 400 -o {}", corpus, folder.path("made/t.model")));
    EXPECT_EQ(trained.code, 0) << trained.err;
    EXPECT_THAT(trained.out, HasSubstr("vocabulary           400"));
    EXPECT_THAT(trained.err, Not(HasSubstr("LOG(")));
    const std::string options = fmt::format("-t {} -o {}", folder.path("made/t.model"), folder.path("made/c"));
    const Outcome made = gpt_data(folder, fmt::format("tokenize {} {} --validation 0.1 --validation-text {}", corpus,
                                                      options, folder.path("made/v.txt")));
    EXPECT_EQ(made.code, 0) << made.err;
    EXPECT_THAT(made.out, HasSubstr("documents            300"));
    EXPECT_THAT(made.err, ::testing::ContainsRegex("tokenized in [0-9.]+ s: [0-9.]+ MB/s with [0-9]+ thread"));
    EXPECT_TRUE(std::filesystem::exists(folder.path("made/c_validation_00000.h5")));
    const Outcome shown = gpt_data(folder, fmt::format("inspect --check '{}' -t {} --documents 1",
                                                       folder.path("made/c_*.h5"), folder.path("made/t.model")));
    EXPECT_EQ(shown.code, 0) << shown.err;
    EXPECT_THAT(shown.out, HasSubstr("checked"));
    EXPECT_THAT(shown.out, HasSubstr("Syn: naïve – café"));
    expect_one_line_refusal(gpt_data(folder, fmt::format("tokenize {} {}", corpus, options)), "--overwrite");
}

TEST(GptData, a_damaged_packed_file_is_one_line_with_its_place) {
    const TemporaryFolder folder;
    test::small_tokenizer(folder);
    const std::string packed = test::gzip_of(test::sample_text(500));
    const std::string cut = folder.file("cut.txt.gz", packed.substr(0, packed.size() / 2));
    const std::string end = fmt::format("{} is cut off: it ends at byte {}", cut, packed.size() / 2);
    expect_one_line_refusal(gpt_data(folder, fmt::format("tokenizer {} -o {}", cut, folder.path("t.model"))), end);
    expect_one_line_refusal(
            gpt_data(folder, fmt::format("tokenize {} -t {} -o {}", cut, folder.path("small.model"), folder.path("c"))),
            end);
    EXPECT_EQ(folder.names(),
              (std::vector<std::string>{"cut.txt.gz", "small.model", "stderr", "stdout", "tokenizer_corpus.txt"}));
}

TEST(GptData, verify_lists_the_faults_of_all_shards) {
    const TemporaryFolder folder;
    test::write_shard(folder.path("s_0.h5"), {{1, 2}, {3}}, 10, 0);
    test::write_foreign(folder.path("s_1.h5"), {1, -2, 3, -4}, {.type = "i32"});
    folder.file("s_2.h5", "text");
    const std::string missing = folder.path("none.h5");
    const Outcome faulty = gpt_data(folder, fmt::format("verify '{}' {}", folder.path("s_*.h5"), missing));
    EXPECT_EQ(faulty.code, 2);
    EXPECT_EQ(faulty.err,
              "gpt_data: error: 4 faults in 3 of 4 shards; they are listed above, on the standard output\n");
    for (const std::string& line :
         {folder.path("s_0.h5") + ": 5 tokens in 2 documents, no fault found\n",
          folder.path("s_1.h5") + ": token 1 of the shard: token id -2 is negative\n",
          folder.path("s_1.h5") + ": token 3 of the shard: token id -4 is negative\n",
          folder.path("s_1.h5") + ": not checked: the checksum: none is stored\n",
          folder.path("s_1.h5") + ": 4 tokens, 2 faults\n", folder.path("s_2.h5") + ": is not a readable HDF5 file",
          missing + ": does not exist\n"}) {
        EXPECT_THAT(faulty.out, HasSubstr(line));
    }
    EXPECT_EQ(gpt_data(folder, "verify " + folder.path("s_0.h5")).code, 0);
    expect_one_line_refusal(gpt_data(folder, fmt::format("verify '{}'", folder.path("t_*.h5"))), "no shard matches");
}

TEST(GptData, TX_03_hard_and_soft_limits) {
    const TemporaryFolder folder;
    const std::string corpus = folder.file("corpus.txt", test::sample_text(8).substr(0, 1000));
    const std::string command = fmt::format("tokenizer {} --vocab-size 32000 -o {}", corpus, folder.path("t.model"));
    EXPECT_EQ(gpt_data(folder, command).code, 2);
    EXPECT_FALSE(std::filesystem::exists(folder.path("t.model")));
    EXPECT_EQ(gpt_data(folder, command + " --soft-limit").code, 0);
}

TEST(GptData, strict_and_malformed_input) {
    const TemporaryFolder folder;
    test::small_tokenizer(folder);
    const std::string options = fmt::format("-t {} -o {}", folder.path("small.model"), folder.path("c"));
    const std::string text = folder.file("a.txt",
                                         "good\n\nb\xFF"
                                         "d\n");
    expect_one_line_refusal(gpt_data(folder, fmt::format("tokenize --strict {} {}", text, options)), "a.txt at byte 7");
    const Outcome replaced = gpt_data(folder, fmt::format("tokenize {} {}", text, options));
    EXPECT_EQ(replaced.code, 0);
    EXPECT_THAT(replaced.out, HasSubstr("invalid UTF-8        1 replaced by U+FFFD (first: " + text + " at byte 7)"));
    const std::string lines = folder.file("a.jsonl", "{\"text\":\"a\"}\nbroken\n");
    expect_one_line_refusal(gpt_data(folder, fmt::format("tokenize {} {} --overwrite", lines, options)),
                            "a.jsonl:2:1: ");
    const Outcome skipped =
            gpt_data(folder, fmt::format("tokenize {} {} --overwrite --skip-malformed", lines, options));
    EXPECT_EQ(skipped.code, 0);
    EXPECT_THAT(skipped.out, HasSubstr("malformed skipped    1"));
}

}  // namespace
}  // namespace tessera::data

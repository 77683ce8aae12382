// The arrows of docs/design.md section 2, and the rules of the house that a machine can check.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace tessera {
namespace {

namespace fs = std::filesystem;

const std::map<std::string, std::set<std::string>> kMayInclude = {
        {"core", {"core"}},
        {"kernels", {"core", "kernels"}},
        {"parallel", {"core", "parallel"}},
        {"layers", {"core", "kernels", "parallel", "layers"}},
        {"zero", {"core", "kernels", "parallel", "zero"}},
        {"data", {"core", "data"}},
        {"train", {"core", "kernels", "parallel", "layers", "zero", "data", "train"}},
};

struct SourceFile {
    std::string path;  // relative to the source tree
    std::vector<std::string> lines;
};

std::vector<SourceFile> sources(const std::vector<std::string>& folders) {
    std::vector<SourceFile> files;
    for (const std::string& folder : folders) {
        for (const auto& entry : fs::recursive_directory_iterator(fs::path(TESSERA_SOURCE_DIR) / folder)) {
            const std::string extension = entry.path().extension().string();
            if (extension != ".h" && extension != ".cpp" && extension != ".cu" && extension != ".cuh") continue;
            SourceFile file{fs::relative(entry.path(), TESSERA_SOURCE_DIR).string(), {}};
            std::ifstream in(entry.path());
            for (std::string line; std::getline(in, line);) file.lines.push_back(line);
            files.push_back(std::move(file));
        }
    }
    return files;
}

/// A sentence about what is wrong with an include, or nothing.
std::string judge_include(const std::string& path, const std::string& included) {
    static const std::regex room_of_path("src/([a-z]+)/.*");
    std::smatch match;
    if (!std::regex_match(path, match, room_of_path)) return "";
    const std::string room = match[1];
    const std::string target = included.substr(0, included.find('/'));
    if (kMayInclude.count(target) == 0) return "";
    if (room == "zero" && included == "layers/parameter.h") return "";
    if (kMayInclude.at(room).count(target) > 0) return "";
    return path + " includes " + included + ": " + room + " may not look into " + target;
}

/// Vendor headers and the only places that may name them.
std::string judge_vendor_header(const std::string& path, const std::string& included) {
    static const std::vector<std::pair<std::string, std::string>> rooms = {
            {"(cuda|cublas|cudnn|cutlass|cub/|thrust/|nccl).*", "src/[a-z]+/(cuda|nccl)/.*"},
            {"mpi\\.h", "src/parallel/mpi/.*"},
            {"hdf5\\.h", "(src/data|tests/(data|fuzz|support))/.*"},
            {"(dnnl.*)", "(src/kernels/cpu|bench)/.*"},
            {"hwy/.*", "(src/kernels/cpu|bench|tests/kernels)/.*"},
            {"sentencepiece.*", "(src/data|bench|tests/data)/.*"},
    };
    for (const auto& [header, place] : rooms) {
        if (std::regex_match(included, std::regex(header)) && !std::regex_match(path, std::regex(place))) {
            return path + " includes " + included + ", which belongs in " + place;
        }
    }
    return "";
}

TEST(House, IncludesPointDownOnly) {
    const std::regex include(R"re(\s*#\s*include\s*[<"]([^>"]+)[>"].*)re");
    std::size_t seen = 0;
    for (const SourceFile& file : sources({"src", "apps", "tests", "bench"})) {
        for (const std::string& line : file.lines) {
            std::smatch match;
            if (!std::regex_match(line, match, include)) continue;
            ++seen;
            EXPECT_EQ(judge_include(file.path, match[1]), "");
            EXPECT_EQ(judge_vendor_header(file.path, match[1]), "");
        }
    }
    EXPECT_GT(seen, 100U);
}

TEST(House, TheIncludeRuleRejectsAnArrowUp) {
    EXPECT_NE(judge_include("src/core/tensor.h", "kernels/backend.h"), "");
    EXPECT_NE(judge_include("src/zero/optimizer.h", "layers/gpt.h"), "");
    EXPECT_NE(judge_include("src/data/shard.h", "kernels/backend.h"), "");
    EXPECT_EQ(judge_include("src/zero/optimizer.h", "layers/parameter.h"), "");
    EXPECT_NE(judge_vendor_header("src/train/engine.cpp", "hdf5.h"), "");
    EXPECT_NE(judge_vendor_header("src/core/stream.cpp", "cuda_runtime.h"), "");
}

TEST(House, FilesStayUnder500Lines) {
    for (const SourceFile& file : sources({"src", "apps", "tests", "bench"})) {
        EXPECT_LT(file.lines.size(), 500U) << file.path;
    }
}

/// Lines from a body's opening at the left margin (or inside a class) to its closing brace at the same indentation.
TEST(House, FunctionsStayUnder80Lines) {
    const std::regex opening(R"(( {0,4})[^ /#}].*\) ?(const|noexcept|override| )*\{)");
    for (const SourceFile& file : sources({"src", "apps"})) {
        for (std::size_t begin = 0; begin < file.lines.size(); ++begin) {
            std::smatch match;
            if (!std::regex_match(file.lines[begin], match, opening)) continue;
            const std::string closing = match[1].str() + "}";
            std::size_t end = begin + 1;
            while (end < file.lines.size() && file.lines[end].rfind(closing, 0) != 0) ++end;
            EXPECT_LT(end - begin, 80U) << file.path << ":" << begin + 1;
        }
    }
}

TEST(House, NamesSayWhatAThingIs) {
    const std::regex vague(".*(utils|helper|manager|_new|_v2|fast_|_fast|optimized).*");
    for (const SourceFile& file : sources({"src", "apps"})) {
        EXPECT_FALSE(std::regex_match(fs::path(file.path).filename().string(), vague)) << file.path;
    }
}

TEST(House, NoMarksOfUnfinishedWork) {
    const std::regex mark(".*\\b(TODO|FIXME|XXX|HACK)\\b.*");
    for (const SourceFile& file : sources({"src", "apps"})) {
        for (std::size_t i = 0; i < file.lines.size(); ++i) {
            EXPECT_FALSE(std::regex_match(file.lines[i], mark)) << file.path << ":" << i + 1;
        }
    }
}

TEST(House, TheCoreDoesNotExit) {
    const std::regex leave(R"(.*[^_a-z](exit|_exit|quick_exit)\(.*)");
    for (const SourceFile& file : sources({"src"})) {
        for (std::size_t i = 0; i < file.lines.size(); ++i) {
            EXPECT_FALSE(std::regex_match(file.lines[i], leave)) << file.path << ":" << i + 1;
        }
    }
}

}  // namespace
}  // namespace tessera

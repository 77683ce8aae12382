// docs/cases.md says which test holds each known trouble of others: what it says must be so.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// Cases of each group: CK-01 to CK-19 and so on.
const std::map<std::string, int> kGroups = {{"CF", 9}, {"CK", 19}, {"DA", 20}, {"DI", 7},  {"EX", 4}, {"GE", 5},
                                            {"IN", 3}, {"LO", 3},  {"ME", 5},  {"NU", 15}, {"TX", 10}};

struct NamedTest {
    std::string name;  ///< Suite.Name
    std::string file;  ///< below tests/
};

struct Row {
    std::string id;  ///< CK-01
    std::string requirement;
    std::string entry;
    std::vector<NamedTest> tests;
};

std::string read_file(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

template <typename Visit>
void for_each_match(const std::string& text, const std::regex& pattern, Visit&& visit) {
    for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match) visit(*match);
}

/// Rows "| CK-01 | requirement | entry |"; an entry names its tests as `Suite.Name` (file).
std::vector<Row> read_rows(const std::string& text) {
    static const std::regex row_pattern(R"(\| ([A-Z]{2}-[0-9]{2}) \| ([^|\n]*) \| ([^|\n]*) \|)");
    static const std::regex test_pattern(R"(`([A-Z][A-Za-z0-9]*\.[A-Za-z0-9_]+)`( \(([a-z0-9_/]+\.cpp)\))?)");
    std::vector<Row> rows;
    for_each_match(text, row_pattern, [&](const std::smatch& match) {
        Row row{match[1], match[2], match[3], {}};
        for_each_match(row.entry, test_pattern,
                       [&](const std::smatch& test) { row.tests.push_back({.name = test[1], .file = test[3]}); });
        rows.push_back(std::move(row));
    });
    return rows;
}

/// "CK_01" and "CK01" in a name are CK-01; two letters that name no group are none.
std::set<std::string> ids_of(const std::string& name) {
    static const std::regex id_pattern("([A-Z]{2})_?([0-9]{2})(?![0-9])");
    std::set<std::string> ids;
    for_each_match(name, id_pattern, [&](const std::smatch& match) {
        if (kGroups.count(match[1]) > 0) ids.insert(match[1].str() + "-" + match[2].str());
    });
    return ids;
}

std::vector<NamedTest> read_tests(const std::string& source, const std::string& file) {
    static const std::regex pattern(R"(\bTEST(_F|_P)?\(\s*([A-Za-z0-9]+),\s*([A-Za-z0-9_]+)\))");
    std::vector<NamedTest> tests;
    for_each_match(source, pattern, [&](const std::smatch& match) {
        tests.push_back({.name = match[2].str() + "." + match[3].str(), .file = file});
    });
    return tests;
}

/// A sentence for everything in which the table, the tests and the list of cases disagree.
std::vector<std::string> disagreements(const std::vector<Row>& rows, const std::vector<NamedTest>& tests,
                                       const std::map<std::string, int>& groups) {
    std::vector<std::string> found;
    std::map<std::string, std::string> file_of;
    for (const NamedTest& test : tests) file_of[test.name] = test.file;
    std::map<std::string, const Row*> row_of;
    for (const Row& row : rows) {
        if (!row_of.emplace(row.id, &row).second) found.push_back(row.id + " has two rows");
        const auto group = groups.find(row.id.substr(0, 2));
        if (group == groups.end() || std::stoi(row.id.substr(3)) > group->second)
            found.push_back(row.id + " is no case");
        if (row.requirement.size() < 10) found.push_back(row.id + " does not say what is required");
        if (row.tests.empty() && row.entry.rfind("needs ", 0) != 0 && row.entry.rfind("not built yet", 0) != 0) {
            found.push_back(row.id + " has neither a test nor a reason why not");
        }
        for (const NamedTest& test : row.tests) {
            const auto file = file_of.find(test.name);
            if (file == file_of.end()) {
                found.push_back(row.id + " names " + test.name + ", which does not exist");
            } else if (file->second != test.file) {
                found.push_back(row.id + " names " + test.name + " in '" + test.file + "', but it is in " +
                                file->second);
            }
            if (ids_of(test.name).count(row.id) == 0) found.push_back(test.name + " does not bear the id " + row.id);
        }
    }
    for (const auto& [group, count] : groups) {
        for (int number = 1; number <= count; ++number) {
            const std::string id = group + (number < 10 ? "-0" : "-") + std::to_string(number);
            if (row_of.count(id) == 0) found.push_back(id + " has no row");
        }
    }
    for (const NamedTest& test : tests) {
        for (const std::string& id : ids_of(test.name)) {
            if (row_of.count(id) == 0) {
                found.push_back(test.name + " bears the id " + id + ", which has no row");
            } else if (row_of[id]->tests.empty()) {
                found.push_back(test.name + " bears the id " + id + ", whose row names no test");
            }
        }
    }
    return found;
}

TEST(Cases, TheTableAndTheTestsAgree) {
    const fs::path root = TESSERA_SOURCE_DIR;
    std::vector<NamedTest> tests;
    for (const auto& entry : fs::recursive_directory_iterator(root / "tests")) {
        // This file's made-up tests are none.
        if (entry.path().extension() != ".cpp" || entry.path().filename() == "cases_test.cpp") continue;
        const std::vector<NamedTest> more =
                read_tests(read_file(entry.path()), fs::relative(entry.path(), root / "tests").string());
        tests.insert(tests.end(), more.begin(), more.end());
    }
    EXPECT_GT(tests.size(), 100U);
    const std::vector<Row> rows = read_rows(read_file(root / "docs/cases.md"));
    for (const std::string& sentence : disagreements(rows, tests, kGroups))
        ADD_FAILURE() << sentence << " (scripts/update_cases writes the tests into the table)";
}

TEST(Cases, EachDisagreementIsFound) {
    const std::map<std::string, int> groups = {{"CK", 2}, {"GE", 2}};
    const std::string sound =
            "| CK-01 | a save is whole or absent | `Runs.Killed_CK_01` (apps/a_test.cpp), once more: "
            "`Files.CK01_Cut` (b_test.cpp) |\n"
            "| CK-02 | a full disk is found early | needs a disk of its own |\n"
            "| GE-01 | zero is greedy, not an error | `Text.Greedy_GE_01_GE_02` (c_test.cpp) |\n"
            "| GE-02 | the cache changes nothing | `Text.Greedy_GE_01_GE_02` (c_test.cpp) |\n";
    const std::vector<NamedTest> tests =
            read_tests("TEST(Runs, Killed_CK_01) {\nTEST_P(Other, Thing_F16) {\n", "apps/a_test.cpp");
    auto all = [&](const std::string& more) {
        std::vector<NamedTest> result = tests;
        for (const NamedTest& test : read_tests("TEST_F(Files, CK01_Cut) {" + more, "b_test.cpp"))
            result.push_back(test);
        for (const NamedTest& test : read_tests("TEST(Text,\n     Greedy_GE_01_GE_02) {", "c_test.cpp")) {
            result.push_back(test);
        }
        return result;
    };
    ASSERT_EQ(all("").size(), 4U);
    auto found = [&](const std::string& table, const std::vector<NamedTest>& present) {
        const std::vector<std::string> sentences = disagreements(read_rows(table), present, groups);
        return sentences.size() == 1 ? sentences.front() : std::to_string(sentences.size()) + " disagreements";
    };
    EXPECT_EQ(found(sound, all("")), "0 disagreements");
    std::vector<NamedTest> fewer = all("");
    fewer.erase(fewer.begin());
    EXPECT_EQ(found(sound, fewer), "CK-01 names Runs.Killed_CK_01, which does not exist");
    EXPECT_EQ(found(sound, all("TEST(New, One_GE_07) {")), "New.One_GE_07 bears the id GE-07, which has no row");
    EXPECT_EQ(found(sound, all("TEST(New, One_CK_02) {")), "New.One_CK_02 bears the id CK-02, whose row names no test");
    const auto with = [&](const std::string& from, const std::string& to) {
        std::string table = sound;
        return table.replace(table.find(from), from.size(), to);
    };
    EXPECT_EQ(found(with("(b_test.cpp)", "(d_test.cpp)"), all("")),
              "CK-01 names Files.CK01_Cut in 'd_test.cpp', but it is in b_test.cpp");
    EXPECT_EQ(found(with("needs a disk", "a disk"), all("")), "CK-02 has neither a test nor a reason why not");
    EXPECT_EQ(found(with("`Files.CK01_Cut` (b_test.cpp)", "`Other.Thing_F16` (apps/a_test.cpp)"), all("")),
              "Other.Thing_F16 does not bear the id CK-01");
    EXPECT_EQ(found(with("| CK-02 |", "| CK-2 |"), all("")), "CK-02 has no row");
    EXPECT_EQ(found(sound + "| GE-03 | one case too many | needs several processes |\n", all("")), "GE-03 is no case");
    EXPECT_EQ(found(with("a full disk is found early", "x"), all("")), "CK-02 does not say what is required");
    EXPECT_EQ(found(sound + "| CK-01 | the same once more | needs several processes |\n", all("")),
              "CK-01 has two rows");
}

}  // namespace
}  // namespace tessera

#include "train/profile_table.h"

#include <gmock/gmock.h>

#include <sstream>
#include <vector>

namespace tessera::train {
namespace {

using kernels::Op;
using testing::HasSubstr;

/// Two steps of 0.5 s: 0.8 s in operations, 0.1 s waiting, 0.1 s elsewhere.
Profile example() {
    Profile profile;
    profile.steps = 2;
    profile.seconds = 1;
    profile.data_wait_seconds = 0.1;
    profile.operations.add(Op::adamw, {.flops = 0, .bytes = 4e9}, 0.2);
    profile.operations.add(Op::linear_forward, {.flops = 3e10, .bytes = 1e9}, 0.3);
    profile.operations.add(Op::linear_forward, {.flops = 3e10, .bytes = 1e9}, 0.3);
    return profile;
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

std::string without_spaces(const std::string& line) {
    std::istringstream in(line);
    std::string joined;
    for (std::string word; in >> word;) joined += (joined.empty() ? "" : " ") + word;
    return joined;
}

TEST(ProfileTable, SharesAddUpToTheStep) {
    const std::vector<std::string> lines = lines_of(operation_table(example()));
    ASSERT_EQ(lines.size(), 6U);
    EXPECT_EQ(without_spaces(lines[0]), "operation (a step) calls ms share GFLOP/s GB/s");
    EXPECT_EQ(without_spaces(lines[1]), "linear_forward 1 300.00 60.0% 100.0 3.33");
    // One call in two steps, rounded to even; no FLOPs to count.
    EXPECT_EQ(without_spaces(lines[2]), "adamw 0 100.00 20.0% 20.00");
    EXPECT_EQ(without_spaces(lines[3]), "waiting for data 50.00 10.0%");
    EXPECT_EQ(without_spaces(lines[4]), "host, outside operations 50.00 10.0%");
    EXPECT_EQ(without_spaces(lines[5]), "whole step 2 500.00 100.0% 60.0 6.00");
    for (const std::string& line : lines) EXPECT_LE(line.size(), 80U) << line;
}

TEST(ProfileTable, ABenchmarkWaitsForNoData) {
    Profile profile = example();
    profile.data_wait_seconds.reset();
    const std::string table = operation_table(profile);
    EXPECT_EQ(table.find("waiting"), std::string::npos) << table;
    EXPECT_THAT(without_spaces(lines_of(table)[3]), "host, outside operations 100.00 20.0%");
}

TEST(ProfileTable, ClocksThatDisagreeGiveNoNegativeRest) {
    Profile profile = example();
    profile.seconds = 0.85;
    EXPECT_THAT(operation_table(profile), HasSubstr(" 0.00    0.0%"));
    EXPECT_EQ(operation_table(profile).find('-'), std::string::npos);
}

TEST(ProfileTable, MemoryByCategory) {
    constexpr std::int64_t kMiB = 1 << 20;
    Profile profile = example();
    auto& activations = profile.memory.by_category[static_cast<std::size_t>(core::MemoryCategory::activations)];
    activations = {.current_bytes = 0, .peak_bytes = 3 * kMiB, .bytes_at_peak = 2 * kMiB};
    profile.memory.by_arena[0].peak_reserved_bytes = 4 * kMiB;
    profile.memory.by_arena[1].peak_reserved_bytes = 5 * kMiB;
    profile.memory.peak_bytes = 7 * kMiB;
    profile.saved_bytes = kMiB / 2;
    profile.peak_resident_bytes = 20 * kMiB;
    const std::vector<std::string> lines = lines_of(memory_table(profile));
    ASSERT_EQ(lines.size(), 6U) << "categories that held nothing are left out";
    EXPECT_EQ(without_spaces(lines[1]), "activations 2.0 3.0");
    EXPECT_EQ(without_spaces(lines[2]), "total 7.0");
    EXPECT_EQ(without_spaces(lines[3]), "reserved from the system 9.0");
    EXPECT_EQ(without_spaces(lines[4]), "kept by the tape 0.5");
    EXPECT_EQ(without_spaces(lines[5]), "resident set of the process, peak 20.0");
}

TEST(ProfileTable, TheResidentPeakFollowsWhatIsTouched) {
    const std::int64_t before = peak_resident_bytes();
    EXPECT_GT(before, 1 << 20);
    std::vector<char> block(std::size_t{256} << 20U, 1);
    EXPECT_GE(peak_resident_bytes(), static_cast<std::int64_t>(block.size()));
    EXPECT_GE(peak_resident_bytes(), before);
}

}  // namespace
}  // namespace tessera::train

#include "train/durable_file.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "core/error.h"
#include "file_size_limit.h"
#include "temporary_folder.h"

namespace tessera::train {
namespace {

using core::EnvironmentError;
using testing::AllOf;
using testing::HasSubstr;

std::size_t entries(const std::string& folder) {
    return static_cast<std::size_t>(
            std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}

TEST(DurableFile, WritesWhatItIsGiven) {
    TemporaryFolder folder;
    DurableFile file(folder.path("a"));
    file.write("first ");
    file.write(std::string_view{});
    file.write("second");
    EXPECT_EQ(file.bytes_written(), 12);
    file.sync_and_close();
    EXPECT_EQ(read_bytes(folder.path("a")), "first second");
    EXPECT_EQ(read_text_file(folder.path("a")), "first second");
}

TEST(DurableFile, ReplaceIsWholeAndLeavesNothingBehind) {
    TemporaryFolder folder;
    replace_file(folder.path("latest"), "one");
    replace_file(folder.path("latest"), "two");
    EXPECT_EQ(read_bytes(folder.path("latest")), "two");
    EXPECT_EQ(entries(folder.path()), 1U);
}

TEST(DurableFile, CK02_AFullDiskIsAnErrorWithNumbersAndKeepsTheOldFile) {
    TemporaryFolder folder;
    replace_file(folder.path("latest"), "one");
    const FileSizeLimit limit(1000);
    const std::string message =
            message_of<EnvironmentError>([&] { replace_file(folder.path("latest"), std::string(3000, 'x')); });
    EXPECT_THAT(message, AllOf(HasSubstr("latest.tmp-"), HasSubstr("1000 bytes written, 2000 more needed"),
                               HasSubstr(" free)")));
    EXPECT_EQ(read_bytes(folder.path("latest")), "one");
    EXPECT_EQ(entries(folder.path()), 1U);
}

TEST(DurableFile, TryFileSizeAsksBeforehand) {
    TemporaryFolder folder;
    try_file_size(folder.path("trial"), 1000);
    EXPECT_EQ(entries(folder.path()), 0U);
    {
        const FileSizeLimit limit(1000);
        EXPECT_THAT(message_of<EnvironmentError>([&] { try_file_size(folder.path("trial"), 5000); }),
                    AllOf(HasSubstr("no room for a file of 5000 bytes"), HasSubstr(folder.path())));
    }
    EXPECT_EQ(entries(folder.path()), 0U);
    EXPECT_THAT(message_of<EnvironmentError>([&] { try_file_size(folder.path("no/trial"), 1); }),
                HasSubstr("cannot write to the folder '" + folder.path("no") + "'"));
}

TEST(DurableFile, ErrorsNameThePath) {
    TemporaryFolder folder;
    EXPECT_THAT(message_of<EnvironmentError>([&] { DurableFile file(folder.path("no/a")); }), HasSubstr("no/a"));
    EXPECT_THAT(message_of<EnvironmentError>([&] { read_text_file(folder.path("absent")); }), HasSubstr("absent"));
    EXPECT_THAT(message_of<EnvironmentError>([&] { read_text_file(folder.path()); }), HasSubstr(folder.path()));
    EXPECT_THAT(message_of<EnvironmentError>([&] { sync_folder(folder.path("absent")); }), HasSubstr("absent"));
    EXPECT_GT(free_bytes(folder.path()), 0);
}

}  // namespace
}  // namespace tessera::train

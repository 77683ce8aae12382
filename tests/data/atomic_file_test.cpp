#include "data/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "data/data_support.h"

namespace tessera::data {
namespace {

using test::TemporaryFolder;
using ::testing::ElementsAre;

TEST(AtomicFile, appears_only_when_complete) {
    const TemporaryFolder folder;
    folder.file("a", "old");
    {
        AtomicFile file(folder.path("a"));
        file.write("new", 3);
        EXPECT_EQ(test::read_file(folder.path("a")), "old");
    }
    EXPECT_THAT(folder.names(), ElementsAre("a"));
    EXPECT_EQ(test::read_file(folder.path("a")), "old");
    AtomicFile file(folder.path("a"));
    file.write("ne", 2);
    file.write("w", 1);
    file.commit();
    EXPECT_EQ(test::read_file(folder.path("a")), "new");
    EXPECT_THAT(folder.names(), ElementsAre("a"));
}

TEST(AtomicFile, makes_its_folder_and_refuses_what_cannot_be_one) {
    const TemporaryFolder folder;
    AtomicFile file(folder.path("x/y/a"));
    file.commit();
    EXPECT_EQ(test::read_file(folder.path("x/y/a")), "");
    folder.file("plain", "");
    EXPECT_THROW(AtomicFile(folder.path("plain/a")), core::UserError);
}

}  // namespace
}  // namespace tessera::data

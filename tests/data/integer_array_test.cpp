#include "data/integer_array.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "data/data_support.h"

namespace tessera::data {
namespace {

using test::ForeignShard;
using test::Layout;
using test::TemporaryFolder;
using test::write_foreign;

TEST(IntegerArray, every_type_layout_and_rank_reads_the_same) {
    const TemporaryFolder folder;
    const std::vector<std::int64_t> values = test::counting(120, 113);
    const auto open_datasets = std::make_shared<OpenDatasets>();
    for (const char* type : {"u8", "u16", "i32", "i64", "u32be", "i16be"}) {
        for (const Layout layout : {Layout::contiguous, Layout::chunked, Layout::compressed}) {
            for (const std::int64_t row_length : {0, 12, 1}) {
                const std::string path = folder.path("a.h5");
                write_foreign(path, values,
                              {.dataset = "ids", .type = type, .layout = layout, .row_length = row_length});
                const IntegerArray array = IntegerArray::open(path, "ids", std::make_shared<OpenDatasets>());
                ASSERT_EQ(array.size(), 120);
                const bool native = std::string(type).find("be") == std::string::npos;
                EXPECT_EQ(array.is_mapped(), native && layout == Layout::contiguous) << type;
                for (const std::int64_t first : {0, 1, 11, 12, 13, 119}) {
                    for (const std::int64_t count : {0, 1, 2, 12, 31, 120}) {
                        if (first + count > 120) continue;
                        std::vector<std::int64_t> read(static_cast<std::size_t>(count) + 1, -7);
                        array.read(first, std::span(read).first(static_cast<std::size_t>(count)));
                        for (std::int64_t k = 0; k < count; ++k)
                            EXPECT_EQ(read[static_cast<std::size_t>(k)], values[static_cast<std::size_t>(first + k)]);
                        EXPECT_EQ(read.back(), -7);
                    }
                }
            }
        }
    }
}

TEST(IntegerArray, datasets_closed_for_others_open_again) {
    const TemporaryFolder folder;
    const auto open_datasets = std::make_shared<OpenDatasets>(2);
    std::vector<IntegerArray> arrays;
    for (int k = 0; k < 5; ++k) {
        const std::string path = folder.path(fmt::format("{}.h5", k));
        write_foreign(path, {k, k + 1, k + 2}, {.layout = Layout::chunked});
        arrays.push_back(IntegerArray::open(path, "tokens", open_datasets));
    }
    for (int round = 0; round < 3; ++round) {
        for (int k = 0; k < 5; ++k) {
            std::int64_t value = -1;
            arrays[static_cast<std::size_t>(k)].read(2, {&value, 1});
            EXPECT_EQ(value, k + 2);
        }
    }
}

TEST(IntegerArray, negative_and_huge_values_keep_their_sense) {
    const TemporaryFolder folder;
    write_foreign(folder.path("a.h5"), {-5, INT64_MIN, INT64_MAX}, {.type = "i64"});
    const IntegerArray array = IntegerArray::open(folder.path("a.h5"), "tokens", std::make_shared<OpenDatasets>());
    std::vector<std::int64_t> read(3);
    array.read(0, read);
    EXPECT_EQ(read, (std::vector<std::int64_t>{-5, INT64_MIN, INT64_MAX}));
}

}  // namespace
}  // namespace tessera::data

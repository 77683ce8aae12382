#include "core/memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "core/tensor.h"

namespace tessera::core {
namespace {

TEST(MemoryPool, CountsByCategoryAndArena) {
    MemoryPool pool(DeviceType::cpu);
    auto parameters = pool.allocate(1000, MemoryCategory::parameters);
    auto activations = pool.allocate(1, MemoryCategory::activations);
    auto statistics = pool.statistics();
    EXPECT_EQ(statistics[MemoryCategory::parameters].current_bytes, 1024);
    EXPECT_EQ(statistics[MemoryCategory::activations].current_bytes, 64);
    EXPECT_EQ(statistics.by_arena[0].allocated_bytes, 1024);
    EXPECT_EQ(statistics.by_arena[1].allocated_bytes, 64);
    activations.reset();
    statistics = pool.statistics();
    EXPECT_EQ(statistics[MemoryCategory::activations].current_bytes, 0);
    EXPECT_EQ(statistics[MemoryCategory::activations].bytes_at_peak, 64);
    EXPECT_EQ(statistics.peak_bytes, 1088);
    EXPECT_EQ(statistics.current_bytes, 1024);
}

TEST(MemoryPool, FreedBlocksJoinAndAreReused) {
    MemoryPool pool(DeviceType::cpu);
    auto a = pool.allocate(std::int64_t{1} << 20, MemoryCategory::activations);
    auto b = pool.allocate(std::int64_t{1} << 20, MemoryCategory::activations);
    auto c = pool.allocate(std::int64_t{1} << 20, MemoryCategory::activations);
    std::byte* first = a->data();
    a.reset();
    c.reset();
    b.reset();
    const auto joined = pool.statistics().by_arena[1];
    EXPECT_EQ(joined.largest_free_bytes, joined.reserved_bytes);
    EXPECT_EQ(pool.allocate(std::int64_t{3} << 20, MemoryCategory::activations)->data(), first);
    pool.trim();
    EXPECT_EQ(pool.statistics().by_arena[1].reserved_bytes, 0);
}

TEST(MemoryPool, ABlockWaitsForTheEventOfItsLastUser) {
    MemoryPool pool(DeviceType::cpu);
    auto block = pool.allocate(4096, MemoryCategory::activations);
    std::byte* address = block->data();
    const Event event = Event::pending();
    block->record_use(event);
    block.reset();
    auto other = pool.allocate(4096, MemoryCategory::activations);
    EXPECT_NE(other->data(), address);
    EXPECT_EQ(pool.statistics().current_bytes, 8192);
    event.complete();
    auto again = pool.allocate(4096, MemoryCategory::activations);
    EXPECT_EQ(again->data(), address);
}

TEST(MemoryPool, RandomTrafficNeverOverlaps) {
    MemoryPool pool(DeviceType::cpu);
    std::mt19937 random(7);
    struct Held {
        std::shared_ptr<Storage> storage;
        unsigned char mark;
    };
    std::vector<Held> held;
    for (int step = 0; step < 3000; ++step) {
        if (held.size() < 40 || random() % 2 == 0) {
            const std::int64_t bytes = random() % 5 == 0 ? random() % 3000000 : random() % 5000;
            const auto category = static_cast<MemoryCategory>(random() % kMemoryCategories);
            auto storage = pool.allocate(bytes, category);
            ASSERT_EQ(reinterpret_cast<std::uintptr_t>(storage->data()) % 64, 0U);
            const auto mark = static_cast<unsigned char>(random());
            std::memset(storage->data(), mark, static_cast<std::size_t>(storage->bytes()));
            held.push_back({std::move(storage), mark});
        } else {
            const std::size_t index = random() % held.size();
            const auto* bytes = reinterpret_cast<const unsigned char*>(held[index].storage->data());
            ASSERT_EQ(bytes[0], held[index].mark);
            ASSERT_EQ(bytes[held[index].storage->bytes() - 1], held[index].mark);
            held.erase(held.begin() + static_cast<std::ptrdiff_t>(index));
        }
    }
    held.clear();
    EXPECT_EQ(pool.statistics().current_bytes, 0);
}

TEST(MemoryPool, MetaCountsWhatTheCpuWouldUse) {
    MemoryPool cpu(DeviceType::cpu);
    MemoryPool meta(DeviceType::meta);
    std::vector<std::shared_ptr<Storage>> kept;
    for (std::int64_t bytes : {100, 5000000, 64, 30000000, 7}) {
        kept.push_back(cpu.allocate(bytes, MemoryCategory::activations));
        kept.push_back(meta.allocate(bytes, MemoryCategory::activations));
    }
    EXPECT_EQ(cpu.statistics().peak_bytes, meta.statistics().peak_bytes);
    EXPECT_EQ(cpu.statistics().by_arena[1].reserved_bytes, meta.statistics().by_arena[1].reserved_bytes);
}

TEST(MemoryPool, RefusalNamesTheSize) {
    MemoryPool pool(DeviceType::cpu);
    try {
        pool.allocate(std::int64_t{1} << 60, MemoryCategory::parameters);
        FAIL() << "an exbibyte was allocated";
    } catch (const EnvironmentError& error) {
        EXPECT_NE(std::string(error.what()).find("1152921504606846976"), std::string::npos) << error.what();
    }
}

}  // namespace
}  // namespace tessera::core

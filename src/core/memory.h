#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "core/device.h"
#include "core/stream.h"

namespace tessera::core {

/// What a block of memory is for; the account is kept by category (docs/design.md section 1, tenet 3).
enum class MemoryCategory : std::uint8_t { parameters, gradients, optimizer, activations, logits, buffers, workspace };
inline constexpr std::size_t kMemoryCategories = 7;

std::string_view name_of(MemoryCategory category);

/// Long-lived blocks (parameters, gradients, optimizer state, buffers) and short-lived ones (activations, logits,
/// workspace) come from separate arenas, so that neither fragments the other.
enum class ArenaKind : std::uint8_t { long_lived, short_lived };

constexpr ArenaKind arena_of(MemoryCategory category) {
    return category == MemoryCategory::activations || category == MemoryCategory::logits ||
                           category == MemoryCategory::workspace
                   ? ArenaKind::short_lived
                   : ArenaKind::long_lived;
}

struct ArenaStatistics {
    std::int64_t reserved_bytes = 0;       ///< taken from the device
    std::int64_t peak_reserved_bytes = 0;  ///< the most that was ever taken
    std::int64_t allocated_bytes = 0;      ///< handed out
    std::int64_t largest_free_bytes = 0;   ///< largest block that could be handed out without reserving more
};

struct CategoryStatistics {
    std::int64_t current_bytes = 0;
    std::int64_t peak_bytes = 0;     ///< this category's own peak
    std::int64_t bytes_at_peak = 0;  ///< its share at the moment of the total's peak
};

struct MemoryStatistics {
    std::array<CategoryStatistics, kMemoryCategories> by_category{};
    std::array<ArenaStatistics, 2> by_arena{};
    std::int64_t current_bytes = 0;
    std::int64_t peak_bytes = 0;
    const CategoryStatistics& operator[](MemoryCategory category) const {
        return by_category[static_cast<std::size_t>(category)];
    }
};

class MemoryPool;

/// A block of device memory, returned to its pool when the last tensor lets go of it and the events of its users have
/// completed. On meta the address is a number that must not be dereferenced.
class Storage {
public:
    Storage(MemoryPool& pool, std::byte* data, std::int64_t bytes, MemoryCategory category)
        : pool_(pool), data_(data), bytes_(bytes), category_(category) {}
    ~Storage();
    Storage(const Storage&) = delete;
    Storage& operator=(const Storage&) = delete;

    std::byte* data() const { return data_; }
    std::int64_t bytes() const { return bytes_; }
    MemoryCategory category() const { return category_; }
    DeviceType device() const;
    /// The block is not handed out again before this event has completed.
    void record_use(Event event) { users_.push_back(std::move(event)); }

private:
    MemoryPool& pool_;
    std::byte* data_;
    std::int64_t bytes_;
    MemoryCategory category_;
    std::vector<Event> users_;
};

/// Two arenas of cached segments with best-fit blocks that are split and joined; every byte is counted by category.
/// Thread-safe. Must outlive its storages. The meta pool runs the same code over addresses nobody touches, so that what
/// it counts is what the CPU would use.
class MemoryPool {
public:
    explicit MemoryPool(DeviceType device) : device_(device) {}
    ~MemoryPool();
    MemoryPool(const MemoryPool&) = delete;
    MemoryPool& operator=(const MemoryPool&) = delete;

    /// At least `bytes` bytes (0 is allowed), aligned to 64. The contents are undefined.
    /// Throws EnvironmentError with both numbers when the machine refuses.
    std::shared_ptr<Storage> allocate(std::int64_t bytes, MemoryCategory category);

    DeviceType device() const { return device_; }
    MemoryStatistics statistics() const;
    /// The peaks start again from the present use.
    void reset_peaks();
    /// Gives wholly free segments back to the machine.
    void trim();

private:
    friend class Storage;
    struct Block {
        std::int64_t bytes = 0;
        bool free = true;
    };
    struct Segment {
        std::byte* base = nullptr;
        std::int64_t bytes = 0;
        std::map<std::int64_t, Block> blocks;  // by offset
    };
    struct Arena {
        std::map<std::byte*, Segment> segments;
        std::multimap<std::int64_t, std::byte*> free_blocks;  // size -> address
        std::int64_t reserved_bytes = 0;
        std::int64_t peak_reserved_bytes = 0;
        std::int64_t allocated_bytes = 0;
    };
    struct Deferred {
        std::byte* data;
        std::int64_t bytes;
        MemoryCategory category;
        std::vector<Event> users;
    };

    void release(std::byte* data, std::int64_t bytes, MemoryCategory category, std::vector<Event> users);
    std::byte* take(Arena& arena, std::int64_t bytes);
    void put_back(Arena& arena, std::byte* data);
    void remove_free(Arena& arena, std::byte* data, std::int64_t bytes);
    Segment& segment_of(Arena& arena, std::byte* data);
    std::byte* map_segment(std::int64_t bytes);
    void unmap_segment(std::byte* base, std::int64_t bytes);
    void collect_deferred();

    DeviceType device_;
    mutable std::mutex mutex_;
    std::array<Arena, 2> arenas_{};
    std::array<CategoryStatistics, kMemoryCategories> categories_{};
    std::vector<Deferred> deferred_;
    std::int64_t current_bytes_ = 0;
    std::int64_t peak_bytes_ = 0;
    std::uintptr_t next_virtual_ = std::uintptr_t{1} << 40;
};

}  // namespace tessera::core

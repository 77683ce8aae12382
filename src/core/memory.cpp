#include "core/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "core/rounding.h"

namespace tessera::core {
namespace {

constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kHugePage = std::int64_t{2} << 20;
constexpr std::int64_t kSmallestSegment = std::int64_t{16} << 20;

}  // namespace

std::string_view name_of(MemoryCategory category) {
    switch (category) {
        case MemoryCategory::parameters:
            return "parameters";
        case MemoryCategory::gradients:
            return "gradients";
        case MemoryCategory::optimizer:
            return "optimizer";
        case MemoryCategory::activations:
            return "activations";
        case MemoryCategory::logits:
            return "logits";
        case MemoryCategory::buffers:
            return "buffers";
        case MemoryCategory::workspace:
            return "workspace";
    }
    return "?";
}

Storage::~Storage() {
    pool_.release(data_, bytes_, category_, std::move(users_));
}

DeviceType Storage::device() const {
    return pool_.device();
}

MemoryPool::~MemoryPool() {
    for (Arena& arena : arenas_) {
        for (auto& [base, segment] : arena.segments) unmap_segment(base, segment.bytes);
    }
}

std::byte* MemoryPool::map_segment(std::int64_t bytes) {
    if (device_ == DeviceType::meta) {
        auto* base = reinterpret_cast<std::byte*>(next_virtual_);
        next_virtual_ += static_cast<std::uintptr_t>(round_up(bytes, kHugePage) + kHugePage);
        return base;
    }
    void* base =
            mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        raise<EnvironmentError>("out of memory: mmap of {} bytes failed ({}); {} bytes are already in use", bytes,
                                std::strerror(errno), current_bytes_);
    }
    madvise(base, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
    return static_cast<std::byte*>(base);
}

void MemoryPool::unmap_segment(std::byte* base, std::int64_t bytes) {
    if (device_ != DeviceType::meta) munmap(base, static_cast<std::size_t>(bytes));
}

MemoryPool::Segment& MemoryPool::segment_of(Arena& arena, std::byte* data) {
    auto next = arena.segments.upper_bound(data);
    TESSERA_INVARIANT(next != arena.segments.begin());
    return std::prev(next)->second;
}

void MemoryPool::remove_free(Arena& arena, std::byte* data, std::int64_t bytes) {
    auto [first, last] = arena.free_blocks.equal_range(bytes);
    const auto found = std::find_if(first, last, [data](const auto& entry) { return entry.second == data; });
    TESSERA_INVARIANT(found != last);
    arena.free_blocks.erase(found);
}

std::byte* MemoryPool::take(Arena& arena, std::int64_t bytes) {
    auto fit = arena.free_blocks.lower_bound(bytes);
    if (fit == arena.free_blocks.end()) {
        const std::int64_t size = round_up(std::max(bytes, kSmallestSegment), kHugePage);
        std::byte* base = map_segment(size);
        Segment segment{base, size, {}};
        segment.blocks.emplace(0, Block{size, true});
        arena.segments.emplace(base, std::move(segment));
        arena.reserved_bytes += size;
        arena.peak_reserved_bytes = std::max(arena.peak_reserved_bytes, arena.reserved_bytes);
        fit = arena.free_blocks.emplace(size, base);
    }
    std::byte* data = fit->second;
    arena.free_blocks.erase(fit);
    Segment& segment = segment_of(arena, data);
    const std::int64_t offset = data - segment.base;
    Block& block = segment.blocks.at(offset);
    const std::int64_t rest = block.bytes - bytes;
    block.free = false;
    if (rest > 0) {
        block.bytes = bytes;
        segment.blocks.emplace(offset + bytes, Block{rest, true});
        arena.free_blocks.emplace(rest, data + bytes);
    }
    arena.allocated_bytes += bytes;
    return data;
}

void MemoryPool::put_back(Arena& arena, std::byte* data) {
    Segment& segment = segment_of(arena, data);
    auto block = segment.blocks.find(data - segment.base);
    TESSERA_INVARIANT(block != segment.blocks.end() && !block->second.free);
    arena.allocated_bytes -= block->second.bytes;
    block->second.free = true;
    const auto next = std::next(block);
    if (next != segment.blocks.end() && next->second.free) {
        remove_free(arena, segment.base + next->first, next->second.bytes);
        block->second.bytes += next->second.bytes;
        segment.blocks.erase(next);
    }
    if (block != segment.blocks.begin()) {
        const auto before = std::prev(block);
        if (before->second.free) {
            remove_free(arena, segment.base + before->first, before->second.bytes);
            before->second.bytes += block->second.bytes;
            segment.blocks.erase(block);
            block = before;
        }
    }
    arena.free_blocks.emplace(block->second.bytes, segment.base + block->first);
}

std::shared_ptr<Storage> MemoryPool::allocate(std::int64_t bytes, MemoryCategory category) {
    TESSERA_INVARIANT(bytes >= 0);
    const std::int64_t size = round_up(std::max<std::int64_t>(bytes, 1), kAlignment);
    const std::lock_guard lock(mutex_);
    collect_deferred();
    std::byte* data = take(arenas_[static_cast<std::size_t>(arena_of(category))], size);
    auto& counted = categories_[static_cast<std::size_t>(category)];
    counted.current_bytes += size;
    counted.peak_bytes = std::max(counted.peak_bytes, counted.current_bytes);
    current_bytes_ += size;
    if (current_bytes_ > peak_bytes_) {
        peak_bytes_ = current_bytes_;
        for (auto& entry : categories_) entry.bytes_at_peak = entry.current_bytes;
    }
    return std::make_shared<Storage>(*this, data, size, category);
}

void MemoryPool::release(std::byte* data, std::int64_t bytes, MemoryCategory category, std::vector<Event> users) {
    const std::lock_guard lock(mutex_);
    deferred_.push_back(Deferred{data, bytes, category, std::move(users)});
    collect_deferred();
}

void MemoryPool::collect_deferred() {
    std::erase_if(deferred_, [this](const Deferred& entry) {
        if (!std::all_of(entry.users.begin(), entry.users.end(), [](const Event& event) { return event.query(); })) {
            return false;
        }
        put_back(arenas_[static_cast<std::size_t>(arena_of(entry.category))], entry.data);
        categories_[static_cast<std::size_t>(entry.category)].current_bytes -= entry.bytes;
        current_bytes_ -= entry.bytes;
        return true;
    });
}

MemoryStatistics MemoryPool::statistics() const {
    const std::lock_guard lock(mutex_);
    MemoryStatistics result;
    result.by_category = categories_;
    result.current_bytes = current_bytes_;
    result.peak_bytes = peak_bytes_;
    for (std::size_t i = 0; i < arenas_.size(); ++i) {
        const Arena& arena = arenas_[i];
        result.by_arena[i] = {arena.reserved_bytes, arena.peak_reserved_bytes, arena.allocated_bytes,
                              arena.free_blocks.empty() ? 0 : arena.free_blocks.rbegin()->first};
    }
    return result;
}

void MemoryPool::reset_peaks() {
    const std::lock_guard lock(mutex_);
    peak_bytes_ = current_bytes_;
    for (auto& entry : categories_) {
        entry.peak_bytes = entry.current_bytes;
        entry.bytes_at_peak = entry.current_bytes;
    }
    for (Arena& arena : arenas_) arena.peak_reserved_bytes = arena.reserved_bytes;
}

void MemoryPool::trim() {
    const std::lock_guard lock(mutex_);
    collect_deferred();
    for (Arena& arena : arenas_) {
        std::erase_if(arena.segments, [&](auto& entry) {
            const Segment& segment = entry.second;
            if (segment.blocks.size() != 1 || !segment.blocks.begin()->second.free) return false;
            remove_free(arena, segment.base, segment.bytes);
            arena.reserved_bytes -= segment.bytes;
            unmap_segment(segment.base, segment.bytes);
            return true;
        });
    }
}

}  // namespace tessera::core

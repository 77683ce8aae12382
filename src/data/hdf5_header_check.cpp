#include "data/hdf5_header_check.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::data {
namespace {

// Of a superblock of version 0 with offsets and lengths of 8 bytes each.
constexpr std::string_view kSignature("\x89HDF\r\n\x1a\n", 8);
constexpr std::size_t kSuperblockBytes = 96;
constexpr std::size_t kRootHeaderAt = 64;

constexpr std::size_t kObjectPrefixBytes = 16;
constexpr std::size_t kMessagePrefixBytes = 8;
constexpr std::uint64_t kAttributeMessage = 0x0C;
constexpr std::uint64_t kContinuationMessage = 0x10;
constexpr std::uint64_t kSharedFlag = 2;

// A root group has a few messages; a header that claims more than this is left to the library.
constexpr std::uint64_t kLongestBlock = std::uint64_t{1} << 20;
constexpr std::size_t kMostBlocks = 64;

class File {
public:
    explicit File(const std::string& path) : descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
    ~File() {
        if (descriptor_ >= 0) close(descriptor_);
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;

    /// The bytes there; empty if they are not all there.
    std::string read(std::uint64_t offset, std::uint64_t count) const {
        if (descriptor_ < 0 || count > kLongestBlock || offset > INT64_MAX - count) return {};
        std::string bytes(count, '\0');
        const ssize_t got = pread(descriptor_, bytes.data(), count, static_cast<off_t>(offset));
        return got == static_cast<ssize_t>(count) ? bytes : std::string();
    }

private:
    int descriptor_;
};

std::uint64_t number(std::string_view bytes, std::size_t at, std::size_t count) {
    std::uint64_t value = 0;
    for (std::size_t k = 0; k < count; ++k) {
        value |= std::uint64_t{static_cast<unsigned char>(bytes[at + k])} << (8 * k);
    }
    return value;
}

/// Elements of a dataspace message; nothing if its extents are not all there or their product is absurd.
std::optional<std::uint64_t> num_elements(std::string_view space) {
    if (space.size() < 4) return std::nullopt;
    const std::uint64_t version = number(space, 0, 1);
    const std::uint64_t rank = number(space, 1, 1);
    const std::size_t first = version == 1 ? 8 : 4;
    if (space.size() < first + 8 * rank) return std::nullopt;
    constexpr std::uint64_t kNullSpace = 2;
    std::uint64_t count = version == 2 && number(space, 3, 1) == kNullSpace ? 0 : 1;
    for (std::uint64_t k = 0; k < rank; ++k) {
        if (__builtin_mul_overflow(count, number(space, first + 8 * k, 8), &count)) return std::nullopt;
    }
    return count;
}

/// An attribute is its name, a datatype message (element size at byte 4), a dataspace message and the elements. Version
/// 1 pads the first three to 8 bytes.
std::string attribute_fault(std::string_view message) {
    if (message.size() < 8) return fmt::format("an attribute has {} bytes", message.size());
    const std::uint64_t version = number(message, 0, 1);
    const auto part = [&](std::size_t at) {
        const std::uint64_t bytes = number(message, at, 2);
        return version == 1 ? (bytes + 7) / 8 * 8 : bytes;
    };
    const std::uint64_t type_at = (version == 3 ? 9 : 8) + part(2);
    const std::uint64_t space_at = type_at + part(4);
    const std::uint64_t data_at = space_at + part(6);
    if (data_at > message.size() || space_at - type_at < 8) {
        return fmt::format("an attribute of {} bytes claims {} for its name, type and extent", message.size(), data_at);
    }
    // A committed datatype or a shared extent stands elsewhere.
    if (version != 1 && message[1] != 0) return {};
    const std::optional<std::uint64_t> elements = num_elements(message.substr(space_at, data_at - space_at));
    const std::uint64_t element_bytes = number(message, type_at + 4, 4);
    const std::uint64_t left = message.size() - data_at;
    if (elements && (*elements == 0 || element_bytes <= left / *elements)) return {};
    return fmt::format("an attribute claims {} elements of {} bytes, {} bytes are left for them",
                       elements ? fmt::to_string(*elements) : "countless", element_bytes, left);
}

}  // namespace

std::string hdf5_header_fault(const std::string& path) {
    const File file(path);
    const std::string superblock = file.read(0, kSuperblockBytes);
    if (!superblock.starts_with(kSignature) || superblock[8] != 0 || superblock[13] != 8 || superblock[14] != 8) {
        return {};
    }
    const std::uint64_t base = number(superblock, 24, 8);
    const std::uint64_t root = number(superblock, kRootHeaderAt, 8);
    const std::string prefix = file.read(base + root, kObjectPrefixBytes);
    if (prefix.empty() || prefix[0] != 1) return {};
    // Continuations name further blocks, which are read after the one that names them.
    std::vector<std::pair<std::uint64_t, std::uint64_t>> blocks = {
            {base + root + kObjectPrefixBytes, number(prefix, 8, 4)}};
    for (std::size_t b = 0; b < blocks.size() && b < kMostBlocks; ++b) {
        const std::string bytes = file.read(blocks[b].first, blocks[b].second);
        std::string_view rest = bytes;
        while (rest.size() >= kMessagePrefixBytes) {
            const std::uint64_t kind = number(rest, 0, 2);
            const std::uint64_t size = number(rest, 2, 2);
            const std::uint64_t flags = number(rest, 4, 1);
            rest.remove_prefix(kMessagePrefixBytes);
            if (size > rest.size()) return fmt::format("a message claims {} bytes, {} are left", size, rest.size());
            const std::string_view message = rest.substr(0, size);
            rest.remove_prefix(size);
            if (kind == kAttributeMessage && (flags & kSharedFlag) == 0) {
                std::string fault = attribute_fault(message);
                if (!fault.empty()) return fault;
            } else if (kind == kContinuationMessage && size >= 16) {
                blocks.emplace_back(base + number(message, 0, 8), number(message, 8, 8));
            }
        }
    }
    return {};
}

}  // namespace tessera::data

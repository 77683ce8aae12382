#include "train/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>

#include "core/error.h"
#include "train/durable_file.h"

namespace tessera::train {
namespace {

using core::CheckpointError;
using core::DType;
using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr std::int64_t kLengthBytes = 8;
// The reference implementation refuses longer headers, so that a damaged length cannot ask for all memory.
constexpr std::int64_t kMaxHeaderBytes = 100'000'000;

struct DTypeName {
    DType dtype;
    const char* name;
};
constexpr DTypeName kDTypeNames[] = {{DType::f32, "F32"}, {DType::bf16, "BF16"}, {DType::f16, "F16"},
                                     {DType::i32, "I32"}, {DType::i64, "I64"},   {DType::u16, "U16"}};

const char* safetensors_name(DType dtype) {
    for (const DTypeName& entry : kDTypeNames) {
        if (entry.dtype == dtype) return entry.name;
    }
    return "?";
}

std::optional<DType> dtype_of(const std::string& name) {
    for (const DTypeName& entry : kDTypeNames) {
        if (name == entry.name) return entry.dtype;
    }
    return std::nullopt;
}

/// Larger elements first: then every tensor starts at a multiple of its element size without any hole.
std::vector<std::size_t> file_order(std::span<const SafetensorsSource> tensors) {
    std::vector<std::size_t> order(tensors.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return core::size_of(tensors[a].dtype) > core::size_of(tensors[b].dtype);
    });
    return order;
}

std::string make_header(std::span<const SafetensorsSource> tensors, const std::vector<std::size_t>& order,
                        const std::map<std::string, std::string>& metadata) {
    OrderedJson json = OrderedJson::object();
    if (!metadata.empty()) json["__metadata__"] = metadata;
    std::int64_t offset = 0;
    for (const std::size_t index : order) {
        const SafetensorsSource& tensor = tensors[index];
        std::vector<std::int64_t> shape;
        for (int axis = 0; axis < tensor.shape.rank(); ++axis) shape.push_back(tensor.shape[axis]);
        json[tensor.name] = {{"dtype", safetensors_name(tensor.dtype)},
                             {"shape", shape},
                             {"data_offsets", {offset, offset + tensor.bytes()}}};
        offset += tensor.bytes();
    }
    std::string text = json.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    std::string header(kLengthBytes, '\0');
    for (std::size_t i = 0; i < kLengthBytes; ++i) header[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
    return header + text;
}

/// A count as JSON allows it: a whole number that is not negative and fits.
std::int64_t count_of(const Json& json, const std::string& path, const std::string& tensor) {
    constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
    if (!json.is_number_unsigned() || json.get<std::uint64_t>() > kMost) {
        core::raise<CheckpointError>("{}: tensor '{}' has {} where a size or offset is wanted: the header is damaged",
                                     path, tensor, json.dump());
    }
    return json.get<std::int64_t>();
}

SafetensorsEntry parse_entry(const std::string& path, const std::string& name, const Json& json,
                             std::int64_t data_begin) {
    const auto damaged = [&](std::string_view what) {
        core::raise<CheckpointError>("{}: tensor '{}' {}: the header is damaged", path, name, what);
    };
    if (!json.is_object() || !json.contains("dtype") || !json.contains("shape") || !json.contains("data_offsets")) {
        damaged("lacks dtype, shape or data_offsets");
    }
    const Json& offsets = json.at("data_offsets");
    if (!json.at("dtype").is_string() || !json.at("shape").is_array() || !offsets.is_array() || offsets.size() != 2) {
        damaged("has a dtype, shape or data_offsets of the wrong kind");
    }
    const std::string dtype_name = json.at("dtype").get<std::string>();
    const std::optional<DType> dtype = dtype_of(dtype_name);
    if (!dtype)
        core::raise<CheckpointError>("{}: tensor '{}' has dtype {}; known: F32, BF16, F16, I32, I64, U16", path, name,
                                     dtype_name);
    std::vector<std::int64_t> extents;
    for (const Json& extent : json.at("shape")) extents.push_back(count_of(extent, path, name));
    if (extents.size() > core::Shape::kMaxRank) damaged("has more than 4 dimensions");
    std::int64_t bytes = core::size_of(*dtype);
    for (const std::int64_t extent : extents) {
        if (__builtin_mul_overflow(bytes, extent, &bytes)) damaged("has a shape that overflows");
    }
    const std::int64_t begin = count_of(offsets[0], path, name);
    const std::int64_t end = count_of(offsets[1], path, name);
    if (end < begin || end - begin != bytes) {
        core::raise<CheckpointError>(
                "{}: tensor '{}' of shape {} and dtype {} has {} bytes, but its offsets are [{}, {}]", path, name,
                json.at("shape").dump(), dtype_name, bytes, begin, end);
    }
    std::int64_t last = 0;
    if (__builtin_add_overflow(data_begin, end, &last)) damaged("has offsets that overflow");
    return {name, *dtype, core::Shape(extents), data_begin + begin, last};
}

}  // namespace

std::int64_t safetensors_bytes(std::span<const SafetensorsSource> tensors) {
    std::int64_t bytes = kLengthBytes + 4096;
    for (const SafetensorsSource& tensor : tensors) {
        bytes += tensor.bytes() + static_cast<std::int64_t>(tensor.name.size()) + 256;
    }
    return bytes;
}

SafetensorsSummary write_safetensors(const std::string& path, std::span<const SafetensorsSource> tensors,
                                     const std::map<std::string, std::string>& metadata) {
    std::set<std::string_view> names;
    for (const SafetensorsSource& tensor : tensors) {
        if (!names.insert(tensor.name).second) {
            core::raise<CheckpointError>("cannot write '{}': two tensors are called '{}'", path, tensor.name);
        }
    }
    const std::vector<std::size_t> order = file_order(tensors);
    const std::string header = make_header(tensors, order, metadata);
    SafetensorsSummary summary;
    summary.header_xxh64 = XXH64(header.data(), header.size(), 0);
    summary.tensors_xxh64.resize(tensors.size());
    DurableFile file(path);
    file.write(header);
    for (const std::size_t index : order) {
        const SafetensorsSource& tensor = tensors[index];
        const auto bytes = static_cast<std::size_t>(tensor.bytes());
        summary.tensors_xxh64[index] = XXH64(tensor.data, bytes, 0);
        file.write(std::span(tensor.data, bytes));
    }
    summary.file_bytes = file.bytes_written();
    file.sync_and_close();
    return summary;
}

struct SafetensorsFile::Mapping {
    const std::byte* data = nullptr;
    std::size_t bytes = 0;

    explicit Mapping(const std::string& path) {
        const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0) core::raise<CheckpointError>("cannot open '{}': {}", path, std::strerror(errno));
        struct stat status {};
        const bool regular = ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
        if (!regular || status.st_size == 0) {
            ::close(fd);
            core::raise<CheckpointError>("'{}' is {}", path, regular ? "empty (0 bytes)" : "not a file");
        }
        bytes = static_cast<std::size_t>(status.st_size);
        void* address = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        const int code = errno;
        ::close(fd);
        if (address == MAP_FAILED) {
            core::raise<core::EnvironmentError>("cannot map '{}' ({} bytes): {}", path, bytes, std::strerror(code));
        }
        data = static_cast<const std::byte*>(address);
    }
    ~Mapping() { ::munmap(const_cast<std::byte*>(data), bytes); }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
};

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path), mapping_(std::make_shared<Mapping>(path)) {
    parse_header();
}

void SafetensorsFile::parse_header() {
    const auto total = static_cast<std::int64_t>(mapping_->bytes);
    if (total < kLengthBytes) {
        core::raise<CheckpointError>("'{}' is cut short: {} bytes, a safetensors file has at least {}", path_, total,
                                     kLengthBytes);
    }
    std::uint64_t length = 0;
    for (int i = 0; i < kLengthBytes; ++i) length |= std::to_integer<std::uint64_t>(mapping_->data[i]) << (8 * i);
    if (length > static_cast<std::uint64_t>(std::min(kMaxHeaderBytes, total - kLengthBytes))) {
        core::raise<CheckpointError>("'{}' is cut short or damaged: its header claims {} bytes, the file has {}", path_,
                                     length, total);
    }
    data_begin_ = kLengthBytes + static_cast<std::int64_t>(length);
    const auto* text = reinterpret_cast<const char*>(mapping_->data + kLengthBytes);
    std::int64_t repeated = 0;
    std::set<std::string> names;
    // The parser keeps the last of two equal keys; a callback sees both.
    const auto see = [&](int depth, Json::parse_event_t event, Json& parsed) {
        if (event == Json::parse_event_t::key && depth == 1 && !names.insert(parsed.get<std::string>()).second)
            ++repeated;
        return true;
    };
    const Json json = Json::parse(text, text + length, see, false);
    if (!json.is_object() || repeated != 0) {
        core::raise<CheckpointError>("'{}' has a damaged header: {}", path_,
                                     repeated != 0 ? "two tensors of one name" : "it is not a JSON object");
    }
    for (const auto& [name, value] : json.items()) {
        if (name != "__metadata__") {
            entries_.push_back(parse_entry(path_, name, value, data_begin_));
            continue;
        }
        if (!value.is_object()) core::raise<CheckpointError>("'{}' has damaged metadata: not a JSON object", path_);
        for (const auto& [key, entry] : value.items())
            metadata_[key] = entry.is_string() ? entry.get<std::string>() : entry.dump();
    }
    std::vector<const SafetensorsEntry*> by_place;
    for (const SafetensorsEntry& entry : entries_) by_place.push_back(&entry);
    std::sort(by_place.begin(), by_place.end(),
              [](const auto* a, const auto* b) { return std::pair(a->begin, a->end) < std::pair(b->begin, b->end); });
    std::int64_t end = data_begin_;
    for (const SafetensorsEntry* entry : by_place) {
        if (entry->begin != end) {
            core::raise<CheckpointError>(
                    "'{}': tensor '{}' begins at byte {}, the one before it ends at {}: the header is damaged", path_,
                    entry->name, entry->begin, end);
        }
        end = entry->end;
    }
    if (end != total) {
        core::raise<CheckpointError>("'{}' has {} bytes, its header describes {}: it is cut short or damaged", path_,
                                     total, end);
    }
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
    // A JSON object of the parser is sorted by name, so that the entries are.
    const auto found =
            std::lower_bound(entries_.begin(), entries_.end(), name,
                             [](const SafetensorsEntry& entry, std::string_view key) { return entry.name < key; });
    return found != entries_.end() && found->name == name ? &*found : nullptr;
}

std::span<const std::byte> SafetensorsFile::data(const SafetensorsEntry& entry) const {
    return {mapping_->data + entry.begin, static_cast<std::size_t>(entry.end - entry.begin)};
}

void SafetensorsFile::release(const SafetensorsEntry& entry) const {
    const auto page = static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE));
    const std::int64_t begin = entry.begin / page * page;
    // Only advice: where it is not taken, nothing is lost.
    ::madvise(const_cast<std::byte*>(mapping_->data) + begin, static_cast<std::size_t>(entry.end - begin),
              MADV_DONTNEED);
}

std::span<const std::byte> SafetensorsFile::header() const {
    return {mapping_->data, static_cast<std::size_t>(data_begin_)};
}

std::int64_t SafetensorsFile::file_bytes() const {
    return static_cast<std::int64_t>(mapping_->bytes);
}

}  // namespace tessera::train

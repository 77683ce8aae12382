#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/tensor.h"

namespace tessera::train {

/// One tensor to write: `data` holds shape.numel() contiguous elements.
struct SafetensorsSource {
    std::string name;
    core::DType dtype = core::DType::f32;
    core::Shape shape;
    const std::byte* data = nullptr;

    std::int64_t bytes() const { return shape.numel() * core::size_of(dtype); }
};

/// One tensor in a file.
struct SafetensorsEntry {
    std::string name;
    core::DType dtype = core::DType::f32;
    core::Shape shape;
    std::int64_t begin = 0;  ///< bytes from the start of the file
    std::int64_t end = 0;
};

/// What was written, for an index.
struct SafetensorsSummary {
    std::int64_t file_bytes = 0;
    std::uint64_t header_xxh64 = 0;            ///< of everything before the first tensor
    std::vector<std::uint64_t> tensors_xxh64;  ///< in the order of the sources
};

/// Writes the safetensors format: u64 little-endian header length, JSON {name: {dtype, shape, data_offsets}}, then the
/// data. The header is padded with blanks to 8 bytes; tensors with larger elements come first, so that each is aligned
/// and there are no holes. `metadata` becomes `__metadata__`. The file is flushed to the disk.
/// Throws EnvironmentError if it cannot be written, CheckpointError for two tensors of one name.
SafetensorsSummary write_safetensors(const std::string& path, std::span<const SafetensorsSource> tensors,
                                     const std::map<std::string, std::string>& metadata = {});

/// Bytes that write_safetensors would write at most.
std::int64_t safetensors_bytes(std::span<const SafetensorsSource> tensors);

/// A safetensors file mapped into memory, checked before anything is read from it.
class SafetensorsFile {
public:
    /// Throws CheckpointError naming the file if it is absent, cut short, or its header is damaged: lengths beyond the
    /// file, offsets out of range, overlapping, with holes, or disagreeing with shape and dtype, an unknown dtype.
    explicit SafetensorsFile(const std::string& path);

    const std::string& path() const { return path_; }
    const std::vector<SafetensorsEntry>& entries() const { return entries_; }
    const std::map<std::string, std::string>& metadata() const { return metadata_; }
    /// Null if there is no such tensor.
    const SafetensorsEntry* find(std::string_view name) const;
    /// The tensor's bytes, valid as long as this file.
    std::span<const std::byte> data(const SafetensorsEntry& entry) const;
    /// Gives the memory of the tensor's bytes back; they are read from the file again when they are next used.
    void release(const SafetensorsEntry& entry) const;
    /// Everything before the first tensor.
    std::span<const std::byte> header() const;
    std::int64_t file_bytes() const;

private:
    struct Mapping;

    void parse_header();

    std::string path_;
    std::shared_ptr<const Mapping> mapping_;
    std::int64_t data_begin_ = 0;
    std::vector<SafetensorsEntry> entries_;
    std::map<std::string, std::string> metadata_;
};

}  // namespace tessera::train

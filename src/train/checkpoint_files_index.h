#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "train/checkpoint_files.h"

// index.json of a checkpoint. Internal to src/train.

namespace tessera::train {

struct IndexSlice {
    std::string file;
    std::string key;  ///< the slice's name inside the file
    TensorBlock block;
    std::uint64_t xxh64 = 0;
};

struct IndexTensor {
    TensorInfo info;
    std::vector<IndexSlice> slices;
};

struct IndexFile {
    std::string name;
    std::int64_t bytes = 0;
    std::uint64_t header_xxh64 = 0;
};

struct CheckpointIndex {
    CheckpointState state;
    std::vector<IndexFile> files;
    std::vector<IndexTensor> tensors;  ///< sorted by name
};

/// The text of index.json; it ends with a checksum over everything else in it.
std::string index_to_json(const CheckpointIndex& index);

/// Throws CheckpointError naming `path` if the text is damaged or of another format version.
CheckpointIndex index_from_json(const std::string& path, const std::string& text);

/// Throws CheckpointError, beginning with `where`, unless the slices hold each element of the tensor exactly once.
void check_coverage(const std::string& where, const IndexTensor& tensor);

inline constexpr std::string_view kIndexName = "index.json";
inline constexpr std::string_view kLatestName = "latest";
/// Tensors whose names begin so are in files of their own, whose names end so.
inline constexpr std::string_view kOptimizerPrefix = "optimizer/";
inline constexpr std::string_view kOptimizerEnding = "_optimizer.safetensors";

}  // namespace tessera::train

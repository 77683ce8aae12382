#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>

#include "core/error.h"
#include "train/checkpoint_files.h"
#include "train/checkpoint_files_index.h"
#include "train/durable_file.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;
using core::CheckpointError;
using core::DType;
using core::Shape;

template <typename From, typename To>
void convert(const std::byte* from, std::byte* to, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
        From element;
        std::memcpy(&element, from + i * static_cast<std::int64_t>(sizeof(From)), sizeof(From));
        const To result = core::from_f32<To>(core::to_f32(element));
        std::memcpy(to + i * static_cast<std::int64_t>(sizeof(To)), &result, sizeof(To));
    }
}

template <typename From>
void convert_from(const std::byte* from, DType wanted, std::byte* to, std::int64_t count) {
    switch (wanted) {
        case DType::f32:
            return convert<From, float>(from, to, count);
        case DType::bf16:
            return convert<From, core::bf16>(from, to, count);
        case DType::f16:
            return convert<From, core::f16>(from, to, count);
        default:
            TESSERA_INVARIANT(core::is_floating(wanted));
    }
}

void copy_run(DType held, const std::byte* from, DType wanted, std::byte* to, std::int64_t count) {
    if (held == wanted) {
        std::memcpy(to, from, static_cast<std::size_t>(count * core::size_of(held)));
        return;
    }
    switch (held) {
        case DType::f32:
            return convert_from<float>(from, wanted, to, count);
        case DType::bf16:
            return convert_from<core::bf16>(from, wanted, to, count);
        case DType::f16:
            return convert_from<core::f16>(from, wanted, to, count);
        default:
            TESSERA_INVARIANT(core::is_floating(held));
    }
}

/// Where a global position lies in a block's row-major storage.
std::int64_t offset_in(const TensorBlock& block, const std::array<std::int64_t, Shape::kMaxRank>& position) {
    std::int64_t offset = 0;
    for (int axis = 0; axis < block.global_shape.rank(); ++axis) {
        const IndexRange& range = block.ranges[static_cast<std::size_t>(axis)];
        offset = offset * range.size() + position[static_cast<std::size_t>(axis)] - range.begin;
    }
    return offset;
}

struct BlockView {
    const TensorBlock& block;
    DType dtype;
};

/// Copies what two blocks of one tensor have in common, in the longest contiguous runs.
void copy_common(const BlockView& held, const std::byte* from, const BlockView& wanted, std::byte* to) {
    const int rank = held.block.global_shape.rank();
    std::array<IndexRange, Shape::kMaxRank> common{};
    std::array<std::int64_t, Shape::kMaxRank> position{};
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(rank); ++axis) {
        const IndexRange& a = held.block.ranges[axis];
        const IndexRange& b = wanted.block.ranges[axis];
        common[axis] = {std::max(a.begin, b.begin), std::min(a.end, b.end)};
        if (common[axis].begin >= common[axis].end) return;
        position[axis] = common[axis].begin;
    }
    int outer = rank;
    std::int64_t run = 1;
    for (bool whole = true; outer > 0 && whole;) {
        const auto axis = static_cast<std::size_t>(--outer);
        run *= common[axis].size();
        whole = common[axis] == held.block.ranges[axis] && common[axis] == wanted.block.ranges[axis];
    }
    for (;;) {
        copy_run(held.dtype, from + offset_in(held.block, position) * core::size_of(held.dtype), wanted.dtype,
                 to + offset_in(wanted.block, position) * core::size_of(wanted.dtype), run);
        int axis = outer - 1;
        for (; axis >= 0; --axis) {
            const auto i = static_cast<std::size_t>(axis);
            if (++position[i] < common[i].end) break;
            position[i] = common[i].begin;
        }
        if (axis < 0) return;
    }
}

}  // namespace

TensorBlock TensorBlock::whole(Shape shape) {
    TensorBlock block;
    block.global_shape = shape;
    for (int axis = 0; axis < shape.rank(); ++axis) block.ranges[static_cast<std::size_t>(axis)] = {0, shape[axis]};
    return block;
}

TensorBlock TensorBlock::rows(Shape shape, std::int64_t begin, std::int64_t end) {
    TensorBlock block = whole(shape);
    block.ranges[0] = {begin, end};
    return block;
}

Shape TensorBlock::local_shape() const {
    switch (global_shape.rank()) {
        case 0:
            return {};
        case 1:
            return {ranges[0].size()};
        case 2:
            return {ranges[0].size(), ranges[1].size()};
        case 3:
            return {ranges[0].size(), ranges[1].size(), ranges[2].size()};
        default:
            return {ranges[0].size(), ranges[1].size(), ranges[2].size(), ranges[3].size()};
    }
}

std::int64_t TensorBlock::numel() const {
    std::int64_t count = 1;
    for (int axis = 0; axis < global_shape.rank(); ++axis) count *= ranges[static_cast<std::size_t>(axis)].size();
    return count;
}

std::string TensorBlock::to_string() const {
    std::string text = "[";
    for (int axis = 0; axis < global_shape.rank(); ++axis) {
        const IndexRange& range = ranges[static_cast<std::size_t>(axis)];
        text += fmt::format("{}{}:{}", axis == 0 ? "" : ", ", range.begin, range.end);
    }
    return text + "]";
}

struct CheckpointReader::Contents {
    std::string path;
    CheckpointIndex index;
    std::vector<TensorInfo> infos;
    std::map<std::string, SafetensorsFile> files;
    std::mutex mutex;
    std::set<const IndexSlice*> checked;

    /// From here on the checkpoint is as if it had been saved without an optimizer.
    void forget_optimizer() {
        std::erase_if(index.tensors,
                      [](const IndexTensor& tensor) { return tensor.info.name.starts_with(kOptimizerPrefix); });
        std::erase_if(index.files, [](const IndexFile& file) { return file.name.ends_with(kOptimizerEnding); });
    }

    void open_files() {
        for (const IndexFile& file : index.files) {
            const std::string file_path = path + "/" + file.name;
            std::error_code error;
            const auto bytes = fs::file_size(file_path, error);
            if (error) {
                const std::string remedy =
                        file.name.ends_with(kOptimizerEnding)
                                ? fmt::format("; checkpoint.weights = \"{}\" starts a run from its weights alone", path)
                                : std::string();
                core::raise<CheckpointError>("checkpoint file '{}' is missing: {}{}", file_path, error.message(),
                                             remedy);
            }
            if (static_cast<std::int64_t>(bytes) != file.bytes) {
                core::raise<CheckpointError>("checkpoint file '{}' is damaged: it has {} bytes, index.json says {}",
                                             file_path, bytes, file.bytes);
            }
            const SafetensorsFile& opened = files.emplace(file.name, SafetensorsFile(file_path)).first->second;
            if (XXH64(opened.header().data(), opened.header().size(), 0) != file.header_xxh64) {
                core::raise<CheckpointError>(
                        "checkpoint file '{}' is damaged: its header's checksum differs from index.json's", file_path);
            }
        }
    }

    const SafetensorsEntry& entry_of(const IndexTensor& tensor, const IndexSlice& slice) const {
        const auto file = files.find(slice.file);
        const SafetensorsEntry* entry = file == files.end() ? nullptr : file->second.find(slice.key);
        if (entry == nullptr) {
            core::raise<CheckpointError>("'{}': tensor '{}' is listed in file '{}' under '{}', which is not there",
                                         path, tensor.info.name, slice.file, slice.key);
        }
        return *entry;
    }

    void check_tensors() const {
        for (const IndexTensor& tensor : index.tensors) {
            check_coverage("'" + path + "'", tensor);
            for (const IndexSlice& slice : tensor.slices) {
                const SafetensorsEntry& entry = entry_of(tensor, slice);
                if (!(entry.shape == slice.block.local_shape()) || entry.dtype != tensor.info.dtype) {
                    core::raise<CheckpointError>("'{}/{}': '{}' is {} {}, index.json says {} {}", path, slice.file,
                                                 slice.key, core::name_of(entry.dtype), entry.shape.to_string(),
                                                 core::name_of(tensor.info.dtype),
                                                 slice.block.local_shape().to_string());
                }
            }
        }
    }

    /// Calls use(bytes of the slice), their checksum compared before the first use. No more than one slice is in memory
    /// at a time.
    template <typename Use>
    void with_bytes_of(const IndexTensor& tensor, const IndexSlice& slice, const Use& use) {
        const SafetensorsFile& file = files.at(slice.file);
        const SafetensorsEntry& entry = entry_of(tensor, slice);
        const std::span<const std::byte> bytes = file.data(entry);
        check_bytes(slice, bytes);
        use(bytes);
        file.release(entry);
    }

    void check_bytes(const IndexSlice& slice, std::span<const std::byte> bytes) {
        const std::lock_guard lock(mutex);
        if (checked.contains(&slice)) return;
        const std::uint64_t found = XXH64(bytes.data(), bytes.size(), 0);
        if (found != slice.xxh64) {
            core::raise<CheckpointError>(
                    "checkpoint file '{}/{}' is damaged: tensor '{}' has checksum {:016x}, index.json "
                    "says {:016x}",
                    path, slice.file, slice.key, found, slice.xxh64);
        }
        checked.insert(&slice);
    }

    const IndexTensor* find(std::string_view name) const {
        const auto found = std::lower_bound(
                index.tensors.begin(), index.tensors.end(), name,
                [](const IndexTensor& tensor, std::string_view key) { return tensor.info.name < key; });
        return found != index.tensors.end() && found->info.name == name ? &*found : nullptr;
    }

    const IndexTensor& at(std::string_view name) const {
        const IndexTensor* tensor = find(name);
        if (tensor == nullptr) core::raise<CheckpointError>("'{}' has no tensor '{}'", path, name);
        return *tensor;
    }
};

CheckpointReader CheckpointReader::open(const std::string& path, LoadParts parts) {
    const std::string index_path = path + "/" + std::string(kIndexName);
    std::error_code error;
    if (!fs::is_directory(path, error)) core::raise<CheckpointError>("checkpoint '{}' does not exist", path);
    if (!fs::is_regular_file(index_path, error)) {
        core::raise<CheckpointError>("'{}' is not a complete checkpoint: it has no {}", path, kIndexName);
    }
    CheckpointReader reader;
    reader.contents_ = std::make_shared<Contents>();
    Contents& contents = *reader.contents_;
    contents.path = path;
    contents.index = index_from_json(index_path, read_text_file(index_path));
    if (parts == LoadParts::weights_only) contents.forget_optimizer();
    contents.open_files();
    contents.check_tensors();
    for (const IndexTensor& tensor : contents.index.tensors) contents.infos.push_back(tensor.info);
    return reader;
}

const std::string& CheckpointReader::path() const {
    return contents_->path;
}
const CheckpointState& CheckpointReader::state() const {
    return contents_->index.state;
}
const std::vector<TensorInfo>& CheckpointReader::tensors() const {
    return contents_->infos;
}
bool CheckpointReader::has(std::string_view name) const {
    return contents_->find(name) != nullptr;
}
const TensorInfo& CheckpointReader::info(std::string_view name) const {
    return contents_->at(name).info;
}

void CheckpointReader::read(std::string_view name, const TensorBlock& block, DType wanted, std::byte* dst) const {
    const IndexTensor& tensor = contents_->at(name);
    if (!(tensor.info.shape == block.global_shape)) {
        core::raise<CheckpointError>("tensor '{}' has shape {} in '{}', but {} is expected", name,
                                     tensor.info.shape.to_string(), path(), block.global_shape.to_string());
    }
    const bool both_floating = core::is_floating(tensor.info.dtype) && core::is_floating(wanted);
    if (tensor.info.dtype != wanted && !both_floating) {
        core::raise<CheckpointError>("tensor '{}' is {} in '{}' and cannot be read as {}", name,
                                     core::name_of(tensor.info.dtype), path(), core::name_of(wanted));
    }
    for (int axis = 0; axis < block.global_shape.rank(); ++axis) {
        const IndexRange& range = block.ranges[static_cast<std::size_t>(axis)];
        if (range.begin < 0 || range.end < range.begin || range.end > block.global_shape[axis]) {
            core::raise<CheckpointError>("{} lies outside tensor '{}' of shape {}", block.to_string(), name,
                                         block.global_shape.to_string());
        }
    }
    if (block.numel() == 0) return;
    for (const IndexSlice& slice : tensor.slices) {
        if (slice.block.numel() == 0) continue;
        contents_->with_bytes_of(tensor, slice, [&](std::span<const std::byte> bytes) {
            copy_common({slice.block, tensor.info.dtype}, bytes.data(), {block, wanted}, dst);
        });
    }
}

void CheckpointReader::verify() const {
    for (const IndexTensor& tensor : contents_->index.tensors) {
        for (const IndexSlice& slice : tensor.slices) {
            contents_->with_bytes_of(tensor, slice, [](std::span<const std::byte>) {});
        }
    }
}

void compare_tensors(const CheckpointReader& reader, std::span<const TensorInfo> expected, std::string_view prefix) {
    constexpr std::size_t kMostListed = 8;
    std::vector<std::string> problems;
    std::set<std::string_view> names;
    for (const TensorInfo& tensor : expected) {
        names.insert(tensor.name);
        if (!reader.has(tensor.name)) {
            problems.push_back(fmt::format("'{}' {} is expected but missing", tensor.name, tensor.shape.to_string()));
        } else if (const Shape& found = reader.info(tensor.name).shape; !(found == tensor.shape)) {
            problems.push_back(fmt::format("'{}' is expected as {} but found as {}", tensor.name,
                                           tensor.shape.to_string(), found.to_string()));
        }
    }
    for (const TensorInfo& tensor : reader.tensors()) {
        if (tensor.name.rfind(prefix, 0) != 0 || names.contains(tensor.name)) continue;
        problems.push_back(fmt::format("'{}' {} is not part of the model", tensor.name, tensor.shape.to_string()));
    }
    if (problems.empty()) return;
    const std::size_t total = problems.size();
    if (total > kMostListed) problems.resize(kMostListed);
    core::raise<CheckpointError>(
            "checkpoint '{}' does not fit the configured model: {}{}; use the config it was saved with", reader.path(),
            fmt::join(problems, "; "), total > kMostListed ? fmt::format("; and {} more", total - kMostListed) : "");
}

}  // namespace tessera::train

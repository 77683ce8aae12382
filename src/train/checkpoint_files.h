#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/tensor.h"
#include "train/safetensors.h"

// The checkpoint format (docs/design.md section 6):
//   ROOT/latest                                   the name of the newest complete checkpoint
//   ROOT/step_00000120/index.json                 state, config, every logical tensor and where its slices are,
//   checksums ROOT/step_00000120/rank_00000.safetensors     slices of everything but the optimizer's state
//   ROOT/step_00000120/rank_00000_optimizer.safetensors   slices whose names begin with "optimizer/"
// A checkpoint gets its name only when it is complete and on the disk.

namespace tessera::train {

/// [begin, end) along one dimension.
struct IndexRange {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t size() const { return end - begin; }
    bool operator==(const IndexRange&) const = default;
};

/// A block of a logical tensor: one range per dimension, as many as the tensor has dimensions.
struct TensorBlock {
    core::Shape global_shape;
    std::array<IndexRange, core::Shape::kMaxRank> ranges{};

    /// The whole tensor.
    static TensorBlock whole(core::Shape shape);
    /// Elements [begin, end) of the first dimension, everything of the others.
    static TensorBlock rows(core::Shape shape, std::int64_t begin, std::int64_t end);
    core::Shape local_shape() const;
    std::int64_t numel() const;
    bool operator==(const TensorBlock&) const = default;
    /// "[0:4, 0:256]"
    std::string to_string() const;
};

/// What a rank hands in: `data` holds block.numel() contiguous row-major elements and must outlive the write.
struct TensorSlice {
    std::string name;  ///< logical name, "model/…" or "optimizer/exp_avg/…"
    TensorBlock block;
    core::DType dtype = core::DType::f32;
    const std::byte* data = nullptr;
};

/// Everything of a run that is not a tensor.
struct CheckpointState {
    std::int64_t step = 0;
    std::int64_t consumed_samples = 0;
    std::int64_t consumed_tokens = 0;
    std::int64_t updates = 0;  ///< steps that were not skipped: what schedules and bias correction count
    std::int64_t skipped_steps = 0;
    double loss_scale = 1;
    std::int64_t loss_scale_clean_steps = 0;
    std::int64_t loss_scale_hysteresis_left = 0;
    std::string config_toml;
    std::string program_version;
    std::map<std::string, std::string> extras;  ///< free for the caller, for example algorithm choices
};

struct Retention {
    std::int64_t keep = 0;        ///< how many of the newest stay; 0: all
    std::int64_t keep_every = 0;  ///< steps that are a multiple stay for ever; 0: none
};

struct WriteCheckpointArgs {
    std::string root;
    const CheckpointState& state;         ///< state.step names the folder
    std::span<const TensorSlice> slices;  ///< together every logical tensor, each element once
    Retention retention{};
    std::string protected_path{};  ///< the checkpoint this run resumed from: never removed
};

/// "step_00000120"
std::string checkpoint_name(std::int64_t step);

/// Creates `root`, removes temporary folders that killed runs left in it, and makes sure before any work is done that
/// it can be written to and has room for `bytes_needed`.
/// largest_file_bytes, if given, is tried against the limits on a file's size and against quotas.
/// Throws EnvironmentError naming the folder, the bytes needed and those free.
void prepare_checkpoint_root(const std::string& root, std::int64_t bytes_needed, std::int64_t largest_file_bytes = 0);

/// Bytes one checkpoint of these slices takes, at most, and its largest file.
std::int64_t checkpoint_bytes(std::span<const TensorSlice> slices);
std::int64_t largest_file_bytes(std::span<const TensorSlice> slices);

/// Writes a checkpoint and returns its folder. Temporary folder, files, flush, rename, then `latest`, then the removal
/// of what retention no longer wants (only checkpoints of this root of smaller step; never foreign files, never
/// protected_path). A checkpoint of the same step is replaced as one step.
/// Throws EnvironmentError (path, bytes needed and free) if the disk refuses; older checkpoints are then as they were.
/// Throws CheckpointError if slices overlap, disagree on a shape or leave a part of a tensor out.
std::string write_checkpoint(const WriteCheckpointArgs& args);

struct TensorInfo {
    std::string name;
    core::Shape shape;
    core::DType dtype = core::DType::f32;
};

/// What of a checkpoint is wanted: all of it, or everything but the optimizer's tensors, whose files may be absent.
enum class LoadParts : std::uint8_t { all, weights_only };

/// A complete checkpoint, opened for reading. Copyable; copies share the open files.
class CheckpointReader {
public:
    /// Reads index.json and checks every wanted file's presence, size and header against it.
    /// Throws CheckpointError naming the file and the numbers that disagree.
    static CheckpointReader open(const std::string& path, LoadParts parts = LoadParts::all);

    const std::string& path() const;
    const CheckpointState& state() const;
    /// In the order of their names.
    const std::vector<TensorInfo>& tensors() const;
    bool has(std::string_view name) const;
    /// Throws CheckpointError if absent.
    const TensorInfo& info(std::string_view name) const;

    /// Copies a block of a logical tensor to `dst` (contiguous, row-major), from whatever slices hold it. Among f32,
    /// bf16 and f16 elements are converted (to nearest even); other dtypes must match. Each slice's checksum is
    /// compared before its first use. Throws CheckpointError if the tensor is absent, of another shape than
    /// block.global_shape, or damaged.
    void read(std::string_view name, const TensorBlock& block, core::DType wanted, std::byte* dst) const;

    /// Compares every checksum. Throws CheckpointError naming file and tensor.
    void verify() const;

private:
    struct Contents;
    std::shared_ptr<Contents> contents_;
};

/// Throws one CheckpointError that lists every tensor of `expected` which the checkpoint lacks or holds in another
/// shape, and every tensor under `prefix` in the checkpoint that is not expected.
void compare_tensors(const CheckpointReader& reader, std::span<const TensorInfo> expected,
                     std::string_view prefix = {});

/// Steps of the complete-looking checkpoints in `root` (a folder step_N with an index.json), ascending.
std::vector<std::int64_t> list_checkpoints(const std::string& root);

/// The checkpoint to resume from, verified.
/// resume  "none": nothing. "auto": the one `latest` names, else the newest; one that is damaged is passed over with a
///         warning for the next older; nothing if `root` has none. A step number: that step in root. Anything else: the
///         path of a checkpoint folder, or of a root or a run's folder that has one in `checkpoints` (then as auto in
///         there, but its absence is an error).
/// Throws CheckpointError if an explicit one is absent (the message lists the steps present) or damaged, and under auto
/// if checkpoints exist but all are damaged.
std::optional<CheckpointReader> find_checkpoint(const std::string& root, const std::string& resume,
                                                LoadParts parts = LoadParts::all);

}  // namespace tessera::train

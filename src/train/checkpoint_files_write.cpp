#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>

#include "core/error.h"
#include "core/log.h"
#include "train/checkpoint_files.h"
#include "train/checkpoint_files_index.h"
#include "train/durable_file.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;
using core::CheckpointError;
using core::EnvironmentError;

constexpr std::string_view kModelFile = "rank_00000.safetensors";
constexpr std::string_view kOptimizerFile = "rank_00000_optimizer.safetensors";
constexpr std::string_view kTemporaryMark = ".tmp-";

std::string host_name() {
    char name[256] = {};
    if (::gethostname(name, sizeof(name) - 1) != 0) return "host";
    return name;
}

/// ".step_00000120.tmp-HOST-PID"
std::string temporary_name(std::int64_t step) {
    return fmt::format(".{}{}{}-{}", checkpoint_name(step), kTemporaryMark, host_name(), ::getpid());
}

/// True for a temporary folder whose process still runs on this machine.
bool is_in_use(const std::string& name) {
    const std::string owner = name.substr(name.find(kTemporaryMark) + kTemporaryMark.size());
    const std::size_t dash = owner.rfind('-');
    if (dash == std::string::npos || owner.substr(0, dash) != host_name()) return false;
    int pid = 0;
    std::from_chars(owner.data() + dash + 1, owner.data() + owner.size(), pid);
    return pid > 0 && pid != ::getpid() && (::kill(pid, 0) == 0 || errno == EPERM);
}

void remove_leftovers(const std::string& root) {
    std::vector<fs::path> leftovers;
    for (const auto& entry : fs::directory_iterator(root)) {
        const std::string name = entry.path().filename().string();
        const bool folder = name.rfind(".step_", 0) == 0 && name.find(kTemporaryMark) != std::string::npos;
        const bool file = name.rfind(fmt::format("{}{}", kLatestName, kTemporaryMark), 0) == 0 || folder;
        if ((folder && entry.is_directory() && !is_in_use(name)) || (file && entry.is_regular_file())) {
            leftovers.push_back(entry.path());
        }
    }
    for (const fs::path& path : leftovers) {
        core::log_info(fmt::format("removing {}, left by a run that was killed while saving", path.string()));
        fs::remove_all(path);
    }
}

void require_space(const std::string& root, std::int64_t bytes_needed) {
    const std::int64_t free = free_bytes(root);
    if (free < bytes_needed) {
        core::raise<EnvironmentError>(
                "no room for a checkpoint in '{}': {} bytes needed, {} free; free some space or set "
                "checkpoint.directory",
                root, bytes_needed, free);
    }
}

void make_folder(const std::string& path) {
    std::error_code error;
    fs::create_directories(path, error);
    if (error) core::raise<EnvironmentError>("cannot create the folder '{}': {}", path, error.message());
}

/// Slices that go to one file, in order, and where each stands in the index.
struct FilePlan {
    std::string name;
    std::vector<SafetensorsSource> sources;
    std::vector<std::pair<std::string, std::size_t>> places;  // tensor name, number of the slice
};

std::string slice_key(const TensorSlice& slice) {
    if (slice.block == TensorBlock::whole(slice.block.global_shape)) return slice.name;
    return slice.name + slice.block.to_string();
}

struct WritePlan {
    std::map<std::string, IndexTensor> tensors;
    std::array<FilePlan, 2> files;
};

WritePlan make_plan(std::span<const TensorSlice> slices) {
    WritePlan plan;
    plan.files[0].name = kModelFile;
    plan.files[1].name = kOptimizerFile;
    for (const TensorSlice& slice : slices) {
        FilePlan& file = plan.files[slice.name.rfind(kOptimizerPrefix, 0) == 0 ? 1 : 0];
        const auto [place, inserted] = plan.tensors.try_emplace(slice.name);
        IndexTensor& tensor = place->second;
        if (inserted) tensor.info = {slice.name, slice.block.global_shape, slice.dtype};
        if (!(tensor.info.shape == slice.block.global_shape) || tensor.info.dtype != slice.dtype) {
            core::raise<CheckpointError>("slices of tensor '{}' disagree: {} {} and {} {}", slice.name,
                                         core::name_of(tensor.info.dtype), tensor.info.shape.to_string(),
                                         core::name_of(slice.dtype), slice.block.global_shape.to_string());
        }
        // A rank that owns nothing of a tensor hands in an empty slice; the file need not know.
        if (slice.block.numel() == 0 && slice.block.global_shape.numel() != 0) continue;
        file.places.emplace_back(slice.name, tensor.slices.size());
        tensor.slices.push_back({file.name, slice_key(slice), slice.block, 0});
        file.sources.push_back({slice_key(slice), slice.dtype, slice.block.local_shape(), slice.data});
    }
    return plan;
}

void write_contents(const std::string& folder, const CheckpointState& state, WritePlan& plan) {
    CheckpointIndex index;
    index.state = state;
    for (const FilePlan& file : plan.files) {
        if (file.sources.empty()) continue;
        const SafetensorsSummary summary =
                write_safetensors(folder + "/" + file.name, file.sources, {{"format", "tessera"}});
        index.files.push_back({file.name, summary.file_bytes, summary.header_xxh64});
        for (std::size_t i = 0; i < file.places.size(); ++i) {
            const auto& [name, number] = file.places[i];
            plan.tensors.at(name).slices[number].xxh64 = summary.tensors_xxh64[i];
        }
    }
    for (const auto& [name, tensor] : plan.tensors) index.tensors.push_back(tensor);
    DurableFile file(folder + "/" + std::string(kIndexName));
    file.write(index_to_json(index));
    file.sync_and_close();
    sync_folder(folder);
}

void rename_folder(const std::string& from, const std::string& to) {
    if (::rename(from.c_str(), to.c_str()) != 0) {
        core::raise<EnvironmentError>("cannot rename '{}' to '{}': {}", from, to, std::strerror(errno));
    }
}

/// The finished folder takes its name; one of the same step is exchanged for it and removed.
void publish(const std::string& temporary, const std::string& target) {
    if (!fs::exists(target)) {
        rename_folder(temporary, target);
        return;
    }
    if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
        fs::remove_all(temporary);
        return;
    }
    const std::string old = temporary + "-replaced";
    rename_folder(target, old);
    rename_folder(temporary, target);
    fs::remove_all(old);
}

/// A folder is renamed before its files go, so that no half-removed checkpoint ever carries its name.
void remove_checkpoint(const std::string& root, std::int64_t step) {
    const std::string doomed = root + "/" + temporary_name(step) + "-removed";
    rename_folder(root + "/" + checkpoint_name(step), doomed);
    fs::remove_all(doomed);
}

void apply_retention(const WriteCheckpointArgs& args) {
    if (args.retention.keep <= 0) return;
    std::vector<std::int64_t> steps = list_checkpoints(args.root);
    // Steps beyond this one belong to a run that went on from here earlier; they are not this run's to remove.
    std::erase_if(steps, [&](std::int64_t step) { return step > args.state.step; });
    std::int64_t newest = args.retention.keep;
    std::error_code error;
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
        if (newest-- > 0) continue;
        if (args.retention.keep_every > 0 && *step % args.retention.keep_every == 0) continue;
        const fs::path path = fs::path(args.root) / checkpoint_name(*step);
        if (!args.protected_path.empty() && fs::equivalent(path, args.protected_path, error)) continue;
        try {
            remove_checkpoint(args.root, *step);
        } catch (const std::exception& failure) {
            core::log_warning(fmt::format("an old checkpoint could not be removed: {}", failure.what()));
        }
    }
}

std::int64_t file_bytes(std::span<const TensorSlice> slices, bool optimizer) {
    std::vector<SafetensorsSource> sources;
    for (const TensorSlice& slice : slices) {
        if ((slice.name.rfind(kOptimizerPrefix, 0) == 0) != optimizer) continue;
        sources.push_back({slice_key(slice), slice.dtype, slice.block.local_shape(), nullptr});
    }
    return safetensors_bytes(sources);
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
    TESSERA_INVARIANT(step >= 0);
    return fmt::format("step_{:08d}", step);
}

void prepare_checkpoint_root(const std::string& root, std::int64_t bytes_needed, std::int64_t largest_file_bytes) {
    make_folder(root);
    remove_leftovers(root);
    require_space(root, bytes_needed);
    try_file_size(root + "/" + temporary_name(0) + "-trial", largest_file_bytes);
}

std::int64_t checkpoint_bytes(std::span<const TensorSlice> slices) {
    constexpr std::int64_t kIndexBytesPerSlice = 512;
    constexpr std::int64_t kIndexBytes = 64 * 1024;
    return file_bytes(slices, false) + file_bytes(slices, true) + kIndexBytes +
           static_cast<std::int64_t>(slices.size()) * kIndexBytesPerSlice;
}

std::int64_t largest_file_bytes(std::span<const TensorSlice> slices) {
    return std::max(file_bytes(slices, false), file_bytes(slices, true));
}

std::string write_checkpoint(const WriteCheckpointArgs& args) {
    WritePlan plan = make_plan(args.slices);
    const std::string target = args.root + "/" + checkpoint_name(args.state.step);
    for (const auto& [name, tensor] : plan.tensors) check_coverage("cannot write '" + target + "'", tensor);
    make_folder(args.root);
    require_space(args.root, checkpoint_bytes(args.slices));
    const std::string temporary = args.root + "/" + temporary_name(args.state.step);
    try {
        fs::remove_all(temporary);
        make_folder(temporary);
        write_contents(temporary, args.state, plan);
        publish(temporary, target);
    } catch (...) {
        std::error_code error;
        fs::remove_all(temporary, error);
        throw;
    }
    sync_folder(args.root);
    replace_file(args.root + "/" + std::string(kLatestName), checkpoint_name(args.state.step) + "\n");
    apply_retention(args);
    return target;
}

}  // namespace tessera::train

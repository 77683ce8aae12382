#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "core/error.h"
#include "core/log.h"
#include "train/checkpoint_files.h"
#include "train/checkpoint_files_index.h"
#include "train/durable_file.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;
using core::CheckpointError;

/// The step of a name that checkpoint_name could have made.
std::optional<std::int64_t> step_of_name(std::string_view name) {
    constexpr std::string_view kPrefix = "step_";
    if (name.substr(0, kPrefix.size()) != kPrefix) return std::nullopt;
    std::int64_t step = 0;
    const auto [end, error] = std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
    if (error != std::errc{} || end != name.data() + name.size() || step < 0) return std::nullopt;
    return checkpoint_name(step) == name ? std::optional(step) : std::nullopt;
}

std::string present(const std::string& root) {
    const std::vector<std::int64_t> steps = list_checkpoints(root);
    if (steps.empty()) return fmt::format("there are no checkpoints in '{}'", root);
    return fmt::format("'{}' has steps {}", root, fmt::join(steps, ", "));
}

/// The one `latest` names, then the others from the newest to the oldest.
std::vector<std::string> candidates(const std::string& root) {
    std::vector<std::int64_t> steps = list_checkpoints(root);
    std::vector<std::string> names;
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) names.push_back(checkpoint_name(*step));
    const std::string latest_path = root + "/" + std::string(kLatestName);
    std::error_code error;
    if (!fs::is_regular_file(latest_path, error)) return names;
    std::string latest = read_text_file(latest_path);
    while (!latest.empty() && (latest.back() == '\n' || latest.back() == '\r' || latest.back() == ' '))
        latest.pop_back();
    if (!step_of_name(latest)) {
        core::log_warning(fmt::format("'{}' does not name a checkpoint; looking for the newest", latest_path));
        return names;
    }
    std::erase(names, latest);
    names.insert(names.begin(), latest);
    return names;
}

std::optional<CheckpointReader> newest_sound(const std::string& root, LoadParts parts) {
    const std::vector<std::string> names = candidates(root);
    std::string first_failure;
    for (std::size_t i = 0; i < names.size(); ++i) {
        try {
            CheckpointReader reader = CheckpointReader::open(root + "/" + names[i], parts);
            reader.verify();
            if (i > 0) core::log_warning(fmt::format("resuming from the older checkpoint {} instead", reader.path()));
            return reader;
        } catch (const core::Error& error) {
            core::log_warning(fmt::format("passing over {}: {}", names[i], error.what()));
            if (first_failure.empty()) first_failure = error.what();
        }
    }
    if (names.empty()) return std::nullopt;
    core::raise<CheckpointError>(
            "none of the {} checkpoints in '{}' is usable: {}; set checkpoint.resume = \"none\" to start "
            "anew",
            names.size(), root, first_failure);
}

CheckpointReader open_verified(const std::string& path, LoadParts parts) {
    CheckpointReader reader = CheckpointReader::open(path, parts);
    reader.verify();
    return reader;
}

/// The folder of checkpoints that a path stands for: a run's folder has them one below.
std::string checkpoints_in(const std::string& path) {
    std::error_code error;
    const fs::path below = fs::path(path) / "checkpoints";
    return list_checkpoints(path).empty() && fs::is_directory(below, error) ? below.string() : path;
}

bool is_number(const std::string& text) {
    return !text.empty() && text.size() < 18 && text.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

std::vector<std::int64_t> list_checkpoints(const std::string& root) {
    std::vector<std::int64_t> steps;
    std::error_code error;
    for (fs::directory_iterator entry(root, error), end; !error && entry != end; entry.increment(error)) {
        const std::optional<std::int64_t> step = step_of_name(entry->path().filename().string());
        std::error_code ignored;
        if (step && fs::is_regular_file(entry->path() / kIndexName, ignored)) steps.push_back(*step);
    }
    std::sort(steps.begin(), steps.end());
    return steps;
}

std::optional<CheckpointReader> find_checkpoint(const std::string& root, const std::string& resume, LoadParts parts) {
    if (resume == "none") return std::nullopt;
    if (resume == "auto") return newest_sound(root, parts);
    if (is_number(resume)) {
        const std::string path = root + "/" + checkpoint_name(std::stoll(resume));
        std::error_code error;
        if (!fs::exists(path, error)) {
            core::raise<CheckpointError>("checkpoint.resume = {}: there is no such step; {}", resume, present(root));
        }
        return open_verified(path, parts);
    }
    std::error_code error;
    if (!fs::is_directory(resume, error)) {
        core::raise<CheckpointError>("checkpoint '{}' does not exist; {}", resume, present(root));
    }
    if (fs::exists(fs::path(resume) / kIndexName, error)) return open_verified(resume, parts);
    std::optional<CheckpointReader> found = newest_sound(checkpoints_in(resume), parts);
    if (!found) {
        core::raise<CheckpointError>(
                "'{}' is neither a complete checkpoint (no {}) nor a folder of "
                "checkpoints or of a run; {}",
                resume, kIndexName, present(root));
    }
    return found;
}

}  // namespace tessera::train

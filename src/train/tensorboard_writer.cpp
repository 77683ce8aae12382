#include "train/tensorboard_writer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <vector>

#include "core/error.h"
#include "train/event_file.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kPrefix = "events.out.tfevents.";

double wall_time_s() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
    std::array<char, 256> name{};
    if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
    std::string host(name.data());
    std::replace(host.begin(), host.end(), '/', '_');
    return host;
}

/// The latest time in the names of the folder's event files; 0 if there is none.
std::int64_t latest_timestamp(const fs::path& folder) {
    std::int64_t latest = 0;
    std::error_code failure;  // a folder that cannot be listed may still be written
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, failure)) {
        const std::string name = entry.path().filename().string();
        if (name.rfind(kPrefix, 0) != 0) continue;
        std::int64_t timestamp = 0;
        std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), timestamp);
        latest = std::max(latest, timestamp);
    }
    return latest;
}

/// TensorBoard reads a folder's files in the order of their names, so a later file needs a later time even when two
/// runs begin within a second.
AppendFile open_event_file(const std::string& folder) {
    std::error_code failure;
    fs::create_directories(folder, failure);
    if (failure) {
        core::raise<core::EnvironmentError>(
                "cannot create the folder {} for TensorBoard ({}); set log.tensorboard_directory to a place that can "
                "be written, or log.tensorboard = false",
                folder, failure.message());
    }
    const std::int64_t timestamp = std::max(static_cast<std::int64_t>(wall_time_s()), latest_timestamp(folder) + 1);
    const std::string name = fmt::format("{}{:010}.{}.{}", kPrefix, timestamp, host_name(), ::getpid());
    int number = 0;
    while (fs::exists(fs::path(folder) / fmt::format("{}.{}", name, number))) ++number;
    return {(fs::path(folder) / fmt::format("{}.{}", name, number)).string(), OpenMode::must_make};
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(const std::string& folder, std::int64_t resumed_step)
    : file_(open_event_file(folder)) {
    const double now = wall_time_s();
    file_.write(tf_record(file_version_event(now)) + tf_record(session_start_event(now, resumed_step + 1)));
}

void TensorBoardWriter::write(const StepMetrics& metrics) {
    const std::array<Scalar, 8> scalars = {{{"lm loss", metrics.loss},
                                            {"learning-rate", metrics.learning_rate},
                                            {"grad-norm", metrics.grad_norm},
                                            {"loss-scale", metrics.loss_scale},
                                            {"batch-size", static_cast<double>(metrics.global_batch_size)},
                                            {"throughput", metrics.tflops},
                                            {"iteration-time", metrics.elapsed_ms / 1e3},
                                            {"tokens-per-second", metrics.tokens_per_s}}};
    file_.write(tf_record(scalars_event(wall_time_s(), metrics.step, scalars)));
}

void TensorBoardWriter::write(const EvaluationMetrics& metrics) {
    std::vector<Scalar> scalars = {{"lm loss validation", metrics.loss},
                                   {"lm loss validation ppl", metrics.perplexity}};
    if (metrics.bits_per_byte) scalars.push_back({"lm loss validation bits per byte", *metrics.bits_per_byte});
    file_.write(tf_record(scalars_event(wall_time_s(), metrics.step, scalars)));
}

}  // namespace tessera::train

#include "train/checkpoint_files_index.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace tessera::train {
namespace {

using core::CheckpointError;
using core::Shape;
using Json = nlohmann::json;

constexpr std::string_view kFormat = "tessera-checkpoint";
constexpr std::int64_t kFormatVersion = 1;
constexpr const char* kChecksumKey = "index_xxh64";

std::string hex(std::uint64_t value) {
    return fmt::format("{:016x}", value);
}

std::uint64_t from_hex(const Json& json) {
    const std::string text = json.get<std::string>();
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    if (error != std::errc{} || end != text.data() + text.size())
        throw std::invalid_argument("'" + text + "' is no checksum");
    return value;
}

Json state_to_json(const CheckpointState& state) {
    return {{"step", state.step},
            {"consumed_samples", state.consumed_samples},
            {"consumed_tokens", state.consumed_tokens},
            {"updates", state.updates},
            {"skipped_steps", state.skipped_steps},
            {"loss_scale", state.loss_scale},
            {"loss_scale_clean_steps", state.loss_scale_clean_steps},
            {"loss_scale_hysteresis_left", state.loss_scale_hysteresis_left},
            {"config", state.config_toml},
            {"program_version", state.program_version},
            {"extras", state.extras}};
}

CheckpointState state_from_json(const Json& json) {
    CheckpointState state;
    json.at("step").get_to(state.step);
    json.at("consumed_samples").get_to(state.consumed_samples);
    json.at("consumed_tokens").get_to(state.consumed_tokens);
    json.at("updates").get_to(state.updates);
    json.at("skipped_steps").get_to(state.skipped_steps);
    json.at("loss_scale").get_to(state.loss_scale);
    json.at("loss_scale_clean_steps").get_to(state.loss_scale_clean_steps);
    json.at("loss_scale_hysteresis_left").get_to(state.loss_scale_hysteresis_left);
    json.at("config").get_to(state.config_toml);
    json.at("program_version").get_to(state.program_version);
    json.at("extras").get_to(state.extras);
    return state;
}

Json tensor_to_json(const IndexTensor& tensor) {
    const Shape& shape = tensor.info.shape;
    Json json = {{"dtype", core::name_of(tensor.info.dtype)}, {"shape", Json::array()}, {"slices", Json::array()}};
    for (int axis = 0; axis < shape.rank(); ++axis) json["shape"].push_back(shape[axis]);
    for (const IndexSlice& slice : tensor.slices) {
        Json ranges = Json::array();
        for (int axis = 0; axis < shape.rank(); ++axis) {
            const IndexRange& range = slice.block.ranges[static_cast<std::size_t>(axis)];
            ranges.push_back({range.begin, range.end});
        }
        json["slices"].push_back(
                {{"file", slice.file}, {"key", slice.key}, {"ranges", ranges}, {"xxh64", hex(slice.xxh64)}});
    }
    return json;
}

Shape shape_from_json(const Json& json) {
    const auto extents = json.get<std::vector<std::int64_t>>();
    if (extents.size() > Shape::kMaxRank) throw std::invalid_argument("more than 4 dimensions");
    for (const std::int64_t extent : extents) {
        if (extent < 0) throw std::invalid_argument("a negative extent");
    }
    return Shape(extents);
}

IndexTensor tensor_from_json(const std::string& name, const Json& json) {
    IndexTensor tensor;
    tensor.info = {name, shape_from_json(json.at("shape")), core::dtype_from_name(json.at("dtype").get<std::string>())};
    for (const Json& entry : json.at("slices")) {
        IndexSlice slice;
        entry.at("file").get_to(slice.file);
        entry.at("key").get_to(slice.key);
        slice.xxh64 = from_hex(entry.at("xxh64"));
        slice.block.global_shape = tensor.info.shape;
        const auto ranges = entry.at("ranges").get<std::vector<std::array<std::int64_t, 2>>>();
        if (static_cast<int>(ranges.size()) != tensor.info.shape.rank())
            throw std::invalid_argument("ranges of another rank");
        for (std::size_t axis = 0; axis < ranges.size(); ++axis)
            slice.block.ranges[axis] = {ranges[axis][0], ranges[axis][1]};
        tensor.slices.push_back(std::move(slice));
    }
    return tensor;
}

bool overlap(const TensorBlock& a, const TensorBlock& b) {
    if (a.numel() == 0 || b.numel() == 0) return false;
    for (int axis = 0; axis < a.global_shape.rank(); ++axis) {
        const IndexRange& first = a.ranges[static_cast<std::size_t>(axis)];
        const IndexRange& second = b.ranges[static_cast<std::size_t>(axis)];
        if (first.end <= second.begin || second.end <= first.begin) return false;
    }
    return true;
}

}  // namespace

std::string index_to_json(const CheckpointIndex& index) {
    Json json = state_to_json(index.state);
    json["format"] = kFormat;
    json["format_version"] = kFormatVersion;
    json["files"] = Json::array();
    for (const IndexFile& file : index.files) {
        json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}, {"header_xxh64", hex(file.header_xxh64)}});
    }
    json["tensors"] = Json::object();
    for (const IndexTensor& tensor : index.tensors) json["tensors"][tensor.info.name] = tensor_to_json(tensor);
    // Objects are sorted by key, so that the same content always has the same text.
    const std::string content = json.dump();
    json[kChecksumKey] = hex(XXH64(content.data(), content.size(), 0));
    return json.dump(1) + "\n";
}

CheckpointIndex index_from_json(const std::string& path, const std::string& text) {
    Json json = Json::parse(text, nullptr, false);
    if (!json.is_object()) {
        core::raise<CheckpointError>("'{}' is cut short or damaged: {} bytes that are not a JSON object", path,
                                     text.size());
    }
    if (json.value("format", Json()) != kFormat) {
        core::raise<CheckpointError>("'{}' is not the index of a Tessera checkpoint", path);
    }
    if (json.value("format_version", Json()) != kFormatVersion) {
        core::raise<CheckpointError>("'{}' has format version {}; this program reads version {}", path,
                                     json.value("format_version", Json()).dump(), kFormatVersion);
    }
    try {
        const std::uint64_t recorded = from_hex(json.at(kChecksumKey));
        json.erase(kChecksumKey);
        const std::string content = json.dump();
        const std::uint64_t found = XXH64(content.data(), content.size(), 0);
        if (found != recorded) {
            core::raise<CheckpointError>("'{}' is damaged: its checksum is {}, it records {}", path, hex(found),
                                         hex(recorded));
        }
        CheckpointIndex index;
        index.state = state_from_json(json);
        for (const Json& file : json.at("files")) {
            if (file.at("name").get<std::string>().find('/') != std::string::npos) {
                throw std::invalid_argument("a file outside the checkpoint");
            }
            index.files.push_back({file.at("name").get<std::string>(), file.at("bytes").get<std::int64_t>(),
                                   from_hex(file.at("header_xxh64"))});
        }
        for (const auto& [name, tensor] : json.at("tensors").items())
            index.tensors.push_back(tensor_from_json(name, tensor));
        return index;
    } catch (const nlohmann::json::exception& error) {
        core::raise<CheckpointError>("'{}' is damaged: {}", path, error.what());
    } catch (const std::invalid_argument& error) {
        core::raise<CheckpointError>("'{}' is damaged: {}", path, error.what());
    } catch (const core::ConfigError& error) {
        core::raise<CheckpointError>("'{}' is damaged: {}", path, error.what());
    }
}

void check_coverage(const std::string& where, const IndexTensor& tensor) {
    const Shape& shape = tensor.info.shape;
    std::int64_t held = 0;
    for (const IndexSlice& slice : tensor.slices) {
        for (int axis = 0; axis < shape.rank(); ++axis) {
            const IndexRange& range = slice.block.ranges[static_cast<std::size_t>(axis)];
            if (range.begin < 0 || range.end < range.begin || range.end > shape[axis]) {
                core::raise<CheckpointError>("{}: slice {} of tensor '{}' lies outside its shape {}", where,
                                             slice.block.to_string(), tensor.info.name, shape.to_string());
            }
        }
        held += slice.block.numel();
    }
    // A scalar has one element and no range, so that two of its slices always overlap.
    for (std::size_t i = 0; i < tensor.slices.size(); ++i) {
        for (std::size_t j = i + 1; j < tensor.slices.size(); ++j) {
            if (overlap(tensor.slices[i].block, tensor.slices[j].block)) {
                core::raise<CheckpointError>("{}: slices {} and {} of tensor '{}' overlap", where,
                                             tensor.slices[i].block.to_string(), tensor.slices[j].block.to_string(),
                                             tensor.info.name);
            }
        }
    }
    if (held != shape.numel()) {
        core::raise<CheckpointError>("{}: tensor '{}' is incomplete: its slices hold {} of {} elements", where,
                                     tensor.info.name, held, shape.numel());
    }
}

}  // namespace tessera::train

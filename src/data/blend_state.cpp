#include "data/blend_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "data/blend.h"

namespace tessera::data {
namespace {

/// Those with a weight, which are blended.
std::vector<SourceState> blended(const BlendState& state) {
    std::vector<SourceState> sources;
    std::copy_if(state.sources.begin(), state.sources.end(), std::back_inserter(sources),
                 [](const SourceState& source) { return source.weight > 0; });
    return sources;
}

Blend blend_of(const std::vector<SourceState>& sources) {
    std::vector<double> weights;
    std::vector<std::string> names;
    for (const SourceState& source : sources) {
        weights.push_back(source.weight);
        names.push_back(source.name);
    }
    return {weights, names};
}

bool same_sources(const std::vector<SourceState>& a, const std::vector<SourceState>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const SourceState& one, const SourceState& other) { return one.identity == other.identity; });
}

double percent(std::int64_t quota) {
    return 100 * static_cast<double>(quota) / static_cast<double>(kBlendSlots);
}

std::string progress_of(const SourceState& source) {
    return fmt::format("{} samples ({:.2f} epochs)", source.given,
                       static_cast<double>(source.given) / static_cast<double>(source.num_samples));
}

/// A source of the saved blend, with what it gave until now, and its share.
struct Known {
    SourceState source;
    double share = 0;
    bool taken = false;
};

std::vector<Known> known_sources(const BlendState& saved, const std::vector<SourceState>& before, const Blend& blend,
                                 std::int64_t position) {
    std::vector<Known> known;
    for (std::size_t k = 0; k < before.size(); ++k) {
        known.push_back({before[k], percent(blend.quotas()[k])});
        known.back().source.given += blend.count(static_cast<std::int64_t>(k), position - saved.first_position);
    }
    for (const SourceState& source : saved.sources) {
        if (source.weight <= 0) known.push_back({source});
    }
    return known;
}

std::vector<std::string> changes_of_samples(const BlendState& saved, const BlendState& present) {
    std::vector<std::string> changes;
    if (saved.seq_length != present.seq_length) {
        changes.push_back(fmt::format(
                "seq_length was {} and is {}: the samples are cut anew, so that tokens of an unfinished epoch may be "
                "read again",
                saved.seq_length, present.seq_length));
    }
    if (saved.seed != present.seed) {
        changes.push_back(fmt::format(
                "the seed was {} and is {}: samples come in another order, so that those of an unfinished epoch may be "
                "read again",
                saved.seed, present.seed));
    }
    return changes;
}

/// Where the source of the present blend stands, and a line about it.
std::string take_up(SourceState& source, double share, std::vector<Known>& known, std::uint32_t& next_stream) {
    const auto match = std::find_if(known.begin(), known.end(), [&](const Known& candidate) {
        return !candidate.taken && candidate.source.identity == source.identity;
    });
    if (match == known.end()) {
        source.stream = next_stream++;
        source.given = 0;
        return fmt::format("  {}: new, share {:.3f} %", source.name, share);
    }
    match->taken = true;
    source.stream = match->source.stream;
    source.given = match->source.given;
    const std::string was = match->source.weight > 0 ? fmt::format("was {:.3f} %", match->share) : "had been left out";
    return fmt::format("  {}: share {:.3f} % ({}), goes on after {}", source.name, share, was, progress_of(source));
}

}  // namespace

std::string to_json(const BlendState& state) {
    nlohmann::json sources = nlohmann::json::array();
    for (const SourceState& source : state.sources) {
        sources.push_back({{"identity", source.identity},
                           {"name", source.name},
                           {"stream", source.stream},
                           {"given", source.given},
                           {"samples", source.num_samples},
                           {"weight", source.weight}});
    }
    const nlohmann::json json = {{"first_position", state.first_position},
                                 {"seed", state.seed},
                                 {"seq_length", state.seq_length},
                                 {"sources", sources}};
    // A path may hold any bytes.
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

BlendState blend_state_of(const std::string& text) try {
    const nlohmann::json json = nlohmann::json::parse(text);
    BlendState state{.first_position = json.at("first_position").get<std::int64_t>(),
                     .seed = json.at("seed").get<std::uint64_t>(),
                     .seq_length = json.at("seq_length").get<std::int64_t>()};
    for (const nlohmann::json& source : json.at("sources")) {
        state.sources.push_back({.identity = source.at("identity").get<std::string>(),
                                 .name = source.at("name").get<std::string>(),
                                 .stream = source.at("stream").get<std::uint32_t>(),
                                 .given = source.at("given").get<std::int64_t>(),
                                 .num_samples = source.at("samples").get<std::int64_t>(),
                                 .weight = source.at("weight").get<double>()});
        const SourceState& last = state.sources.back();
        if (last.given < 0 || last.num_samples < 1 || !(last.weight >= 0)) {
            core::raise<core::DataError>(
                    "the state of source {} cannot be: {} samples given, {} in an epoch, weight {}", last.name,
                    last.given, last.num_samples, last.weight);
        }
    }
    return state;
} catch (const nlohmann::json::exception& error) {
    core::raise<core::DataError>("the saved state of the data blend cannot be read: {}", error.what());
}

ContinuedBlend continued_blend(const BlendState& saved, const BlendState& present, std::int64_t position) {
    if (position < saved.first_position) {
        core::raise<core::DataError>("the saved data blend begins at sample {}, but the run stands at {}",
                                     saved.first_position, position);
    }
    const std::vector<SourceState> before = blended(saved);
    const Blend blend_before = blend_of(before);
    const Blend blend_now = blend_of(present.sources);
    ContinuedBlend result{.state = saved, .changes = changes_of_samples(saved, present)};
    result.state.seed = present.seed;
    result.state.seq_length = present.seq_length;
    if (same_sources(before, present.sources) && blend_before.quotas() == blend_now.quotas()) {
        for (std::size_t k = 0; k < before.size(); ++k) {
            result.state.sources[k].name = present.sources[k].name;
            result.state.sources[k].num_samples = present.sources[k].num_samples;
        }
        return result;
    }
    std::vector<Known> known = known_sources(saved, before, blend_before, position);
    std::uint32_t next_stream = 0;
    for (const Known& each : known) next_stream = std::max(next_stream, each.source.stream + 1);
    result.state.first_position = position;
    result.state.sources = present.sources;
    result.changes.push_back(fmt::format("the data blend changed after {} samples:", position));
    for (std::size_t k = 0; k < present.sources.size(); ++k) {
        result.changes.push_back(take_up(result.state.sources[k], percent(blend_now.quotas()[k]), known, next_stream));
    }
    for (Known& each : known) {
        if (each.taken) continue;
        if (each.source.weight > 0) {
            result.changes.push_back(
                    fmt::format("  {}: left out after {}", each.source.name, progress_of(each.source)));
        }
        each.source.weight = 0;
        result.state.sources.push_back(each.source);
    }
    return result;
}

}  // namespace tessera::data

#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tessera::data {

/// What must be known of a source to go on reading it in a later run.
struct SourceState {
    /// Of its tokens, wherever its shards lie: 16 hexadecimal digits.
    std::string identity = {};
    /// For messages.
    std::string name = {};
    /// Number of its random order: its samples are shuffled by (seed, stream, epoch).
    std::uint32_t stream = 0;
    /// Samples it gave before BlendState::first_position.
    std::int64_t given = 0;
    /// Samples in one epoch.
    std::int64_t num_samples = 0;
    /// 0: it is left out of the blend, and only remembered.
    double weight = 0;
    bool operator==(const SourceState&) const = default;
};

/// A blend and where it began. From first_position on the sources with a weight, which come first, are mixed by Blend
/// in this order; the i-th sample (from 0) that a source gives in it is its sample given + i.
struct BlendState {
    std::int64_t first_position = 0;
    std::uint64_t seed = 0;
    std::int64_t seq_length = 0;
    std::vector<SourceState> sources = {};
    bool operator==(const BlendState&) const = default;
};

/// One line of JSON, for a checkpoint. blend_state_of() throws DataError if `text` is not what to_json() writes.
std::string to_json(const BlendState& state);
BlendState blend_state_of(const std::string& text);

struct ContinuedBlend {
    BlendState state;
    /// What changed and where each source stands, a line each; empty if nothing did.
    std::vector<std::string> changes;
};

/// How a run that was saved with the blend `saved`, after `position` samples, goes on with the sources of `present`
/// (all weights positive; their streams, given samples and first position are not looked at). Sources are known again
/// by their identity. If the same sources have the same quotas in the same order, the saved blend goes on as if there
/// had been no stop. Otherwise the present one begins at `position`, each source after the samples it has given, so
/// that none is read again before its epoch is over; a new source begins at its start with an order of its own; one
/// that is left out is remembered, and goes on likewise if it comes back.
ContinuedBlend continued_blend(const BlendState& saved, const BlendState& present, std::int64_t position);

}  // namespace tessera::data

#pragma once
#include <cstdint>
#include <vector>

namespace tessera::data {

/// The samples of one global batch (or a part of it), in the order of the run.
struct Batch {
    std::int64_t first_sample = 0;  ///< run-wide position of the first sample
    std::int64_t num_samples = 0;
    std::int64_t seq_length = 0;
    std::vector<std::int32_t> tokens;        ///< [num_samples, seq_length]
    std::vector<std::int32_t> targets;       ///< [num_samples, seq_length]: the next token; -1 = no loss
    std::vector<std::int64_t> sample_index;  ///< [num_samples]: run-wide position of each sample, dropout's coordinate
    /// For each sample the offsets in (0, seq_length) at which a new document begins, ascending.
    std::vector<std::vector<std::int32_t>> document_borders;
    std::int64_t loss_tokens = 0;  ///< targets that are not -1
};

}  // namespace tessera::data

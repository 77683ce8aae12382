#pragma once
#include "core/tensor.h"

namespace tessera::kernels {

/// Where each of a micro-batch's T local tokens stands in the run (docs/design.md section 3). Sequence and context
/// parallelism differ from one process only in this map. Padding tokens have sample = -1.
struct TokenMap {
    core::Tensor sample;      ///< [T] i64: index of the sample in the run; -1 = padding
    core::Tensor offset;      ///< [T] i32: position in the sample, the coordinate of dropout
    core::Tensor position;    ///< [T] i32: position for the model (restarts at a document border under a document mask)
    core::Tensor cu_seqlens;  ///< [sequences + 1] i32: borders of the attention blocks, first 0; tokens from the last
                              ///< border to T are padding
    std::int64_t max_seqlen = 0;           ///< longest attention block
    std::int64_t seq_length = 0;           ///< the configured sequence length, a factor of dropout's counters
    std::int64_t sum_squared_seqlens = 0;  ///< sum of L_i^2: what attention's FLOPs follow
};

/// Dropout as a pure function of global coordinates: element kept iff word >= p·2^32, then scaled by 1/(1-p).
/// word = lane (feature & 3) of philox4x32_10(counter, key), key = seed, counter =
///   { feature >> 2, offset in the sample, low 32 bits of the sample index, site }, site = purpose<<28 | layer<<8 |
///   place
/// XOR-ed with the high 32 bits of the sample index. For attention, feature = head · round_up(seq_length, 4) + key
/// offset, head being the global query head (head_begin + local head) and offset the query's.
struct Dropout {
    float probability = 0;  ///< p in [0, 1); 0 = off
    std::uint64_t seed = 0;
    std::uint32_t site = 0;
    std::int64_t feature_begin = 0;  ///< global index of the first local feature (or query head)
};

/// The site word of the counter: purpose (core::RandomPurpose) << 28 | layer << 8 | place within the layer.
constexpr std::uint32_t dropout_site(std::uint32_t purpose, std::int64_t layer, std::uint32_t place) {
    return purpose << 28 | static_cast<std::uint32_t>(layer) << 8 | place;
}

}  // namespace tessera::kernels

#pragma once
#include "data/batch.h"
#include "kernels/backend.h"

namespace tessera::train {

/// T is rounded up to a multiple of this.
inline constexpr std::int64_t kTokenMultiple = 16;

/// The tensors of one micro-batch: exactly T tokens, num_samples·seq_length rounded up to a multiple of 16; padding
/// tokens belong to no sequence and carry no loss.
struct MicroBatch {
    core::Tensor tokens;   ///< [T] i32
    core::Tensor targets;  ///< [T] i32, -1 = no loss
    kernels::TokenMap map;
};

/// Whether attention and positions stop at document borders.
enum class DocumentMask : std::uint8_t { off, on };

/// Samples [first, first + count) of a batch as tensors of the backend. With a document mask each document is an
/// attention block of its own and its positions start from 0; without, a sample is one block.
MicroBatch make_micro_batch(kernels::Backend& backend, const data::Batch& batch, std::int64_t first, std::int64_t count,
                            DocumentMask mask);

/// The micro-batch of one sequence that stands at positions [past, past + tokens): for generation with a cache. No
/// targets.
MicroBatch make_sequence(kernels::Backend& backend, const std::vector<std::int32_t>& tokens, std::int64_t past,
                         std::int64_t seq_length);

}  // namespace tessera::train

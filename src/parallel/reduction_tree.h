#pragma once
#include <cstdint>
#include <span>

#include "core/dtype.h"
#include "parallel/communicator.h"

namespace tessera::parallel {

/// Where the binary tree over [begin, end) divides: the left subtree has the largest power of two of leaves below the
/// count. Trees over whole subtrees of a larger power of two are therefore part of the tree over all of them.
int tree_split(int begin, int end);

/// output[i] = reduction over r of inputs[r][i], i < count, in tree order; 16-bit floats are widened to f32 and the
/// result is rounded once. A maximum with a NaN is NaN. `output` may be one of the inputs.
void reduce_in_tree_order(core::DType dtype, ReduceOp op, std::span<const std::byte* const> inputs, std::byte* output,
                          std::int64_t count);

}  // namespace tessera::parallel

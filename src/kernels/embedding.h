#pragma once
#include "core/tensor.h"
#include "kernels/token_map.h"

namespace tessera::kernels {

class Backend;

/// y[t] = dropout(word[tokens[t]] + positions[position of t]).
/// tokens [T] i32; word [V, D], positions [S, D] or null (rotary models), y [T, D] of one floating dtype. A padding
/// token (sample = -1) gives zeros. Throws DataError if a token is outside [0, V) or a position outside [0, S).
struct EmbeddingForwardArgs {
    const core::Tensor& tokens;
    const core::Tensor& word;
    const core::Tensor* positions = nullptr;
    const TokenMap& map;
    Dropout dropout;
    core::Tensor& y;
};

/// dword [V, D] f32 += rows of dy by token, dpositions [S, D] f32 += rows of dy by position (null as in forward),
/// through the dropout mask. Rows are added in token order: the result does not depend on the number of threads.
struct EmbeddingBackwardArgs {
    const core::Tensor& tokens;
    const TokenMap& map;
    Dropout dropout;
    const core::Tensor& dy;
    core::Tensor& dword;
    core::Tensor* dpositions = nullptr;
};

class EmbeddingKernels {
public:
    virtual ~EmbeddingKernels() = default;
    virtual void embedding_forward(const EmbeddingForwardArgs& args) = 0;
    virtual void embedding_backward(const EmbeddingBackwardArgs& args) = 0;
};

void embedding_forward(Backend& backend, core::Stream& stream, const EmbeddingForwardArgs& args);
void embedding_backward(Backend& backend, core::Stream& stream, const EmbeddingBackwardArgs& args);

}  // namespace tessera::kernels

#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "kernels/token_map.h"

namespace tessera::kernels::cpu {

/// Raw operands of the embedding (kernels/embedding.h). Tokens and positions have been checked.
struct EmbeddingRows {
    core::DType dtype = core::DType::f32;
    std::int64_t tokens = 0;
    std::int64_t hidden = 0;
    const std::int32_t* ids = nullptr;
    const std::int64_t* sample = nullptr;
    const std::int32_t* offset = nullptr;
    const std::int32_t* position = nullptr;
    Dropout dropout{};
    const void* word = nullptr;
    const void* positions = nullptr;
    void* y = nullptr;
    const void* dy = nullptr;
    float* dword = nullptr;
    float* dpositions = nullptr;
};
void embedding_rows_forward(const EmbeddingRows& args);
void embedding_rows_backward(const EmbeddingRows& args);

}  // namespace tessera::kernels::cpu

#pragma once
#include <vector>

#include "kernels/backend.h"
#include "layers/tape.h"

namespace tessera::layers {

/// Keys and values of one sequence, layer by layer, for generation: rows [0, length) of each [capacity, G·K] are
/// filled.
struct KvCache {
    struct Layer {
        core::Tensor keys;
        core::Tensor values;
    };
    std::vector<Layer> layers;
    std::int64_t capacity = 0;
    std::int64_t length = 0;
};

/// Dropout acts in training only.
enum class Mode : std::uint8_t { train, evaluate };

/// What a forward needs beside its input: the tape (null: nothing is kept), the token map, and for generation a cache.
struct ForwardContext {
    kernels::Backend& backend;
    core::Stream& stream;
    Tape* tape = nullptr;
    const kernels::TokenMap& tokens;
    KvCache* cache = nullptr;
    Mode mode = Mode::evaluate;
    std::uint64_t seed = 0;

    core::Tensor empty(core::Shape shape, core::DType dtype,
                       core::MemoryCategory category = core::MemoryCategory::activations) const {
        return core::Tensor::empty(backend.pool(), shape, dtype, category);
    }
    /// A Var for a fresh value: with a gradient slot if there is a tape.
    Var output(core::Tensor value) const { return Var{std::move(value), tape ? tape->new_id() : -1}; }
    /// Debug builds: nobody may overwrite what the tape keeps.
    void check_overwrite([[maybe_unused]] const core::Tensor& tensor) const {
#ifndef NDEBUG
        TESSERA_INVARIANT(!tape || tape->may_overwrite(tensor));
#endif
    }
};

}  // namespace tessera::layers

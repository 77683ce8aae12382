#pragma once
#include <functional>
#include <vector>

#include "support/reference_case.h"
#include "train/engine.h"

namespace tessera::support {

/// An engine with a reference case's model, optimizer settings and initial weights.
std::unique_ptr<train::Engine> make_reference_engine(const ReferenceCase& reference,
                                                     core::DType dtype = core::DType::f32);

/// The global batch of one step of a reference case.
data::Batch reference_batch(const ReferenceCase& reference, std::int64_t step);

/// Calls visit(logical name, pointer to the slice's elements, count) for a flat f32 tensor of every unit.
void for_each_logical(train::Engine& engine, core::Tensor zero::FlatUnit::*tensor,
                      const std::function<void(const std::string&, float*, std::int64_t)>& visit);

/// A deterministic batch of pseudo-random tokens, some targets masked, with document borders.
struct RandomBatchArgs {
    std::int64_t step = 0;
    std::int64_t num_samples = 4;
    std::int64_t seq_length = 16;
    std::int64_t vocab_size = 61;
    double masked = 0.0;
};
data::Batch random_batch(const RandomBatchArgs& args);

}  // namespace tessera::support

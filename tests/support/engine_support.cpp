#include "support/engine_support.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "core/philox.h"

namespace tessera::support {

void for_each_logical(train::Engine& engine, core::Tensor zero::FlatUnit::*tensor,
                      const std::function<void(const std::string&, float*, std::int64_t)>& visit) {
    for (zero::FlatUnit& flat : engine.parameters().units()) {
        const auto& parameters = flat.unit->parameters();
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            for (const layers::LogicalSlice& slice : parameters[i]->slices()) {
                float* values = (flat.*tensor).data<float>() + flat.unit->offset(i) +
                                slice.local_row * parameters[i]->columns();
                visit(slice.name, values, slice.rows * slice.columns);
            }
        }
    }
}

std::unique_ptr<train::Engine> make_reference_engine(const ReferenceCase& reference, core::DType dtype) {
    train::EngineSettings settings{.model = reference.model,
                                   .optimizer = {.beta1 = reference.beta1,
                                                 .beta2 = reference.beta2,
                                                 .eps = reference.eps,
                                                 .weight_decay = reference.weight_decay,
                                                 .clip_grad_norm = reference.clip_grad_norm}};
    settings.model.dtype = dtype;
    auto engine = std::make_unique<train::Engine>(settings);
    for_each_logical(*engine, &zero::FlatUnit::main_param,
                     [&](const std::string& name, float* values, std::int64_t count) {
                         const std::vector<float>& source = reference.weights.at(name);
                         if (static_cast<std::int64_t>(source.size()) != count) {
                             throw std::runtime_error(name + ": the reference has another size");
                         }
                         std::copy(source.begin(), source.end(), values);
                     });
    engine->parameters().refresh_values();
    return engine;
}

data::Batch reference_batch(const ReferenceCase& reference, std::int64_t step) {
    const std::int64_t count = reference.batch_size * reference.model.seq_length;
    const auto begin = static_cast<std::ptrdiff_t>(step * count);
    data::Batch batch;
    batch.first_sample = step * reference.batch_size;
    batch.num_samples = reference.batch_size;
    batch.seq_length = reference.model.seq_length;
    batch.tokens.assign(reference.tokens.begin() + begin, reference.tokens.begin() + begin + count);
    batch.targets.assign(reference.targets.begin() + begin, reference.targets.begin() + begin + count);
    batch.document_borders.resize(static_cast<std::size_t>(batch.num_samples));
    for (std::int64_t i = 0; i < batch.num_samples; ++i) batch.sample_index.push_back(batch.first_sample + i);
    batch.loss_tokens = count - std::count(batch.targets.begin(), batch.targets.end(), -1);
    return batch;
}

data::Batch random_batch(const RandomBatchArgs& args) {
    data::Batch batch;
    batch.first_sample = args.step * args.num_samples;
    batch.num_samples = args.num_samples;
    batch.seq_length = args.seq_length;
    for (std::int64_t sample = 0; sample < args.num_samples; ++sample) {
        const std::int64_t index = batch.first_sample + sample;
        batch.sample_index.push_back(index);
        std::int32_t previous = static_cast<std::int32_t>(index % args.vocab_size);
        for (std::int64_t offset = 0; offset < args.seq_length; ++offset) {
            const auto words = core::philox4x32_10(
                    {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(offset), 0, 0}, {99, 7});
            batch.tokens.push_back(previous);
            const auto next = static_cast<std::int32_t>(words[0] % 3 != 0 ? (previous * 5 + 3) % args.vocab_size
                                                                          : words[1] % args.vocab_size);
            const bool masked = core::uniform_open_closed(words[2]) <= args.masked;
            batch.targets.push_back(masked ? -1 : next);
            batch.loss_tokens += masked ? 0 : 1;
            previous = next;
        }
        const auto border = static_cast<std::int32_t>(1 + index % (args.seq_length - 1));
        batch.document_borders.push_back({border});
    }
    return batch;
}

}  // namespace tessera::support

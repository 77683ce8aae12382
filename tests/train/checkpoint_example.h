#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "train/checkpoint_files.h"

namespace tessera::train {

/// A small run's checkpoint: a matrix in two slices, a vector, a counter and one optimizer tensor.
struct CheckpointExample {
    explicit CheckpointExample(std::int64_t step) {
        state.step = step;
        state.consumed_samples = 4 * step;
        state.consumed_tokens = 64 * step;
        state.updates = step - 3;
        state.skipped_steps = 3;
        state.loss_scale = 0x1p40;
        state.loss_scale_clean_steps = 7;
        state.loss_scale_hysteresis_left = 1;
        state.config_toml = "[run]\nname = \"é\"\n";
        state.program_version = "0.1.0";
        state.extras = {{"gemm", "heuristic \"7\""}};
        for (std::size_t i = 0; i < weight.size(); ++i)
            weight[i] = static_cast<float>(i) / 3.0F + static_cast<float>(step);
    }

    std::string write(const std::string& root, Retention retention = {}, const std::string& protected_path = {}) const {
        const auto* data = reinterpret_cast<const std::byte*>(weight.data());
        const core::Shape shape{7, 5};
        const std::vector<TensorSlice> slices = {
                {"model/weight", TensorBlock::rows(shape, 0, 4), core::DType::f32, data},
                {"model/weight", TensorBlock::rows(shape, 4, 7), core::DType::f32, data + 4 * 5 * 4},
                {"model/bias", TensorBlock::whole({6}), core::DType::bf16, data},
                {"model/counter", TensorBlock::whole({}), core::DType::i64,
                 reinterpret_cast<const std::byte*>(&counter)},
                {"optimizer/exp_avg/weight", TensorBlock::whole(shape), core::DType::f32, data}};
        return write_checkpoint({.root = root,
                                 .state = state,
                                 .slices = slices,
                                 .retention = retention,
                                 .protected_path = protected_path});
    }

    CheckpointState state;
    std::vector<float> weight = std::vector<float>(35);
    std::int64_t counter = 42;
};

}  // namespace tessera::train

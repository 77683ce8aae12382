#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "layers/model_config.h"

namespace tessera::support {

/// One of tests/data/*.h5: a tiny model run in float64 by an independent implementation (tests/data/make_reference.py).
/// Tensors are renamed and transposed from the Hugging Face layout to our logical tensors.
struct ReferenceCase {
    layers::ModelConfig model;
    double lr = 0, min_lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0, clip_grad_norm = 0;
    std::int64_t warmup_steps = 0;
    std::int64_t steps = 0;
    std::int64_t batch_size = 0;
    std::map<std::string, std::vector<float>> weights;
    std::vector<std::int32_t> tokens;   ///< [steps, B, S]
    std::vector<std::int32_t> targets;  ///< [steps, B, S], -1 = no loss
    double loss0 = 0;
    std::vector<double> logits0;  ///< [B, S, V]
    std::map<std::string, std::vector<double>> grads0;
    std::vector<double> loss, grad_norm, lr_at;  ///< [steps]
    std::map<std::string, std::vector<double>> final_weights;
};

/// Reads tests/data/NAME.h5; throws std::runtime_error if it cannot.
ReferenceCase load_reference_case(const std::string& name);

inline const std::vector<std::string> kReferenceCases = {"gpt2_tiny", "gpt2_masked", "gpt2_odd", "llama_tiny"};

}  // namespace tessera::support

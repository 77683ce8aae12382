#pragma once
#include "core/philox.h"
#include "kernels/token_map.h"

namespace tessera::layers {

/// Places of dropout inside a layer; the embedding's layer is kEmbeddingLayer.
enum class DropoutPlace : std::uint32_t {
    embedding = 0,
    attention_output = 1,
    mlp_output = 2,
    attention_probabilities = 3
};
inline constexpr std::int64_t kEmbeddingLayer = 0xfffff;

inline std::uint32_t dropout_site(std::int64_t layer, DropoutPlace place) {
    const auto purpose = place == DropoutPlace::attention_probabilities ? core::RandomPurpose::attention_dropout
                                                                        : core::RandomPurpose::dropout;
    return kernels::dropout_site(static_cast<std::uint32_t>(purpose), layer, static_cast<std::uint32_t>(place));
}

}  // namespace tessera::layers

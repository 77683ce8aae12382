#pragma once
#include <functional>
#include <vector>

#include "layers/gpt.h"
#include "train/engine.h"

namespace tessera::train {

/// How the next token is drawn. Filters apply in this order: temperature, top_k, top_p.
struct SamplingSettings {
    double temperature = 1.0;  ///< 0 = greedy (argmax, the lowest id on a tie)
    std::int64_t top_k = 0;    ///< keep the k most probable; 0 = all
    double top_p = 1.0;        ///< then the smallest set whose probability reaches p, in (0, 1]
    std::uint64_t seed = 1234;
    /// Throws UsageError naming the value that is out of range.
    void check() const;
};

/// Draws one id from logits [vocab_size] f32. The random number is a function of (seed, position).
std::int32_t sample_token(const float* logits, std::int64_t vocab_size, const SamplingSettings& settings,
                          std::int64_t position);

/// Whether keys and values of earlier tokens are kept or computed anew for each token.
enum class CacheUse : std::uint8_t { keep, recompute };

struct GenerationRequest {
    std::vector<std::int32_t> prompt;  ///< at least one token
    std::int64_t max_new_tokens = 0;
    std::vector<std::int32_t> stop_ids;  ///< generation ends with one of these (it is not returned)
    SamplingSettings sampling;
    CacheUse cache = CacheUse::keep;
};

/// Throws UsageError if the prompt is empty or longer than the context, or a sampling value is out of range; DataError
/// if an id of the prompt is outside the vocabulary.
void check_request(const Engine& engine, const GenerationRequest& request);

/// Generates from one prompt, calling `on_token` for each new id. Returns the new ids. Stops at a stop id, at
/// max_new_tokens, or when prompt and output fill the context of seq_length tokens.
/// Throws as check_request.
std::vector<std::int32_t> generate(Engine& engine, const GenerationRequest& request,
                                   const std::function<void(std::int32_t)>& on_token = {});

/// Logits [vocab_size] after the last of `tokens`, computed without a cache.
std::vector<float> next_token_logits(Engine& engine, const std::vector<std::int32_t>& tokens);

}  // namespace tessera::train

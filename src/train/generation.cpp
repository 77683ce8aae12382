#include "train/generation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/philox.h"

namespace tessera::train {
namespace {

using core::Tensor;

/// Forward of `tokens` after `past` cached ones; the logits of the last.
std::vector<float> last_logits(Engine& engine, const std::vector<std::int32_t>& tokens, layers::KvCache* cache) {
    const layers::ModelConfig& config = engine.model().config();
    kernels::Backend& backend = engine.backend();
    const MicroBatch sequence = make_sequence(backend, tokens, cache ? cache->length : 0, config.seq_length);
    const layers::ForwardContext ctx{
            .backend = backend, .stream = engine.stream(), .tokens = sequence.map, .cache = cache};
    const layers::Var hidden = engine.model().forward(ctx, sequence.tokens);
    const auto count = static_cast<std::int64_t>(tokens.size());
    if (cache) cache->length += count;
    const layers::Var logits = engine.model().logits(ctx, {.value = hidden.value.range(count - 1, count)});
    Tensor wide =
            Tensor::empty(backend.pool(), {logits.value.numel()}, core::DType::f32, core::MemoryCategory::workspace);
    kernels::cast(backend, engine.stream(), logits.value.reshape({logits.value.numel()}), wide);
    const float* values = wide.data<float>();
    return {values, values + config.vocab_size};
}

/// Ids that may be drawn, with unnormalised probabilities.
struct Candidates {
    std::vector<std::int32_t> ids;
    std::vector<double> weights;
};

/// The ids in falling order of probability until their weights reach `share` of all, at most `most` of them.
/// Sorts no more than it needs: a vocabulary sorted for every token would cost as much as the model.
std::vector<std::int32_t> most_probable(const float* logits, const std::vector<double>& weights, std::int64_t most,
                                        double share) {
    const auto more_probable = [logits](std::int32_t a, std::int32_t b) {
        return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
    };
    std::vector<std::int32_t> ids(weights.size());
    std::iota(ids.begin(), ids.end(), 0);
    const auto select = [&](std::size_t sorted, std::size_t count) {
        const auto from = ids.begin() + static_cast<std::ptrdiff_t>(sorted);
        const auto to = ids.begin() + static_cast<std::ptrdiff_t>(count);
        if (to != ids.end()) std::nth_element(from, to, ids.end(), more_probable);
        std::sort(from, to, more_probable);
    };
    const auto weight_of = [&](double sum, std::int32_t id) { return sum + weights[static_cast<std::size_t>(id)]; };
    const auto limit = static_cast<std::size_t>(most);
    std::size_t sorted = limit < ids.size() ? limit : std::min<std::size_t>(64, limit);
    select(0, sorted);
    const double total = limit < ids.size() ? std::accumulate(ids.begin(), ids.begin() + most, 0.0, weight_of)
                                            : std::accumulate(weights.begin(), weights.end(), 0.0);
    double reached = 0;
    std::size_t count = 0;
    while (count < limit && (count == 0 || reached < share * total)) {
        if (count == sorted) {
            sorted = std::min(limit, 4 * sorted);
            select(count, sorted);
        }
        reached = weight_of(reached, ids[count++]);
    }
    ids.resize(count);
    return ids;
}

Candidates filter(const float* logits, std::int64_t vocab_size, const SamplingSettings& settings) {
    const double largest = *std::max_element(logits, logits + vocab_size);
    std::vector<double> weights;
    for (std::int64_t id = 0; id < vocab_size; ++id) {
        weights.push_back(std::exp((static_cast<double>(logits[id]) - largest) / settings.temperature));
    }
    Candidates candidates;
    const std::int64_t kept = settings.top_k > 0 ? std::min(settings.top_k, vocab_size) : vocab_size;
    if (kept == vocab_size && settings.top_p == 1) {
        candidates.ids.resize(weights.size());
        std::iota(candidates.ids.begin(), candidates.ids.end(), 0);
        candidates.weights = std::move(weights);
        return candidates;
    }
    candidates.ids = most_probable(logits, weights, kept, settings.top_p);
    for (const std::int32_t id : candidates.ids) candidates.weights.push_back(weights[static_cast<std::size_t>(id)]);
    return candidates;
}

}  // namespace

void SamplingSettings::check() const {
    if (!(temperature >= 0) || !std::isfinite(temperature)) {
        core::raise<core::UsageError>("temperature {} is out of range: 0 (greedy) or a positive number", temperature);
    }
    if (top_k < 0)
        core::raise<core::UsageError>("top-k {} is out of range: 0 (all tokens) or a positive number", top_k);
    if (!(top_p > 0 && top_p <= 1)) core::raise<core::UsageError>("top-p {} is out of range (0, 1]", top_p);
}

std::int32_t sample_token(const float* logits, std::int64_t vocab_size, const SamplingSettings& settings,
                          std::int64_t position) {
    if (settings.temperature == 0) {
        return static_cast<std::int32_t>(std::max_element(logits, logits + vocab_size) - logits);
    }
    const Candidates candidates = filter(logits, vocab_size, settings);
    const double total = std::accumulate(candidates.weights.begin(), candidates.weights.end(), 0.0);
    const auto words = core::philox4x32_10({static_cast<std::uint32_t>(position), 0, 0,
                                            static_cast<std::uint32_t>(core::RandomPurpose::sampling) << 24},
                                           core::philox_key(settings.seed));
    const double threshold = (1.0 - core::uniform_open_closed(words[0])) * total;
    double reached = 0;
    for (std::size_t i = 0; i < candidates.ids.size(); ++i) {
        reached += candidates.weights[i];
        if (threshold < reached) return candidates.ids[i];
    }
    return candidates.ids.back();
}

void check_request(const Engine& engine, const GenerationRequest& request) {
    request.sampling.check();
    const std::int64_t context = engine.model().config().seq_length;
    const auto length = static_cast<std::int64_t>(request.prompt.size());
    if (length == 0) core::raise<core::UsageError>("the prompt is empty: give at least one token");
    if (length > context) {
        core::raise<core::UsageError>("the prompt has {} tokens, but the context holds {}; shorten the prompt", length,
                                      context);
    }
    const std::int64_t vocab_size = engine.model().config().vocab_size;
    for (std::size_t i = 0; i < request.prompt.size(); ++i) {
        const std::int32_t id = request.prompt[i];
        if (id >= 0 && id < vocab_size) continue;
        core::raise<core::DataError>("token {} of the prompt is {}, but the vocabulary holds {}", i, id, vocab_size);
    }
}

std::vector<std::int32_t> generate(Engine& engine, const GenerationRequest& request,
                                   const std::function<void(std::int32_t)>& on_token) {
    check_request(engine, request);
    const layers::ModelConfig& config = engine.model().config();
    layers::KvCache cache;
    if (request.cache == CacheUse::keep) cache = engine.model().make_cache(engine.backend(), config.seq_length);
    std::vector<std::int32_t> sequence = request.prompt;
    std::vector<std::int32_t> fresh = request.prompt;
    std::vector<std::int32_t> generated;
    while (static_cast<std::int64_t>(generated.size()) < request.max_new_tokens &&
           static_cast<std::int64_t>(sequence.size()) < config.seq_length) {
        const std::vector<float> logits = request.cache == CacheUse::keep ? last_logits(engine, fresh, &cache)
                                                                          : last_logits(engine, sequence, nullptr);
        const std::int32_t id = sample_token(logits.data(), config.vocab_size, request.sampling,
                                             static_cast<std::int64_t>(sequence.size()));
        if (std::find(request.stop_ids.begin(), request.stop_ids.end(), id) != request.stop_ids.end()) break;
        generated.push_back(id);
        sequence.push_back(id);
        fresh.assign(1, id);
        if (on_token) on_token(id);
    }
    return generated;
}

std::vector<float> next_token_logits(Engine& engine, const std::vector<std::int32_t>& tokens) {
    return last_logits(engine, tokens, nullptr);
}

}  // namespace tessera::train

#include "layers/model_config.h"

#include "core/error.h"

namespace tessera::layers {
namespace {

/// Up to here a double counts exactly.
constexpr double kMostParameters = 0x1p53;

}  // namespace

std::int64_t parameter_count(const ModelConfig& c) {
    const auto d = static_cast<double>(c.hidden_size);
    const auto q = static_cast<double>(c.num_attention_heads * c.head_dim());
    const auto kv = static_cast<double>(c.num_kv_heads * c.head_dim());
    const auto inner = static_cast<double>(c.ffn_hidden_size);
    const bool gpt2 = c.family == Family::gpt2;
    const double norm = gpt2 ? 2 * d : d;
    const double matrices = d * (q + 2 * kv) + q * d + (gpt2 ? 2 : 3) * d * inner;
    const double biases = gpt2 ? (q + 2 * kv) + d + inner + d : 0;
    const double embeddings = static_cast<double>(c.vocab_size) * d * (c.tie_embeddings ? 1 : 2) +
                              (gpt2 ? static_cast<double>(c.seq_length) * d : 0);
    const double count = static_cast<double>(c.num_layers) * (matrices + biases + 2 * norm) + norm + embeddings;
    if (count > kMostParameters) {
        core::raise<core::ConfigError>(
                "the model would have {:.1e} parameters, more than anything could hold; look at model.num_layers {}, "
                "hidden_size {}, ffn_hidden_size {}, vocab_size {}",
                count, c.num_layers, c.hidden_size, c.ffn_hidden_size, c.vocab_size);
    }
    return static_cast<std::int64_t>(count);
}

double training_flops(const ModelConfig& c, double tokens, double sum_squared_seqlens) {
    const auto h = static_cast<double>(c.hidden_size);
    const auto layers = static_cast<double>(c.num_layers);
    const auto q = static_cast<double>(c.num_attention_heads * c.head_dim());
    const auto kv = static_cast<double>(c.num_kv_heads * c.head_dim());
    const double mlp = (c.family == Family::gpt2 ? 2.0 : 3.0) * h * static_cast<double>(c.ffn_hidden_size);
    return 6.0 * tokens * layers * (h * (q + 2 * kv) + q * h + mlp) + 6.0 * layers * q * sum_squared_seqlens +
           6.0 * tokens * h * static_cast<double>(c.vocab_size);
}

}  // namespace tessera::layers

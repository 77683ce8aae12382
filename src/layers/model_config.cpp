#include "layers/model_config.h"

namespace tessera::layers {

std::int64_t parameter_count(const ModelConfig& c) {
    const std::int64_t d = c.hidden_size;
    const std::int64_t q = c.num_attention_heads * c.head_dim();
    const std::int64_t kv = c.num_kv_heads * c.head_dim();
    const bool gpt2 = c.family == Family::gpt2;
    const std::int64_t norm = gpt2 ? 2 * d : d;
    const std::int64_t matrices = d * (q + 2 * kv) + q * d + (gpt2 ? 2 : 3) * d * c.ffn_hidden_size;
    const std::int64_t biases = gpt2 ? (q + 2 * kv) + d + c.ffn_hidden_size + d : 0;
    const std::int64_t embeddings = c.vocab_size * d * (c.tie_embeddings ? 1 : 2) + (gpt2 ? c.seq_length * d : 0);
    return c.num_layers * (matrices + biases + 2 * norm) + norm + embeddings;
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

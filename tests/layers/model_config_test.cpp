#include "layers/model_config.h"

#include <gtest/gtest.h>

namespace tessera::layers {
namespace {

// The published formula 72·B·s·l·h²·(1 + s/(6h) + V/(12·l·h)) counts full attention; the causal half is s/(12h).
TEST(ModelFlops, EqualThePublishedFormulaWithTheCausalHalf) {
    for (const std::int64_t vocab : {64, 1024, 50257}) {
        for (const std::int64_t seq : {16, 128, 1024}) {
            const ModelConfig c{.num_layers = 7,
                                .hidden_size = 96,
                                .num_attention_heads = 6,
                                .num_kv_heads = 6,
                                .ffn_hidden_size = 4 * 96,
                                .seq_length = seq,
                                .vocab_size = vocab};
            const double batch = 3;
            const double s = static_cast<double>(seq);
            const double h = 96;
            const double l = 7;
            const double published =
                    72 * batch * s * l * h * h * (1 + s / (12 * h) + static_cast<double>(vocab) / (12 * l * h));
            EXPECT_NEAR(training_flops(c, batch * s, batch * s * s) / published, 1.0, 1e-12);
        }
    }
}

// LO-01: another inner width, grouped K/V and SwiGLU, product by product.
TEST(ModelFlops, FollowTheRealShapes_LO_01) {
    for (const std::int64_t inner : {2 * 64, 4 * 64, 8 * 64}) {
        const ModelConfig c{.family = Family::llama,
                            .num_layers = 2,
                            .hidden_size = 64,
                            .num_attention_heads = 8,
                            .num_kv_heads = 2,
                            .ffn_hidden_size = inner,
                            .seq_length = 32,
                            .vocab_size = 100};
        const double tokens = 5 * 32;
        const double products = 64.0 * 64 + 2.0 * 64 * 16 + 64.0 * 64 + 3.0 * 64 * static_cast<double>(inner);
        const double expected = 6 * tokens * (2 * products + 64.0 * 100) + 2 * 6 * 64.0 * 5 * 32 * 32;
        EXPECT_NEAR(training_flops(c, tokens, 5 * 32 * 32) / expected, 1.0, 1e-12);
    }
}

TEST(ModelConfig, TuringNlgHasSeventeenBillionParameters) {
    const ModelConfig c{.num_layers = 78,
                        .hidden_size = 4256,
                        .num_attention_heads = 28,
                        .num_kv_heads = 28,
                        .ffn_hidden_size = 4 * 4256,
                        .seq_length = 1024,
                        .vocab_size = 50304};
    EXPECT_NEAR(static_cast<double>(parameter_count(c)) / 1e9, 17.18, 0.005);
}

TEST(ModelConfig, VocabulariesArePaddedTo128) {
    ModelConfig c;
    c.vocab_size = 50257;
    EXPECT_EQ(c.padded_vocab_size(), 50304);
    c.vocab_size = 128;
    EXPECT_EQ(c.padded_vocab_size(), 128);
}

}  // namespace
}  // namespace tessera::layers

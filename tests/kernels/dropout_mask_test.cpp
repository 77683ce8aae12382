// Dropout masks, bit for bit, against the scalar definition in kernels/token_map.h.
#include "kernels/attention.h"
#include "kernels/embedding.h"
#include "kernels/norm.h"
#include "support/tensor_support.h"

namespace tessera::kernels {
namespace {

using core::DType;
using core::Tensor;
using support::Piece;

constexpr std::int64_t kSeqLength = 63;  // rounded up to 64 in attention's counters

const std::vector<Piece> kPieces = {{.sample = 5, .offset = 0, .length = 37},
                                    {.sample = 5, .offset = 37, .length = 23},
                                    {.sample = 12'345'678'901, .offset = 2, .length = 50}};

class DropoutMaskTest : public support::KernelTest {
protected:
    TokenMap map = support::token_map(device, kPieces, 0, kSeqLength);
    const std::int64_t count = map.sample.numel();
    std::int64_t sample(std::int64_t token) const { return map.sample.data<std::int64_t>()[token]; }
    std::int64_t offset(std::int64_t token) const { return map.offset.data<std::int32_t>()[token]; }
    Dropout dropout(float probability, std::int64_t feature_begin) const {
        return {.probability = probability,
                .seed = 0x0123456789ABCDEFULL,
                .site = dropout_site(1, 200, 3),
                .feature_begin = feature_begin};
    }
    /// Ones through dropout(x) + 0: the mask itself.
    Tensor row_mask(std::int64_t hidden, const Dropout& d) {
        const Tensor ones = device.filled({count, hidden}, DType::f32, 1.0);
        const Tensor zeros = device.zeros({count, hidden}, DType::f32);
        Tensor out = device.make({count, hidden}, DType::f32);
        bias_dropout_residual_norm_forward(
                device.backend(), device.stream(),
                {.x = ones, .residual = zeros, .dropout = d, .tokens = map, .residual_out = out});
        return out;
    }
};

TEST_F(DropoutMaskTest, RowsFollowTheDefinition) {
    for (const std::int64_t hidden : {1, 3, 19, 76, 131}) {
        for (const float probability : {0.1F, 0.3F, 0.9F}) {
            for (const std::int64_t begin : {0, 4, 152}) {
                const Dropout d = dropout(probability, begin);
                const Tensor mask = row_mask(hidden, d);
                for (std::int64_t i = 0; i < mask.numel(); ++i) {
                    ASSERT_EQ(support::element(mask, i),
                              support::dropout_factor(d, sample(i / hidden), offset(i / hidden), begin + i % hidden))
                            << "hidden " << hidden << " p " << probability << " from " << begin << " at " << i;
                }
            }
        }
    }
}

TEST_F(DropoutMaskTest, ASliceIsPartOfTheWhole) {
    const Tensor whole = row_mask(96, dropout(0.3F, 0));
    const Tensor part = row_mask(37, dropout(0.3F, 56));
    std::int64_t dropped = 0;
    for (std::int64_t t = 0; t < count; ++t) {
        for (std::int64_t i = 0; i < 37; ++i) {
            ASSERT_EQ(support::element(part, t * 37 + i), support::element(whole, t * 96 + 56 + i)) << t << ", " << i;
            dropped += support::element(part, t * 37 + i) == 0 ? 1 : 0;
        }
    }
    // 4070 draws at 0.3: five standard deviations are 146.
    EXPECT_NEAR(static_cast<double>(dropped), 0.3 * 4070, 146);
}

TEST_F(DropoutMaskTest, BackwardAndEmbeddingDrawTheSameMask) {
    constexpr std::int64_t kHidden = 131;
    const Dropout d = dropout(0.3F, 8);
    const Tensor mask = row_mask(kHidden, d);
    const Tensor ones = device.filled({count, kHidden}, DType::f32, 1.0);
    Tensor dresidual = device.make({count, kHidden}, DType::f32);
    Tensor dx = device.make({count, kHidden}, DType::f32);
    bias_dropout_residual_norm_backward(
            device.backend(), device.stream(),
            {.dresidual_out = &ones, .dropout = d, .tokens = map, .dresidual = dresidual, .dx = dx});
    support::expect_same_bits("backward", dx, mask);

    std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i);
    const Tensor tokens = device.of(ids);
    Tensor y = device.make({count, kHidden}, DType::f32);
    embedding_forward(device.backend(), device.stream(),
                      {.tokens = tokens, .word = ones, .map = map, .dropout = d, .y = y});
    support::expect_same_bits("embedding", y, mask);
    Tensor dword = device.zeros({count, kHidden}, DType::f32);
    embedding_backward(device.backend(), device.stream(),
                       {.tokens = tokens, .map = map, .dropout = d, .dy = ones, .dword = dword});
    support::expect_same_bits("embedding backward", dword, mask);
}

/// Queries of zero make all probabilities of a row equal; values (and output gradients) that are rows of the identity
/// show each probability by itself.
class AttentionMaskTest : public DropoutMaskTest {
protected:
    static constexpr std::int64_t kDim = 64;
    HeadLayout heads{.num_heads = 4, .num_kv_heads = 2, .head_dim = kDim};

    std::int64_t block_begin(std::int64_t token) const { return token < 37 ? 0 : token < 60 ? 37 : 60; }
    /// Σ over the query heads of a group would mix masks; `factor` is that of one head.
    double factor(const Dropout& d, std::int64_t head, std::int64_t query, std::int64_t key) const {
        return support::dropout_factor(d, sample(query), offset(query), (d.feature_begin + head) * 64 + offset(key));
    }
    Tensor identity_values() {
        Tensor qkv = device.zeros({count, heads.packed_width()}, DType::f32);
        for (std::int64_t t = 0; t < count; ++t) {
            for (std::int64_t g = 0; g < heads.num_kv_heads; ++g) {
                const std::int64_t column = (heads.num_heads + heads.num_kv_heads + g) * kDim;
                support::set_element(qkv, t * heads.packed_width() + column + t - block_begin(t), 1.0);
            }
        }
        return qkv;
    }
};

TEST_F(AttentionMaskTest, ForwardFollowsTheDefinition) {
    const Tensor qkv = identity_values();
    for (const std::int64_t begin : {0, 8}) {
        const Dropout d = dropout(0.3F, begin);
        Tensor out = device.make({count, 4 * kDim}, DType::f32);
        attention_forward(device.backend(), device.stream(),
                          {.heads = heads, .scale = 1, .tokens = map, .dropout = d, .qkv = qkv, .out = out});
        for (std::int64_t t = 0; t < count; ++t) {
            const std::int64_t visible = t - block_begin(t) + 1;
            for (std::int64_t head = 0; head < heads.num_heads; ++head) {
                for (std::int64_t key = 0; key < kDim; ++key) {
                    const double got = support::element(out, (t * heads.num_heads + head) * kDim + key);
                    const double want =
                            key < visible ? factor(d, head, t, block_begin(t) + key) / static_cast<double>(visible) : 0;
                    ASSERT_EQ(got == 0, want == 0) << "token " << t << " head " << head << " key " << key;
                    ASSERT_NEAR(got, want, 1e-6);
                }
            }
        }
    }
}

TEST_F(AttentionMaskTest, BackwardFollowsTheDefinition) {
    const Tensor qkv = identity_values();
    const Dropout d = dropout(0.3F, 4);
    Tensor out = device.make({count, 4 * kDim}, DType::f32);
    Tensor lse = device.make({4, count}, DType::f32);
    attention_forward(device.backend(), device.stream(),
                      {.heads = heads, .scale = 1, .tokens = map, .dropout = d, .qkv = qkv, .out = out, .lse = &lse});
    for (std::int64_t head = 0; head < heads.num_heads; ++head) {
        // Only this head has a gradient: dV[key, query] = mask / visible.
        Tensor dout = device.zeros({count, 4 * kDim}, DType::f32);
        for (std::int64_t t = 0; t < count; ++t) {
            support::set_element(dout, (t * heads.num_heads + head) * kDim + t - block_begin(t), 1.0);
        }
        Tensor dqkv = device.make(qkv.shape(), DType::f32);
        attention_backward(device.backend(), device.stream(),
                           {.heads = heads,
                            .scale = 1,
                            .tokens = map,
                            .dropout = d,
                            .qkv = qkv,
                            .out = out,
                            .lse = lse,
                            .dout = dout,
                            .dqkv = dqkv});
        const std::int64_t column = (heads.num_heads + heads.num_kv_heads + head / 2) * kDim;
        for (std::int64_t query = 0; query < count; ++query) {
            const std::int64_t begin = block_begin(query);
            for (std::int64_t key = begin; key <= query; ++key) {
                const double got = support::element(dqkv, key * heads.packed_width() + column + query - begin);
                const double want = factor(d, head, query, key) / static_cast<double>(query - begin + 1);
                ASSERT_EQ(got == 0, want == 0) << "head " << head << " query " << query << " key " << key;
                ASSERT_NEAR(got, want, 1e-6);
            }
        }
    }
}

}  // namespace
}  // namespace tessera::kernels

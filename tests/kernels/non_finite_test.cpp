#include "support/tensor_support.h"

namespace tessera::kernels {
namespace {

using core::DType;
using core::Tensor;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// A run that has gone wrong must be seen: what depends on a NaN is NaN, wherever in a vector or a tail it stands.
class NonFiniteTest : public support::KernelTest {
protected:
    double summed_loss(const Tensor& logits, float* gradient_sum) {
        const std::int64_t tokens = logits.size(0);
        const std::int64_t columns = logits.size(1);
        const Tensor targets = device.of(std::vector<std::int32_t>(static_cast<std::size_t>(tokens), 1));
        Tensor maximum = device.make({tokens}, DType::f32);
        Tensor sum_exp = device.make({tokens}, DType::f32);
        Tensor target_logit = device.make({tokens}, DType::f32);
        Tensor losses = device.make({tokens}, DType::f32);
        Tensor in_place = device.copy_of(logits);
        cross_entropy_statistics(device.backend(), device.stream(),
                                 {.logits = in_place,
                                  .targets = targets,
                                  .num_valid = columns,
                                  .vocab_size = columns,
                                  .maximum = maximum,
                                  .sum_exp = sum_exp,
                                  .target_logit = target_logit});
        cross_entropy_finish(device.backend(), device.stream(),
                             {.logits = in_place,
                              .targets = targets,
                              .num_valid = columns,
                              .maximum = maximum,
                              .sum_exp = sum_exp,
                              .target_logit = target_logit,
                              .losses = losses});
        *gradient_sum = 0;
        for (const double g : support::values(in_place)) *gradient_sum += static_cast<float>(g);
        double sum = 0;
        for (const double loss : support::values(losses)) sum += loss;
        return sum;
    }
};

TEST_F(NonFiniteTest, OneNanLogitMakesLossAndGradientNan) {
    for (const DType dtype : support::kFloatingDTypes) {
        for (const std::int64_t at : {0, 1, 5, 17, 18}) {
            Tensor logits = device.random({1, 19}, dtype);
            float gradient = 0;
            EXPECT_FALSE(std::isnan(summed_loss(logits, &gradient)));
            EXPECT_FALSE(std::isnan(gradient));
            support::set_element(logits, at, kNan);
            EXPECT_TRUE(std::isnan(summed_loss(logits, &gradient))) << core::name_of(dtype) << " logit " << at;
            EXPECT_TRUE(std::isnan(gradient)) << core::name_of(dtype) << " logit " << at;
        }
    }
}

TEST_F(NonFiniteTest, AnInfiniteLogitIsSeen) {
    Tensor logits = device.random({1, 19}, DType::f32);
    support::set_element(logits, 4, std::numeric_limits<double>::infinity());
    float gradient = 0;
    EXPECT_FALSE(std::isfinite(summed_loss(logits, &gradient)));
}

TEST_F(NonFiniteTest, ANanInQueryKeyOrValueReachesAttentionsOutput) {
    const HeadLayout heads{.num_heads = 1, .num_kv_heads = 1, .head_dim = 19};
    const TokenMap map = support::token_map(device, {{.length = 13}}, 0, 16);
    const Tensor clean = device.random({13, 57}, DType::f32);
    for (const std::int64_t part : {0, 1, 2}) {
        for (const std::int64_t column : {0, 18}) {
            const Tensor qkv = device.copy_of(clean);
            support::set_element(qkv, 5 * 57 + part * 19 + column, kNan);
            Tensor out = device.make({13, 19}, DType::f32);
            Tensor lse = device.make({1, 13}, DType::f32);
            attention_forward(device.backend(), device.stream(),
                              {.heads = heads, .tokens = map, .dropout = {}, .qkv = qkv, .out = out, .lse = &lse});
            // Of the value only its column is NaN.
            EXPECT_TRUE(std::isnan(support::element(out, 5 * 19 + column))) << "part " << part << " column " << column;
            if (part != 2) {
                EXPECT_FALSE(std::isnan(support::element(out, 4 * 19 + column))) << "an earlier token";
                EXPECT_TRUE(std::isnan(support::element(lse, 5))) << "part " << part;
            }
            if (part != 0) {
                EXPECT_TRUE(std::isnan(support::element(out, 12 * 19 + column))) << "a later token, part " << part;
            }
        }
    }
}

TEST_F(NonFiniteTest, ANanReachesAttentionsGradients) {
    const HeadLayout heads{.num_heads = 1, .num_kv_heads = 1, .head_dim = 19};
    const TokenMap map = support::token_map(device, {{.length = 13}}, 0, 16);
    const Tensor qkv = device.random({13, 57}, DType::f32);
    support::set_element(qkv, 5 * 57 + 19, kNan);
    Tensor out = device.make({13, 19}, DType::f32);
    Tensor lse = device.make({1, 13}, DType::f32);
    attention_forward(device.backend(), device.stream(),
                      {.heads = heads, .tokens = map, .dropout = {}, .qkv = qkv, .out = out, .lse = &lse});
    const Tensor dout = device.random({13, 19}, DType::f32);
    Tensor dqkv = device.make({13, 57}, DType::f32);
    attention_backward(device.backend(), device.stream(),
                       {.heads = heads,
                        .tokens = map,
                        .dropout = {},
                        .qkv = qkv,
                        .out = out,
                        .lse = lse,
                        .dout = dout,
                        .dqkv = dqkv});
    EXPECT_TRUE(std::isnan(support::element(dqkv, 5 * 57)));
    EXPECT_TRUE(std::isnan(support::element(dqkv, 5 * 57 + 19)));
}

TEST_F(NonFiniteTest, CachedAttentionShowsANanOfTheCache) {
    const HeadLayout heads{.num_heads = 1, .num_kv_heads = 1, .head_dim = 19};
    Tensor k_cache = device.random({8, 19}, DType::f32);
    Tensor v_cache = device.random({8, 19}, DType::f32);
    support::set_element(k_cache, 2 * 19 + 3, kNan);
    const Tensor qkv = device.random({1, 57}, DType::f32);
    Tensor out = device.make({1, 19}, DType::f32);
    cached_attention(device.backend(), device.stream(),
                     {.heads = heads, .past = 5, .qkv = qkv, .k_cache = k_cache, .v_cache = v_cache, .out = out});
    EXPECT_TRUE(std::isnan(support::element(out, 0)));
}

/// Activations at the ends of the dtype: no NaN out of finite operands, the limits of gelu and silu are 0 and u.
TEST_F(NonFiniteTest, ActivationsOfHugeValuesAreTheirLimits) {
    const std::vector<float> huge = {-3e38F, -1e19F, -1e13F, -1e4F, -300.0F, 300.0F, 1e4F, 1e13F, 1e19F, 3e38F, 0.0F};
    const auto width = static_cast<std::int64_t>(huge.size());
    const Tensor one = device.filled({1, 1}, DType::f32, 1.0);
    const Tensor zero_weight = device.zeros({width, 1}, DType::f32);
    const Tensor bias = device.of(huge);
    Tensor y = device.make({1, width}, DType::f32);
    linear_forward(device.backend(), device.stream(),
                   {.x = one, .weight = zero_weight, .bias = &bias, .epilogue = Epilogue::bias_gelu, .y = y});
    const Tensor weight = device.filled({1, width}, DType::f32, 1.0);
    const Tensor pre = bias.reshape({1, width});
    Tensor dx = device.make({1, width}, DType::f32);
    linear_dgrad(device.backend(), device.stream(),
                 {.dy = one, .weight = weight, .epilogue = Epilogue::bias_gelu, .pre_activation = &pre, .dx = dx});
    for (std::int64_t i = 0; i + 1 < width; ++i) {
        const double u = huge[static_cast<std::size_t>(i)];
        EXPECT_NEAR(support::element(y, i), std::max(u, 0.0), 1e-6) << "gelu of " << u;
        EXPECT_NEAR(support::element(dx, i), u > 0 ? 1.0 : 0.0, 1e-6) << "gelu' of " << u;
    }
    EXPECT_EQ(support::element(dx, width - 1), 0.5);
}

TEST_F(NonFiniteTest, GatesOfHugeValuesAreTheirLimits) {
    const std::vector<float> gates = {-3e38F, -1e13F, -300.0F, 300.0F, 1e13F, 3e38F};
    const auto width = static_cast<std::int64_t>(gates.size());
    std::vector<float> packed = gates;
    packed.resize(gates.size() * 2, 1.0F);
    const Tensor one = device.filled({1, 1}, DType::f32, 1.0);
    const Tensor weight = device.of(packed).reshape({2 * width, 1});
    Tensor y = device.make({1, width}, DType::f32);
    Tensor pre = device.make({1, 2 * width}, DType::f32);
    linear_forward(device.backend(), device.stream(),
                   {.x = one, .weight = weight, .epilogue = Epilogue::swiglu, .y = y, .pre_activation = &pre});
    const Tensor ones = device.filled({1, width}, DType::f32, 1.0);
    Tensor dx = device.make({1, 2 * width}, DType::f32);
    linear_dgrad(device.backend(), device.stream(),
                 {.dy = one, .weight = ones, .epilogue = Epilogue::swiglu, .pre_activation = &pre, .dx = dx});
    for (std::int64_t i = 0; i < width; ++i) {
        const double u = gates[static_cast<std::size_t>(i)];
        EXPECT_NEAR(support::element(y, i), std::max(u, 0.0), 1e-6) << "silu of " << u;
        EXPECT_NEAR(support::element(dx, i), u > 0 ? 1.0 : 0.0, 1e-6) << "silu' of " << u;
    }
}

TEST_F(NonFiniteTest, ANanPassesThroughActivationsAndNorms) {
    for (const std::int64_t at : {0, 9, 18}) {
        const Tensor one = device.filled({1, 1}, DType::f32, 1.0);
        const Tensor weight = device.random({38, 1}, DType::f32);
        support::set_element(weight, at, kNan);
        Tensor gated = device.make({1, 19}, DType::f32);
        linear_forward(device.backend(), device.stream(),
                       {.x = one, .weight = weight, .epilogue = Epilogue::swiglu, .y = gated});
        EXPECT_TRUE(std::isnan(support::element(gated, at)));
        const Tensor bias = device.zeros({38}, DType::f32);
        Tensor y = device.make({1, 38}, DType::f32);
        linear_forward(device.backend(), device.stream(),
                       {.x = one, .weight = weight, .bias = &bias, .epilogue = Epilogue::bias_gelu, .y = y});
        EXPECT_TRUE(std::isnan(support::element(y, at)));
        const Tensor gamma = device.filled({38}, DType::f32, 1.0);
        Tensor normed = device.make({1, 38}, DType::f32);
        norm_forward(device.backend(), device.stream(), {.x = y, .gamma = gamma, .y = normed});
        EXPECT_TRUE(std::isnan(support::element(normed, 37)));
    }
}

}  // namespace
}  // namespace tessera::kernels

// Rotary embedding and attention over a cache.
#include "attention_reference.h"
#include "kernels/attention.h"

namespace tessera::kernels {
namespace {

using core::DType;
using core::Tensor;
using support::expect_close;
using support::values;
using Values = std::vector<double>;

const std::vector<HeadLayout> kLayouts = {{.num_heads = 1, .num_kv_heads = 1, .head_dim = 2},
                                          {.num_heads = 4, .num_kv_heads = 2, .head_dim = 38},
                                          {.num_heads = 4, .num_kv_heads = 1, .head_dim = 8},
                                          {.num_heads = 2, .num_kv_heads = 2, .head_dim = 64}};

class RotaryTest : public support::KernelTest {};

Values rotated(const HeadLayout& heads, double theta, const Values& qkv, const TokenMap& map, double sign) {
    Values out = qkv;
    const std::int64_t half = heads.head_dim / 2;
    for (std::int64_t t = 0; t < map.position.numel(); ++t) {
        for (std::int64_t head = 0; head < heads.num_heads + heads.num_kv_heads; ++head) {
            for (std::int64_t i = 0; i < half; ++i) {
                const double angle = sign * map.position.data<std::int32_t>()[t] *
                                     std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(2 * half));
                const auto a = static_cast<std::size_t>(t * heads.packed_width() + head * heads.head_dim + i);
                const auto b = a + static_cast<std::size_t>(half);
                out[a] = qkv[a] * std::cos(angle) - qkv[b] * std::sin(angle);
                out[b] = qkv[b] * std::cos(angle) + qkv[a] * std::sin(angle);
            }
        }
    }
    return out;
}

TEST_F(RotaryTest, TurnsQueriesAndKeysAndLeavesValues) {
    // Positions restart, the second piece is longer, and the next layout asks for another table.
    const TokenMap map = support::token_map(device, {{.length = 5}, {.length = 131}}, 2, 150);
    for (const HeadLayout& heads : kLayouts) {
        for (const double theta : {10000.0, 500000.0}) {
            for (const DType dtype : support::kFloatingDTypes) {
                const Tensor before = device.random({138, heads.packed_width()}, dtype);
                Tensor qkv = device.copy_of(before);
                rotary(device.backend(), device.stream(), {.heads = heads, .theta = theta, .tokens = map, .qkv = qkv});
                const std::string what =
                        fmt::format("head_dim {} theta {} {}", heads.head_dim, theta, core::name_of(dtype));
                expect_close("forward " + what, qkv, rotated(heads, theta, values(before), map, 1.0), {.terms = 4});
                Tensor back = device.copy_of(before);
                rotary(device.backend(), device.stream(),
                       {.heads = heads,
                        .theta = theta,
                        .direction = RotaryDirection::backward,
                        .tokens = map,
                        .qkv = back});
                expect_close("backward " + what, back, rotated(heads, theta, values(before), map, -1.0), {.terms = 4});
            }
        }
    }
}

TEST_F(RotaryTest, BackwardUndoesForward) {
    const HeadLayout heads{.num_heads = 4, .num_kv_heads = 2, .head_dim = 38};
    const TokenMap map = support::token_map(device, {{.length = 37}}, 0, 37);
    Tensor qkv = device.random({37, heads.packed_width()}, DType::f32);
    const Values before = values(qkv);
    rotary(device.backend(), device.stream(), {.heads = heads, .tokens = map, .qkv = qkv});
    rotary(device.backend(), device.stream(),
           {.heads = heads, .direction = RotaryDirection::backward, .tokens = map, .qkv = qkv});
    expect_close("qkv", qkv, before, {.terms = 8});
}

class CachedAttentionTest : public support::KernelTest {};

/// Attention over a prompt of several tokens, then single steps and one step of two, against all of it at once.
TEST_F(CachedAttentionTest, PromptAndStepsEqualFullAttention) {
    for (HeadLayout heads : kLayouts) {
        if (heads.head_dim == 38) heads.head_dim = 19;
        for (const DType dtype : support::kFloatingDTypes) {
            constexpr std::int64_t kTokens = 53;
            const TokenMap map = support::token_map(device, {{.length = kTokens}}, 0, kTokens);
            const Tensor qkv = device.random({kTokens, heads.packed_width()}, dtype, 2.0);
            const std::int64_t width = heads.num_heads * heads.head_dim;
            const float scale = 1.0F / std::sqrt(static_cast<float>(heads.head_dim));
            Tensor full = device.make({kTokens, width}, dtype);
            attention_forward(device.backend(), device.stream(),
                              {.heads = heads, .scale = scale, .tokens = map, .dropout = {}, .qkv = qkv, .out = full});
            Tensor k_cache = device.make({kTokens + 2, heads.num_kv_heads * heads.head_dim}, dtype);
            Tensor v_cache = device.make({kTokens + 2, heads.num_kv_heads * heads.head_dim}, dtype);
            Tensor stepped = device.make({kTokens, width}, dtype);
            std::int64_t past = 0;
            for (const std::int64_t count : {41, 1, 1, 2, 1, 7}) {
                const Tensor part = qkv.range(past, past + count);
                Tensor out = stepped.range(past, past + count);
                cached_attention(device.backend(), device.stream(),
                                 {.heads = heads,
                                  .scale = scale,
                                  .past = past,
                                  .qkv = part,
                                  .k_cache = k_cache,
                                  .v_cache = v_cache,
                                  .out = out});
                past += count;
            }
            ASSERT_EQ(past, kTokens);
            const Values expected = values(full);
            for (std::int64_t i = 0; i < stepped.numel(); ++i) {
                const double want = expected[static_cast<std::size_t>(i)];
                ASSERT_NEAR(support::element(stepped, i), want, 1e-5 + 2 * support::roundoff(dtype) * std::abs(want))
                        << fmt::format("head_dim {} {} at {}", heads.head_dim, core::name_of(dtype), i);
            }
        }
    }
}

TEST_F(CachedAttentionTest, AFullCacheIsAnError) {
    const HeadLayout heads{.num_heads = 1, .num_kv_heads = 1, .head_dim = 2};
    const Tensor qkv = device.random({2, 6}, DType::f32);
    Tensor k_cache = device.zeros({4, 2}, DType::f32);
    Tensor v_cache = device.zeros({4, 2}, DType::f32);
    Tensor out = device.make({2, 2}, DType::f32);
    try {
        cached_attention(device.backend(), device.stream(),
                         {.heads = heads, .past = 3, .qkv = qkv, .k_cache = k_cache, .v_cache = v_cache, .out = out});
        ADD_FAILURE() << "five tokens went into a cache of four";
    } catch (const core::ShapeError& error) {
        EXPECT_STREQ(error.what(), "cached_attention: 3 cached and 2 new tokens do not fit a cache of 4");
    }
}

}  // namespace
}  // namespace tessera::kernels

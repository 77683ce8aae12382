#include "kernels/attention.h"

#include <gtest/gtest.h>

#include "support/tensor_support.h"

namespace tessera::kernels {
namespace {

using core::DType;
using support::Doubles;
using support::TestDevice;

struct Case {
    HeadLayout heads;
    std::vector<std::int32_t> lengths;
    std::int64_t padding;
    std::int32_t offset_begin;  ///< a document that begins inside its sample
    float dropout;
    DType dtype;
};

void PrintTo(const Case& c, std::ostream* out) {
    *out << c.heads.num_heads << "/" << c.heads.num_kv_heads << " heads of " << c.heads.head_dim << ", "
         << c.lengths.size() << " blocks from " << c.lengths.front() << ", padding " << c.padding << ", dropout "
         << c.dropout << " " << core::name_of(c.dtype);
}

/// Causal attention by plain loops in f64; also the log-sum-exp.
struct Reference {
    const Case& c;
    const Dropout& dropout;
    double scale;

    std::size_t width() const { return static_cast<std::size_t>(c.heads.packed_width()); }
    std::int64_t tokens() const {
        std::int64_t total = c.padding;
        for (const std::int32_t length : c.lengths) total += length;
        return total;
    }

    Doubles forward(const Doubles& qkv, Doubles* lse = nullptr) const {
        const std::int64_t dim = c.heads.head_dim;
        Doubles out(static_cast<std::size_t>(tokens() * c.heads.num_heads * dim), 0.0);
        if (lse) lse->assign(static_cast<std::size_t>(tokens() * c.heads.num_heads), 0.0);
        for (std::int64_t head = 0; head < c.heads.num_heads; ++head) {
            std::int64_t begin = 0;
            std::int64_t sample = 100;
            for (const std::int32_t length : c.lengths) {
                for (std::int64_t query = 0; query < length; ++query) {
                    one_query(qkv, head, begin, query, sample, out, lse);
                }
                begin += length;
                ++sample;
            }
        }
        return out;
    }

    void one_query(const Doubles& qkv, std::int64_t head, std::int64_t begin, std::int64_t query, std::int64_t sample,
                   Doubles& out, Doubles* lse) const {
        const std::int64_t dim = c.heads.head_dim;
        const std::int64_t group = head / (c.heads.num_heads / c.heads.num_kv_heads);
        auto at = [&](std::int64_t token, std::int64_t column) {
            return qkv[static_cast<std::size_t>(begin + token) * width() + static_cast<std::size_t>(column)];
        };
        Doubles weights;
        double largest = -1e300;
        for (std::int64_t key = 0; key <= query; ++key) {
            double score = 0;
            for (std::int64_t i = 0; i < dim; ++i) {
                score += at(query, head * dim + i) * at(key, (c.heads.num_heads + group) * dim + i);
            }
            weights.push_back(score * scale);
            largest = std::max(largest, weights.back());
        }
        double total = 0;
        for (double& weight : weights) total += weight = std::exp(weight - largest);
        std::int64_t seq_length = c.offset_begin;
        std::int64_t longest = 0;
        for (const std::int32_t length : c.lengths) longest = std::max<std::int64_t>(longest, length);
        seq_length += longest;
        const std::int64_t pitch = (seq_length + 3) / 4 * 4;
        for (std::int64_t key = 0; key <= query; ++key) {
            const double keep =
                    support::keep_scale(dropout, (dropout.feature_begin + head) * pitch + c.offset_begin + key, sample,
                                        static_cast<std::int32_t>(c.offset_begin + query));
            const double p = weights[static_cast<std::size_t>(key)] / total * keep;
            for (std::int64_t i = 0; i < dim; ++i) {
                out[static_cast<std::size_t>(((begin + query) * c.heads.num_heads + head) * dim + i)] +=
                        p * at(key, (c.heads.num_heads + c.heads.num_kv_heads + group) * dim + i);
            }
        }
        if (lse) (*lse)[static_cast<std::size_t>(head * tokens() + begin + query)] = largest + std::log(total);
    }
};

std::vector<Case> cases() {
    std::vector<Case> all;
    for (const float dropout : {0.0F, 0.25F}) {
        all.push_back({{1, 1, 1}, {1}, 0, 0, dropout, DType::f32});
        all.push_back({{4, 2, 19}, {5, 1, 9}, 1, 0, dropout, DType::f32});
        all.push_back({{4, 1, 8}, {13}, 3, 5, dropout, DType::f32});
        all.push_back({{2, 2, 4}, {7, 3}, 6, 2, dropout, DType::f32});
    }
    for (const DType dtype : {DType::bf16, DType::f16}) all.push_back({{4, 2, 16}, {11, 5}, 0, 0, 0.25F, dtype});
    return all;
}

class Attention : public testing::TestWithParam<Case> {
protected:
    Attention()
        : c_(GetParam()),
          dropout_{.probability = c_.dropout, .seed = 5, .site = dropout_site(2, 9, 3), .feature_begin = 3},
          reference_{c_, dropout_, 0.7},
          tokens_(reference_.tokens()),
          map_(device_.map(c_.lengths, c_.padding, c_.offset_begin)),
          qkv_(support::pattern(tokens_ * c_.heads.packed_width(), 1)) {}
    double tolerance() const { return 8 * support::storage_epsilon(c_.dtype) + 4e-6; }

    Case c_;
    Dropout dropout_;
    Reference reference_;
    std::int64_t tokens_;
    TestDevice device_;
    TokenMap map_;
    Doubles qkv_;
};

TEST_P(Attention, ForwardAndBackwardMatchPlainLoops) {
    core::Tensor qkv = device_.tensor({tokens_, c_.heads.packed_width()}, qkv_, c_.dtype);
    core::Tensor out = device_.tensor({tokens_, c_.heads.num_heads * c_.heads.head_dim}, c_.dtype);
    core::Tensor lse = device_.tensor({c_.heads.num_heads, tokens_});
    attention_forward(*device_.backend, device_.stream,
                      {.heads = c_.heads,
                       .scale = 0.7F,
                       .tokens = map_,
                       .dropout = dropout_,
                       .qkv = qkv,
                       .out = out,
                       .lse = &lse});
    Doubles expected_lse;
    support::expect_close(support::doubles(out), reference_.forward(qkv_, &expected_lse), tolerance(), "out");
    support::expect_close(support::doubles(lse), expected_lse, 4e-6, "lse");

    const Doubles dout = support::pattern(out.numel(), 2);
    core::Tensor doutt = device_.tensor(out.shape(), dout, c_.dtype);
    core::Tensor dqkv = device_.tensor(qkv.shape(), c_.dtype);
    attention_backward(*device_.backend, device_.stream,
                       {.heads = c_.heads,
                        .scale = 0.7F,
                        .tokens = map_,
                        .dropout = dropout_,
                        .qkv = qkv,
                        .out = out,
                        .lse = lse,
                        .dout = doutt,
                        .dqkv = dqkv});
    const Doubles expected = support::central_differences(
            [&](const Doubles& values) { return support::dot(dout, reference_.forward(values)); }, qkv_);
    support::expect_close(support::doubles(dqkv), expected, 4 * tolerance(), "dqkv");
    device_.check_guards();
}

INSTANTIATE_TEST_SUITE_P(Cases, Attention, testing::ValuesIn(cases()));

/// Several query and key tiles, ragged: against the plain loops, and the gradient along a random direction.
TEST(AttentionTiles, LongSequencesMatchPlainLoops) {
    for (const std::int64_t dim : {64, 19, 152}) {
        const Case c{{2, 1, dim}, {150, 67}, 7, 1, 0.1F, DType::f32};
        const Dropout dropout{.probability = 0.1F, .seed = 8, .site = 4, .feature_begin = 0};
        const Reference reference{c, dropout, 0.2};
        TestDevice device;
        const TokenMap map = device.map(c.lengths, c.padding, c.offset_begin);
        const std::int64_t tokens = reference.tokens();
        const Doubles values = support::pattern(tokens * c.heads.packed_width(), 3);
        core::Tensor qkv = device.tensor({tokens, c.heads.packed_width()}, values);
        core::Tensor out = device.tensor({tokens, 2 * dim});
        core::Tensor lse = device.tensor({2, tokens});
        attention_forward(*device.backend, device.stream,
                          {.heads = c.heads,
                           .scale = 0.2F,
                           .tokens = map,
                           .dropout = dropout,
                           .qkv = qkv,
                           .out = out,
                           .lse = &lse});
        support::expect_close(support::doubles(out), reference.forward(values), 2e-5, "out");
        const Doubles dout = support::pattern(out.numel(), 4);
        core::Tensor doutt = device.tensor(out.shape(), dout);
        core::Tensor dqkv = device.tensor(qkv.shape());
        attention_backward(*device.backend, device.stream,
                           {.heads = c.heads,
                            .scale = 0.2F,
                            .tokens = map,
                            .dropout = dropout,
                            .qkv = qkv,
                            .out = out,
                            .lse = lse,
                            .dout = doutt,
                            .dqkv = dqkv});
        for (std::uint32_t stream = 10; stream < 14; ++stream) {
            const Doubles direction = support::pattern(qkv.numel(), stream);
            auto moved = [&](double step) {
                Doubles there = values;
                for (std::size_t i = 0; i < there.size(); ++i) there[i] += step * direction[i];
                return support::dot(dout, reference.forward(there));
            };
            const double expected = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            EXPECT_NEAR(support::dot(support::doubles(dqkv), direction), expected,
                        2e-4 * std::max(1.0, std::abs(expected)));
        }
        device.check_guards();
    }
}

TEST(AttentionThreads, NothingDependsOnThem) {
    support::expect_same_on_any_threads([] {
        TestDevice device;
        const HeadLayout heads{.num_heads = 2, .num_kv_heads = 1, .head_dim = 32};
        const TokenMap map = device.map({300, 41});
        core::Tensor qkv = device.tensor({341, heads.packed_width()}, support::pattern(341 * heads.packed_width(), 1));
        core::Tensor out = device.tensor({341, 64});
        core::Tensor lse = device.tensor({2, 341});
        core::Tensor dout = device.tensor({341, 64}, support::pattern(341 * 64, 2));
        core::Tensor dqkv = device.tensor(qkv.shape());
        attention_forward(
                *device.backend, device.stream,
                {.heads = heads, .scale = 0.2F, .tokens = map, .dropout = {}, .qkv = qkv, .out = out, .lse = &lse});
        attention_backward(*device.backend, device.stream,
                           {.heads = heads,
                            .scale = 0.2F,
                            .tokens = map,
                            .dropout = {},
                            .qkv = qkv,
                            .out = out,
                            .lse = lse,
                            .dout = dout,
                            .dqkv = dqkv});
        return std::vector<Doubles>{support::doubles(out), support::doubles(dqkv)};
    });
}

TEST(CachedAttention, EqualsTheWholeSequence_GE_02) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
        TestDevice device;
        const HeadLayout heads{.num_heads = 6, .num_kv_heads = 2, .head_dim = 20};
        const std::int64_t tokens = 37;
        const TokenMap map = device.map({37});
        core::Tensor qkv = device.tensor({tokens, heads.packed_width()},
                                         support::pattern(tokens * heads.packed_width(), 1), dtype);
        core::Tensor whole = device.tensor({tokens, 120}, dtype);
        attention_forward(*device.backend, device.stream,
                          {.heads = heads, .scale = 0.3F, .tokens = map, .dropout = {}, .qkv = qkv, .out = whole});
        core::Tensor keys = device.tensor({40, 40}, dtype);
        core::Tensor values = device.tensor({40, 40}, dtype);
        core::Tensor stepwise = device.tensor({tokens, 120}, dtype);
        std::int64_t past = 0;
        for (const std::int64_t count : {11, 1, 1, 7, 1, 16}) {
            core::Tensor part = stepwise.range(past, past + count);
            cached_attention(*device.backend, device.stream,
                             {.heads = heads,
                              .scale = 0.3F,
                              .past = past,
                              .qkv = qkv.range(past, past + count),
                              .k_cache = keys,
                              .v_cache = values,
                              .out = part});
            past += count;
        }
        support::expect_close(support::doubles(stepwise), support::doubles(whole), dtype == DType::f32 ? 1e-5 : 0x1p-7,
                              "cached");
        core::Tensor more = device.tensor({4, 120}, dtype);
        EXPECT_THROW(cached_attention(*device.backend, device.stream,
                                      {.heads = heads,
                                       .past = past,
                                       .qkv = qkv.range(0, 4),
                                       .k_cache = keys,
                                       .v_cache = values,
                                       .out = more}),
                     core::ShapeError);
        device.check_guards();
    }
}

TEST(Rotary, TurnsPairsAndIsUndone) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
        TestDevice device;
        const HeadLayout heads{.num_heads = 3, .num_kv_heads = 1, .head_dim = 10};
        const TokenMap map = device.map({5, 12});
        const Doubles values = support::pattern(17 * heads.packed_width(), 1);
        core::Tensor qkv = device.tensor({17, heads.packed_width()}, values, dtype);
        rotary(*device.backend, device.stream, {.heads = heads, .theta = 500.0, .tokens = map, .qkv = qkv});
        Doubles expected = values;
        for (std::int64_t token = 0; token < 17; ++token) {
            const double position = static_cast<double>(token < 5 ? token : token - 5);
            for (std::int64_t head = 0; head < 4; ++head) {  // q and k heads; v stays
                for (std::int64_t i = 0; i < 5; ++i) {
                    const auto a = static_cast<std::size_t>(token * heads.packed_width() + head * 10 + i);
                    const double angle = position * std::pow(500.0, -2.0 * static_cast<double>(i) / 10);
                    expected[a] = values[a] * std::cos(angle) - values[a + 5] * std::sin(angle);
                    expected[a + 5] = values[a + 5] * std::cos(angle) + values[a] * std::sin(angle);
                }
            }
        }
        support::expect_close(support::doubles(qkv), expected, 2 * support::storage_epsilon(dtype) + 1e-7, "rotated");
        // The gradient is the transpose, and the rotation is orthogonal: it brings the input back.
        rotary(*device.backend, device.stream,
               {.heads = heads, .theta = 500.0, .direction = RotaryDirection::backward, .tokens = map, .qkv = qkv});
        support::expect_close(support::doubles(qkv), values, 4 * support::storage_epsilon(dtype) + 1e-6, "back");
        device.check_guards();
    }
}

TEST(AttentionCost, CountsTheCausalHalf) {
    TestDevice device;
    const HeadLayout heads{.num_heads = 4, .num_kv_heads = 2, .head_dim = 8};
    const TokenMap map = device.map({3, 5});
    core::Tensor qkv = device.tensor({8, heads.packed_width()}, support::pattern(8 * heads.packed_width(), 1));
    core::Tensor out = device.tensor({8, 32});
    core::Tensor lse = device.tensor({4, 8});
    core::Tensor dqkv = device.tensor(qkv.shape());
    attention_forward(*device.backend, device.stream,
                      {.heads = heads, .tokens = map, .dropout = {}, .qkv = qkv, .out = out, .lse = &lse});
    attention_backward(*device.backend, device.stream,
                       {.heads = heads,
                        .tokens = map,
                        .dropout = {},
                        .qkv = qkv,
                        .out = out,
                        .lse = lse,
                        .dout = out.reshape({8, 32}),
                        .dqkv = dqkv});
    EXPECT_EQ(device.backend->account()[Op::attention_forward].flops, 2.0 * 32 * (9 + 25));
    EXPECT_EQ(device.backend->account()[Op::attention_backward].flops, 4.0 * 32 * (9 + 25));
    core::Tensor wrong = device.zeros({8, heads.packed_width() + 1});
    EXPECT_THROW(attention_forward(*device.backend, device.stream,
                                   {.heads = heads, .tokens = map, .dropout = {}, .qkv = wrong, .out = out}),
                 core::ShapeError);
}

}  // namespace
}  // namespace tessera::kernels

#include "kernels/attention.h"

#include "attention_reference.h"

namespace tessera::kernels {
namespace {

using core::DType;
using core::Tensor;
using support::expect_close;
using support::Piece;
using support::values;
using Values = std::vector<double>;

struct AttentionCase {
    HeadLayout heads;
    std::vector<Piece> pieces;
    std::int64_t padding = 0;
    float probability = 0;
    std::int64_t head_begin = 0;
    std::string name(DType dtype) const {
        std::string text =
                fmt::format("heads {}/{}x{} p={} ", heads.num_heads, heads.num_kv_heads, heads.head_dim, probability);
        for (const Piece& piece : pieces) text += fmt::format("{}+", piece.length);
        return text + fmt::format("{} {}", padding, core::name_of(dtype));
    }
    Dropout dropout() const {
        return {.probability = probability,
                .seed = 987654321987654321ULL,
                .site = dropout_site(2, 1, 0),
                .feature_begin = head_begin};
    }
};

/// Short blocks for gradients: a document mask that starts at odd offsets, one-token blocks, padding.
const std::vector<Piece> kDocuments = {{.sample = 7, .offset = 0, .length = 5},
                                       {.sample = 7, .offset = 5, .length = 1},
                                       {.sample = 7, .offset = 6, .length = 13},
                                       {.sample = 7'000'000'003, .offset = 0, .length = 4}};
/// Longer than a tile of queries and than a tile of keys.
const std::vector<Piece> kLong = {{.sample = 1, .offset = 0, .length = 131}, {.sample = 2, .offset = 3, .length = 76}};

const std::vector<HeadLayout> kLayouts = {{.num_heads = 1, .num_kv_heads = 1, .head_dim = 1},
                                          {.num_heads = 4, .num_kv_heads = 2, .head_dim = 19},
                                          {.num_heads = 4, .num_kv_heads = 1, .head_dim = 8},
                                          {.num_heads = 2, .num_kv_heads = 2, .head_dim = 64}};

std::vector<AttentionCase> cases(const std::vector<Piece>& pieces) {
    std::vector<AttentionCase> all;
    for (const HeadLayout& heads : kLayouts) {
        all.push_back({.heads = heads, .pieces = pieces, .padding = 3});
        all.push_back({.heads = heads, .pieces = pieces, .padding = 3, .probability = 0.3F, .head_begin = 4});
    }
    all.push_back({.heads = kLayouts[1], .pieces = {{.sample = 1, .offset = 0, .length = 1}}});
    return all;
}

class AttentionTest : public support::KernelTest {
protected:
    struct Run {
        TokenMap map;
        Tensor qkv, out, lse;
        float scale = 1;
    };
    Run run_forward(const AttentionCase& c, DType dtype) {
        Run run;
        run.map = support::token_map(device, c.pieces, c.padding, 150);
        const std::int64_t count = run.map.sample.numel();
        run.scale = 1.0F / std::sqrt(static_cast<float>(c.heads.head_dim));
        run.qkv = device.random({count, c.heads.packed_width()}, dtype, 2.0);
        run.out = device.make({count, c.heads.num_heads * c.heads.head_dim}, dtype);
        run.lse = device.make({c.heads.num_heads, count}, DType::f32);
        attention_forward(device.backend(), device.stream(),
                          {.heads = c.heads,
                           .scale = run.scale,
                           .tokens = run.map,
                           .dropout = c.dropout(),
                           .qkv = run.qkv,
                           .out = run.out,
                           .lse = &run.lse});
        return run;
    }
};

TEST_F(AttentionTest, ForwardAgainstDoublePrecision) {
    for (const std::vector<Piece>& pieces : {kDocuments, kLong}) {
        for (const AttentionCase& c : cases(pieces)) {
            for (const DType dtype : support::kFloatingDTypes) {
                const Run run = run_forward(c, dtype);
                const AttentionReference reference(c.heads, static_cast<double>(run.scale), c.dropout(), run.map);
                Values out;
                Values lse;
                reference.forward(values(run.qkv), out, lse);
                const support::Tolerance tolerance{.terms = static_cast<double>(c.heads.head_dim + 64), .magnitude = 4};
                expect_close("out " + c.name(dtype), run.out, out, tolerance);
                expect_close("lse " + c.name(dtype), run.lse, lse, tolerance);
            }
        }
    }
}

TEST_F(AttentionTest, ForwardWithoutLseIsTheSame) {
    const AttentionCase c{.heads = kLayouts[1], .pieces = kLong, .padding = 2};
    const Run run = run_forward(c, DType::f32);
    Tensor out = device.make(run.out.shape(), DType::f32);
    attention_forward(
            device.backend(), device.stream(),
            {.heads = c.heads, .scale = run.scale, .tokens = run.map, .dropout = {}, .qkv = run.qkv, .out = out});
    support::expect_same_bits("out", out, run.out);
}

TEST_F(AttentionTest, BackwardAgainstCentralDifferences) {
    for (const AttentionCase& c : cases(kDocuments)) {
        const Run run = run_forward(c, DType::f32);
        const Tensor dout = device.random(run.out.shape(), DType::f32);
        Tensor dqkv = device.make(run.qkv.shape(), DType::f32);
        attention_backward(device.backend(), device.stream(),
                           {.heads = c.heads,
                            .scale = run.scale,
                            .tokens = run.map,
                            .dropout = c.dropout(),
                            .qkv = run.qkv,
                            .out = run.out,
                            .lse = run.lse,
                            .dout = dout,
                            .dqkv = dqkv});
        const AttentionReference reference(c.heads, static_cast<double>(run.scale), c.dropout(), run.map);
        const Values weights = values(dout);
        support::expect_gradient(
                {.what = "dqkv " + c.name(DType::f32),
                 .actual = dqkv,
                 .x = values(run.qkv),
                 .objective = [&](const Values& qkv) { return reference.objective(qkv, weights); },
                 .tolerance = {.terms = static_cast<double>(2 * c.heads.head_dim + 32), .magnitude = 4},
                 .stride = c.heads.head_dim > 16 ? 7 : 1});
    }
}

/// Blocks of several tiles: a few elements only, since each costs two double-precision forward passes.
TEST_F(AttentionTest, BackwardOfLongBlocks) {
    for (const float probability : {0.0F, 0.3F}) {
        const AttentionCase c{
                .heads = kLayouts[1], .pieces = kLong, .padding = 3, .probability = probability, .head_begin = 0};
        const Run run = run_forward(c, DType::f32);
        const Tensor dout = device.random(run.out.shape(), DType::f32);
        Tensor dqkv = device.make(run.qkv.shape(), DType::f32);
        attention_backward(device.backend(), device.stream(),
                           {.heads = c.heads,
                            .scale = run.scale,
                            .tokens = run.map,
                            .dropout = c.dropout(),
                            .qkv = run.qkv,
                            .out = run.out,
                            .lse = run.lse,
                            .dout = dout,
                            .dqkv = dqkv});
        const AttentionReference reference(c.heads, static_cast<double>(run.scale), c.dropout(), run.map);
        const Values weights = values(dout);
        support::expect_gradient({.what = "dqkv " + c.name(DType::f32),
                                  .actual = dqkv,
                                  .x = values(run.qkv),
                                  .objective = [&](const Values& qkv) { return reference.objective(qkv, weights); },
                                  .tolerance = {.terms = 150, .magnitude = 8},
                                  .stride = 709});
    }
}

/// 16-bit gradients against those of f32 on the same (rounded) operands.
TEST_F(AttentionTest, BackwardInHalfPrecision) {
    for (const AttentionCase& c : cases(kDocuments)) {
        for (const DType dtype : {DType::bf16, DType::f16}) {
            const Run half = run_forward(c, dtype);
            const Tensor dout = device.random(half.out.shape(), dtype);
            Tensor wide[3] = {device.make(half.qkv.shape(), DType::f32), device.make(half.out.shape(), DType::f32),
                              device.make(half.out.shape(), DType::f32)};
            cast(device.backend(), device.stream(), half.qkv, wide[0]);
            cast(device.backend(), device.stream(), half.out, wide[1]);
            cast(device.backend(), device.stream(), dout, wide[2]);
            auto backward = [&](const Tensor& qkv, const Tensor& out, const Tensor& gradient) {
                Tensor dqkv = device.make(qkv.shape(), qkv.dtype());
                attention_backward(device.backend(), device.stream(),
                                   {.heads = c.heads,
                                    .scale = half.scale,
                                    .tokens = half.map,
                                    .dropout = c.dropout(),
                                    .qkv = qkv,
                                    .out = out,
                                    .lse = half.lse,
                                    .dout = gradient,
                                    .dqkv = dqkv});
                return dqkv;
            };
            expect_close("dqkv " + c.name(dtype), backward(half.qkv, half.out, dout),
                         values(backward(wide[0], wide[1], wide[2])), {.terms = 4});
        }
    }
}

TEST_F(AttentionTest, LargeScoresStayFinite) {
    const HeadLayout heads{.num_heads = 1, .num_kv_heads = 1, .head_dim = 2};
    const TokenMap map = support::token_map(device, {{.length = 3}}, 0, 3);
    // Scores of ±2e4: the softmax is one-hot.
    const Tensor qkv = device.of(std::vector<float>{100, 0, 100, 0, 1, 2,   //
                                                    100, 0, -100, 0, 3, 4,  //
                                                    100, 0, 200, 0, 5, 6})
                               .reshape({3, 6});
    Tensor out = device.make({3, 2}, DType::f32);
    attention_forward(device.backend(), device.stream(),
                      {.heads = heads, .scale = 1, .tokens = map, .dropout = {}, .qkv = qkv, .out = out});
    expect_close("out", out, {1, 2, 1, 2, 5, 6}, {});
}

TEST_F(AttentionTest, BordersThatDoNotAscendAreRefused) {
    const HeadLayout heads{.num_heads = 1, .num_kv_heads = 1, .head_dim = 2};
    TokenMap map = support::token_map(device, {{.length = 3}}, 0, 3);
    map.cu_seqlens = device.of(std::vector<std::int32_t>{0, 4});
    const Tensor qkv = device.random({3, 6}, DType::f32);
    Tensor out = device.make({3, 2}, DType::f32);
    const AttentionForwardArgs args{.heads = heads, .tokens = map, .dropout = {}, .qkv = qkv, .out = out};
    try {
        attention_forward(device.backend(), device.stream(), args);
        ADD_FAILURE() << "a block beyond the tokens was taken";
    } catch (const core::ShapeError& error) {
        EXPECT_EQ(std::string(error.what()),
                  "attention: block 0 runs from token 0 to 4, but blocks ascend from 0, hold at most 3 tokens and end "
                  "by 3");
    }
}

}  // namespace
}  // namespace tessera::kernels

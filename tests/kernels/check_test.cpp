// Wrong operands: which error, and that its message names the operand and both numbers.
#include "kernels/check.h"

#include "support/tensor_support.h"

namespace tessera::kernels {
namespace {

using core::DType;
using core::Tensor;

class CheckTest : public support::KernelTest {
protected:
    template <typename Call>
    void expect_shape_error(const Call& call, const std::string& message) {
        try {
            call();
            ADD_FAILURE() << "no error instead of: " << message;
        } catch (const core::ShapeError& error) {
            EXPECT_EQ(std::string(error.what()), message);
        }
    }
    Tensor floats(const core::Shape& shape, DType dtype = DType::f32) { return device.random(shape, dtype); }
    Backend& backend = device.backend();
    core::Stream& stream = device.stream();
};

TEST_F(CheckTest, LinearOperands) {
    const Tensor x = floats({4, 8});
    const Tensor weight = floats({6, 8});
    const Tensor narrow = floats({6, 7});
    const Tensor half = floats({6, 8}, DType::bf16);
    const Tensor bias = floats({5});
    Tensor y = floats({4, 6});
    Tensor flat = floats({24});
    expect_shape_error([&] { linear_forward(backend, stream, {.x = x, .weight = narrow, .y = y}); },
                       "linear_forward: weight has shape [6, 7], expected [6, 8]");
    expect_shape_error([&] { linear_forward(backend, stream, {.x = x, .weight = half, .y = y}); },
                       "linear_forward: weight has dtype bf16, expected f32");
    expect_shape_error([&] { linear_forward(backend, stream, {.x = flat, .weight = weight, .y = y}); },
                       "linear_forward: x has 1 dimensions [24], expected 2");
    expect_shape_error(
            [&] {
                linear_forward(backend, stream,
                               {.x = x, .weight = weight, .bias = &bias, .epilogue = Epilogue::bias, .y = y});
            },
            "linear_forward: bias has shape [5], expected [6]");
    expect_shape_error([&] { linear_forward(backend, stream, {.x = x, .weight = weight, .bias = &bias, .y = y}); },
                       "linear_forward: bias is given exactly for the epilogues bias and bias_gelu");
    expect_shape_error(
            [&] { linear_forward(backend, stream, {.x = x, .weight = weight, .epilogue = Epilogue::swiglu, .y = y}); },
            "linear_forward: y has shape [4, 6], expected [4, 3]");
    Tensor square = floats({4, 4});
    const Tensor square_weight = floats({4, 4});
    expect_shape_error([&] { linear_forward(backend, stream, {.x = square, .weight = square_weight, .y = square}); },
                       "linear_forward: y may not alias x");
    expect_shape_error(
            [&] { linear_dgrad(backend, stream, {.dy = y, .weight = weight, .epilogue = Epilogue::bias, .dx = y}); },
            "linear_dgrad: dx has shape [4, 6], expected [4, 8]");
    Tensor dweight = floats({6, 8}, DType::f16);
    expect_shape_error([&] { linear_wgrad(backend, stream, {.x = x, .dy = y, .dweight = dweight}); },
                       "linear_wgrad: dweight has dtype f16, expected f32");
}

TEST_F(CheckTest, NormOperands) {
    const Tensor x = floats({4, 8});
    const Tensor gamma = floats({8});
    const Tensor wrong = floats({7});
    const TokenMap none;
    Tensor y = floats({4, 8});
    Tensor missing;
    expect_shape_error([&] { norm_forward(backend, stream, {.x = x, .gamma = wrong, .y = y}); },
                       "norm_forward: gamma has shape [7], expected [8]");
    expect_shape_error([&] { norm_forward(backend, stream, {.x = x, .gamma = gamma, .y = missing}); },
                       "norm_forward: y is missing; expected shape [4, 8]");
    expect_shape_error(
            [&] {
                norm_forward(backend, stream, {.kind = NormKind::rms, .x = x, .gamma = gamma, .beta = &gamma, .y = y});
            },
            "norm_forward: an RMS norm has no beta");
    expect_shape_error(
            [&] {
                bias_dropout_residual_norm_forward(
                        backend, stream,
                        {.x = x, .residual = y, .dropout = {.probability = 1.0F}, .tokens = none, .residual_out = y});
            },
            "bias_dropout_residual_norm_forward: the dropout probability must be in [0, 1)");
    expect_shape_error(
            [&] {
                bias_dropout_residual_norm_forward(backend, stream,
                                                   {.x = x,
                                                    .residual = x,
                                                    .dropout = {},
                                                    .tokens = none,
                                                    .residual_out = y,
                                                    .gamma = &gamma,
                                                    .y = &y});
            },
            "bias_dropout_residual_norm_forward: y may not alias residual_out");
}

TEST_F(CheckTest, AttentionOperands) {
    const HeadLayout heads{.num_heads = 4, .num_kv_heads = 2, .head_dim = 3};
    const TokenMap map = support::token_map(device, {{.length = 5}}, 0, 5);
    Tensor qkv = floats({5, 24});
    const Tensor narrow = floats({5, 23});
    const Tensor fewer = floats({4, 24});
    Tensor out = floats({5, 12});
    Tensor lse = floats({5, 4});
    expect_shape_error(
            [&] {
                attention_forward(backend, stream,
                                  {.heads = heads, .tokens = map, .dropout = {}, .qkv = narrow, .out = out});
            },
            "attention_forward: qkv has shape [5, 23], expected [5, 24]");
    expect_shape_error(
            [&] {
                attention_forward(backend, stream,
                                  {.heads = heads, .tokens = map, .dropout = {}, .qkv = fewer, .out = out});
            },
            "attention_forward: tokens.sample has shape [5], expected [4]");
    expect_shape_error(
            [&] {
                attention_forward(backend, stream,
                                  {.heads = heads, .tokens = map, .dropout = {}, .qkv = qkv, .out = out, .lse = &lse});
            },
            "attention_forward: lse has shape [5, 4], expected [4, 5]");
    expect_shape_error(
            [&] {
                attention_forward(backend, stream,
                                  {.heads = {.num_heads = 4, .num_kv_heads = 3, .head_dim = 3},
                                   .tokens = map,
                                   .dropout = {},
                                   .qkv = qkv,
                                   .out = out});
            },
            "attention_forward: num_kv_heads must divide num_heads");
    expect_shape_error([&] { rotary(backend, stream, {.heads = heads, .tokens = map, .qkv = qkv}); },
                       "rotary: head_dim must be even: rotary turns pairs");
    const Tensor good_lse = floats({4, 5});
    expect_shape_error(
            [&] {
                attention_backward(backend, stream,
                                   {.heads = heads,
                                    .tokens = map,
                                    .dropout = {},
                                    .qkv = qkv,
                                    .out = out,
                                    .lse = good_lse,
                                    .dout = out,
                                    .dqkv = qkv});
            },
            "attention_backward: dqkv may not alias an input");
}

TEST_F(CheckTest, FlatAndTableOperands) {
    const Tensor x = floats({2049});
    Tensor partial = floats({2});
    expect_shape_error([&] { sum_of_squares(backend, stream, x, partial); },
                       "sum_of_squares: partial has shape [2], expected [3]");
    Tensor grid = floats({4, 4});
    expect_shape_error([&] { sum(backend, stream, grid); }, "sum: x has 2 dimensions [4, 4], expected 1");
    expect_shape_error([&] { cast(backend, stream, grid, grid); }, "cast: x and y may not overlap");
    expect_shape_error([&] { add(backend, stream, x, grid); }, "add: y has shape [4, 4], expected [2049]");
    Tensor ids = device.of(std::vector<std::int32_t>{1, 2});
    expect_shape_error([&] { scale(backend, stream, ids, 2.0F); }, "scale: x has dtype i32, expected f32, bf16 or f16");
    Tensor state = floats({4});
    Tensor shorter = floats({3});
    expect_shape_error(
            [&] {
                adamw(backend, stream,
                      {.main_param = state, .main_grad = state, .exp_avg = shorter, .exp_avg_sq = state});
            },
            "adamw: exp_avg has shape [3], expected [4]");
    expect_shape_error(
            [&] {
                adamw(backend, stream,
                      {.main_param = state, .main_grad = state, .exp_avg = state, .exp_avg_sq = state, .step = 0});
            },
            "adamw: step counts from 1");
    const TokenMap map = support::token_map(device, {{.length = 3}}, 0, 3);
    const Tensor word = floats({7, 4});
    Tensor y = floats({2, 4});
    expect_shape_error(
            [&] {
                embedding_forward(backend, stream, {.tokens = ids, .word = word, .map = map, .dropout = {}, .y = y});
            },
            "embedding_forward: map.sample has shape [3], expected [2]");
    const Tensor targets = device.of(std::vector<std::int32_t>{1, 2, 3});
    Tensor losses = floats({4});
    auto statistics = [&](const Tensor& ids_of_targets, std::int64_t valid) {
        cross_entropy_statistics(backend, stream,
                                 {.logits = grid,
                                  .targets = ids_of_targets,
                                  .num_valid = valid,
                                  .vocab_size = valid,
                                  .maximum = losses,
                                  .sum_exp = losses,
                                  .target_logit = losses});
    };
    expect_shape_error([&] { statistics(targets, 4); },
                       "cross_entropy_statistics: targets has shape [3], expected [4]");
    const Tensor four = device.of(std::vector<std::int32_t>{0, 1, 2, 3});
    expect_shape_error([&] { statistics(four, 5); },
                       "cross_entropy_statistics: num_valid must be in [1, columns of the logits]");
}

}  // namespace
}  // namespace tessera::kernels

// Every operation but attention, at GPT-2 124M's sizes and 4 x 256 tokens.
#include "bench/bench_support.h"

namespace tessera::bench {
namespace {

using kernels::Epilogue;
using kernels::NormKind;

const kernels::Dropout kDropout{.probability = 0.1F, .seed = 1, .site = kernels::dropout_site(1, 0, 0)};

/// The four products of a layer and the head: inputs, outputs.
void products(benchmark::internal::Benchmark* benchmark) {
    benchmark->ArgNames({"dtype", "in", "out"})->UseRealTime();
    for (const DType dtype : {DType::f32, DType::bf16}) {
        const auto code = static_cast<std::int64_t>(dtype);
        benchmark->Args({code, kHidden, 3 * kHidden})->Args({code, kHidden, kHidden});
        benchmark->Args({code, kHidden, kFfn})->Args({code, kFfn, kHidden})->Args({code, kHidden, kPaddedVocab});
    }
}

void linear_forward(benchmark::State& state) {
    Bench bench;
    const DType dtype = dtype_of(state);
    const Tensor x = bench.tensor({kTokens, state.range(1)}, dtype);
    const Tensor weight = bench.tensor({state.range(2), state.range(1)}, dtype);
    Tensor y = bench.tensor({kTokens, state.range(2)}, dtype);
    bench.measure(state, [&] {
        kernels::linear_forward(bench.backend(), bench.stream(), {.x = x, .weight = weight, .y = y});
    });
}
BENCHMARK(linear_forward)->Apply(products);

void linear_dgrad(benchmark::State& state) {
    Bench bench;
    const DType dtype = dtype_of(state);
    const Tensor dy = bench.tensor({kTokens, state.range(2)}, dtype);
    const Tensor weight = bench.tensor({state.range(2), state.range(1)}, dtype);
    Tensor dx = bench.tensor({kTokens, state.range(1)}, dtype);
    bench.measure(state, [&] {
        kernels::linear_dgrad(bench.backend(), bench.stream(), {.dy = dy, .weight = weight, .dx = dx});
    });
}
BENCHMARK(linear_dgrad)->Apply(products);

void linear_wgrad(benchmark::State& state) {
    Bench bench;
    const DType dtype = dtype_of(state);
    const Tensor x = bench.tensor({kTokens, state.range(1)}, dtype);
    const Tensor dy = bench.tensor({kTokens, state.range(2)}, dtype);
    Tensor dweight = bench.tensor({state.range(2), state.range(1)}, DType::f32);
    Tensor dbias = bench.tensor({state.range(2)}, DType::f32);
    bench.measure(state, [&] {
        kernels::linear_wgrad(bench.backend(), bench.stream(), {.x = x, .dy = dy, .dweight = dweight, .dbias = &dbias});
    });
}
BENCHMARK(linear_wgrad)->Apply(products);

/// The product with its fused activation, 768 -> 3072.
void linear_forward_bias_gelu(benchmark::State& state) {
    Bench bench;
    const DType dtype = dtype_of(state);
    const Tensor x = bench.tensor({kTokens, kHidden}, dtype);
    const Tensor weight = bench.tensor({kFfn, kHidden}, dtype);
    const Tensor bias = bench.tensor({kFfn}, dtype);
    Tensor y = bench.tensor({kTokens, kFfn}, dtype);
    Tensor pre = bench.tensor({kTokens, kFfn}, dtype);
    bench.measure(state, [&] {
        kernels::linear_forward(bench.backend(), bench.stream(),
                                {.x = x,
                                 .weight = weight,
                                 .bias = &bias,
                                 .epilogue = Epilogue::bias_gelu,
                                 .y = y,
                                 .pre_activation = &pre});
    });
}
BENCHMARK(linear_forward_bias_gelu)->Apply(dtypes);

/// Back through the second product of the MLP and the activation below it.
void linear_dgrad_bias_gelu(benchmark::State& state) {
    Bench bench;
    const DType dtype = dtype_of(state);
    const Tensor dy = bench.tensor({kTokens, kHidden}, dtype);
    const Tensor weight = bench.tensor({kHidden, kFfn}, dtype);
    const Tensor pre = bench.tensor({kTokens, kFfn}, dtype);
    Tensor dx = bench.tensor({kTokens, kFfn}, dtype);
    bench.measure(state, [&] {
        kernels::linear_dgrad(
                bench.backend(), bench.stream(),
                {.dy = dy, .weight = weight, .epilogue = Epilogue::bias_gelu, .pre_activation = &pre, .dx = dx});
    });
}
BENCHMARK(linear_dgrad_bias_gelu)->Apply(dtypes);

struct NormOperands {
    Tensor x, dy, gamma, beta, y, mean, rstd, dgamma, dbeta, dbias;
    NormOperands(Bench& bench, DType dtype)
        : x(bench.tensor({kTokens, kHidden}, dtype)),
          dy(bench.tensor({kTokens, kHidden}, dtype)),
          gamma(bench.tensor({kHidden}, dtype)),
          beta(bench.tensor({kHidden}, dtype)),
          y(bench.tensor({kTokens, kHidden}, dtype)),
          mean(bench.tensor({kTokens}, DType::f32)),
          rstd(bench.tensor({kTokens}, DType::f32)),
          dgamma(bench.tensor({kHidden}, DType::f32)),
          dbeta(bench.tensor({kHidden}, DType::f32)),
          dbias(bench.tensor({kHidden}, DType::f32)) {}
};

void norm_forward(benchmark::State& state) {
    Bench bench;
    NormOperands n(bench, dtype_of(state));
    bench.measure(state, [&] {
        kernels::norm_forward(
                bench.backend(), bench.stream(),
                {.x = n.x, .gamma = n.gamma, .beta = &n.beta, .y = n.y, .mean = &n.mean, .rstd = &n.rstd});
    });
}
BENCHMARK(norm_forward)->Apply(dtypes);

void norm_backward(benchmark::State& state) {
    Bench bench;
    NormOperands n(bench, dtype_of(state));
    bench.measure(state, [&] {
        kernels::norm_backward(bench.backend(), bench.stream(),
                               {.x = n.x,
                                .dy = n.dy,
                                .gamma = n.gamma,
                                .mean = &n.mean,
                                .rstd = n.rstd,
                                .dx = n.y,
                                .dgamma = n.dgamma,
                                .dbeta = &n.dbeta});
    });
}
BENCHMARK(norm_backward)->Apply(dtypes);

void with_dropout(benchmark::internal::Benchmark* benchmark) {
    benchmark->ArgNames({"dtype", "dropout"})->UseRealTime();
    for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const std::int64_t drops : {0, 1}) benchmark->Args({static_cast<std::int64_t>(dtype), drops});
    }
}

void bias_dropout_residual_norm_forward(benchmark::State& state) {
    Bench bench;
    NormOperands n(bench, dtype_of(state));
    const kernels::TokenMap map = bench.token_map(256);
    Tensor sum = bench.tensor({kTokens, kHidden}, dtype_of(state));
    bench.measure(state, [&] {
        kernels::bias_dropout_residual_norm_forward(bench.backend(), bench.stream(),
                                                    {.x = n.x,
                                                     .bias = &n.beta,
                                                     .residual = n.dy,
                                                     .dropout = state.range(1) ? kDropout : kernels::Dropout{},
                                                     .tokens = map,
                                                     .residual_out = sum,
                                                     .gamma = &n.gamma,
                                                     .beta = &n.beta,
                                                     .y = &n.y,
                                                     .mean = &n.mean,
                                                     .rstd = &n.rstd});
    });
}
BENCHMARK(bias_dropout_residual_norm_forward)->Apply(with_dropout);

void bias_dropout_residual_norm_backward(benchmark::State& state) {
    Bench bench;
    NormOperands n(bench, dtype_of(state));
    const kernels::TokenMap map = bench.token_map(256);
    const Tensor path = bench.tensor({kTokens, kHidden}, dtype_of(state));
    Tensor dresidual = bench.tensor({kTokens, kHidden}, dtype_of(state));
    bench.measure(state, [&] {
        kernels::bias_dropout_residual_norm_backward(bench.backend(), bench.stream(),
                                                     {.dy = &n.dy,
                                                      .dresidual_out = &path,
                                                      .dropout = state.range(1) ? kDropout : kernels::Dropout{},
                                                      .tokens = map,
                                                      .residual_out = &n.x,
                                                      .gamma = &n.gamma,
                                                      .mean = &n.mean,
                                                      .rstd = &n.rstd,
                                                      .dresidual = dresidual,
                                                      .dx = n.y,
                                                      .dbias = &n.dbias,
                                                      .dgamma = &n.dgamma,
                                                      .dbeta = &n.dbeta});
    });
}
BENCHMARK(bias_dropout_residual_norm_backward)->Apply(with_dropout);

void embedding_forward(benchmark::State& state) {
    Bench bench;
    const kernels::TokenMap map = bench.token_map(256);
    const Tensor tokens = bench.token_ids(kVocab);
    const Tensor word = bench.tensor({kPaddedVocab, kHidden}, dtype_of(state));
    const Tensor positions = bench.tensor({kPositions, kHidden}, dtype_of(state));
    Tensor y = bench.tensor({kTokens, kHidden}, dtype_of(state));
    bench.measure(state, [&] {
        kernels::embedding_forward(
                bench.backend(), bench.stream(),
                {.tokens = tokens, .word = word, .positions = &positions, .map = map, .dropout = {}, .y = y});
    });
}
BENCHMARK(embedding_forward)->Apply(dtypes);

void embedding_backward(benchmark::State& state) {
    Bench bench;
    const kernels::TokenMap map = bench.token_map(256);
    const Tensor tokens = bench.token_ids(kVocab);
    const Tensor dy = bench.tensor({kTokens, kHidden}, dtype_of(state));
    Tensor dword = bench.tensor({kPaddedVocab, kHidden}, DType::f32);
    Tensor dpositions = bench.tensor({kPositions, kHidden}, DType::f32);
    bench.measure(state, [&] {
        kernels::embedding_backward(
                bench.backend(), bench.stream(),
                {.tokens = tokens, .map = map, .dropout = {}, .dy = dy, .dword = dword, .dpositions = &dpositions});
    });
}
BENCHMARK(embedding_backward)->Apply(dtypes);

struct LossOperands {
    Tensor logits, targets, maximum, sum_exp, target_logit, losses;
    LossOperands(Bench& bench, DType dtype)
        : logits(bench.tensor({kTokens, kPaddedVocab}, dtype)),
          targets(bench.token_ids(kVocab)),
          maximum(bench.tensor({kTokens}, DType::f32)),
          sum_exp(bench.tensor({kTokens}, DType::f32)),
          target_logit(bench.tensor({kTokens}, DType::f32)),
          losses(bench.tensor({kTokens}, DType::f32)) {}
    void statistics(Bench& bench) {
        kernels::cross_entropy_statistics(bench.backend(), bench.stream(),
                                          {.logits = logits,
                                           .targets = targets,
                                           .num_valid = kVocab,
                                           .vocab_size = kVocab,
                                           .maximum = maximum,
                                           .sum_exp = sum_exp,
                                           .target_logit = target_logit});
    }
};

void cross_entropy_statistics(benchmark::State& state) {
    Bench bench;
    LossOperands loss(bench, dtype_of(state));
    bench.measure(state, [&] { loss.statistics(bench); });
}
BENCHMARK(cross_entropy_statistics)->Apply(dtypes);

void cross_entropy_finish(benchmark::State& state) {
    Bench bench;
    LossOperands loss(bench, dtype_of(state));
    loss.statistics(bench);
    bench.measure(state, [&] {
        kernels::cross_entropy_finish(bench.backend(), bench.stream(),
                                      {.logits = loss.logits,
                                       .targets = loss.targets,
                                       .num_valid = kVocab,
                                       .maximum = loss.maximum,
                                       .sum_exp = loss.sum_exp,
                                       .target_logit = loss.target_logit,
                                       .grad_scale = 1.0F / kTokens,
                                       .losses = loss.losses});
    });
}
BENCHMARK(cross_entropy_finish)->Apply(dtypes);

constexpr std::int64_t kFlat = std::int64_t{1} << 24;

void adamw(benchmark::State& state) {
    Bench bench;
    std::vector<Tensor> f;
    for (int i = 0; i < 3; ++i) f.push_back(bench.tensor({kFlat}, DType::f32));
    f.push_back(Tensor::zeros(bench.backend().pool(), {kFlat}, DType::f32, core::MemoryCategory::optimizer));
    Tensor model = bench.tensor({kFlat}, dtype_of(state));
    bench.measure(state, [&] {
        kernels::adamw(bench.backend(), bench.stream(),
                       {.main_param = f[0],
                        .main_grad = f[1],
                        .exp_avg = f[2],
                        .exp_avg_sq = f[3],
                        .model_param = dtype_of(state) == DType::f32 ? nullptr : &model,
                        .lr = 1e-4,
                        .weight_decay = 0.1});
    });
}
BENCHMARK(adamw)->Apply(dtypes);

void cast_from_f32(benchmark::State& state) {
    Bench bench;
    const Tensor x = bench.tensor({kFlat}, DType::f32);
    Tensor y = bench.tensor({kFlat}, dtype_of(state));
    bench.measure(state, [&] { kernels::cast(bench.backend(), bench.stream(), x, y); });
}
BENCHMARK(cast_from_f32)->Apply(dtypes);

void scale(benchmark::State& state) {
    Bench bench;
    Tensor x = bench.tensor({kFlat}, dtype_of(state));
    bench.measure(state, [&] { kernels::scale(bench.backend(), bench.stream(), x, 1.0F); });
}
BENCHMARK(scale)->Apply(dtypes);

void add(benchmark::State& state) {
    Bench bench;
    const Tensor x = bench.tensor({kFlat}, dtype_of(state));
    Tensor y = bench.tensor({kFlat}, dtype_of(state));
    bench.measure(state, [&] { kernels::add(bench.backend(), bench.stream(), x, y); });
}
BENCHMARK(add)->Apply(dtypes);

void sum_of_squares(benchmark::State& state) {
    Bench bench;
    const Tensor x = bench.tensor({kFlat}, DType::f32);
    Tensor partial = bench.tensor({kFlat / kernels::kNormBlock}, DType::f32);
    bench.measure(state, [&] { kernels::sum_of_squares(bench.backend(), bench.stream(), x, partial); });
}
BENCHMARK(sum_of_squares)->UseRealTime();

void sum(benchmark::State& state) {
    Bench bench;
    const Tensor x = bench.tensor({kFlat}, DType::f32);
    bench.measure(state, [&] { benchmark::DoNotOptimize(kernels::sum(bench.backend(), bench.stream(), x)); });
}
BENCHMARK(sum)->UseRealTime();

}  // namespace
}  // namespace tessera::bench

// Attention of GPT-2 124M (12 heads of 64) at 4 x 256 and 1 x 1024 tokens, rotary embedding and cached attention.
#include "bench/bench_support.h"

namespace tessera::bench {
namespace {

const kernels::Dropout kDropout{.probability = 0.1F, .seed = 1, .site = kernels::dropout_site(2, 0, 0)};

void shapes(benchmark::internal::Benchmark* benchmark) {
    benchmark->ArgNames({"dtype", "length", "dropout"})->UseRealTime();
    for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const std::int64_t length : {256, 1024}) {
            for (const std::int64_t drops : {0, 1}) {
                benchmark->Args({static_cast<std::int64_t>(dtype), length, drops});
            }
        }
    }
}

struct AttentionOperands {
    kernels::TokenMap map;
    kernels::Dropout dropout;
    Tensor qkv, out, lse, dout, dqkv;
    AttentionOperands(Bench& bench, const benchmark::State& state)
        : map(bench.token_map(state.range(1))),
          dropout(state.range(2) ? kDropout : kernels::Dropout{}),
          qkv(bench.tensor({kTokens, kHeads.packed_width()}, dtype_of(state))),
          out(bench.tensor({kTokens, kHidden}, dtype_of(state))),
          lse(bench.tensor({kHeads.num_heads, kTokens}, DType::f32)),
          dout(bench.tensor({kTokens, kHidden}, dtype_of(state))),
          dqkv(bench.tensor({kTokens, kHeads.packed_width()}, dtype_of(state))) {}
    void forward(Bench& bench) {
        kernels::attention_forward(bench.backend(), bench.stream(),
                                   {.heads = kHeads,
                                    .scale = 0.125F,
                                    .tokens = map,
                                    .dropout = dropout,
                                    .qkv = qkv,
                                    .out = out,
                                    .lse = &lse});
    }
    void backward(Bench& bench) {
        kernels::attention_backward(bench.backend(), bench.stream(),
                                    {.heads = kHeads,
                                     .scale = 0.125F,
                                     .tokens = map,
                                     .dropout = dropout,
                                     .qkv = qkv,
                                     .out = out,
                                     .lse = lse,
                                     .dout = dout,
                                     .dqkv = dqkv});
    }
};

void attention_forward(benchmark::State& state) {
    Bench bench;
    AttentionOperands a(bench, state);
    bench.measure(state, [&] { a.forward(bench); });
}
BENCHMARK(attention_forward)->Apply(shapes);

void attention_backward(benchmark::State& state) {
    Bench bench;
    AttentionOperands a(bench, state);
    a.forward(bench);
    bench.measure(state, [&] { a.backward(bench); });
}
BENCHMARK(attention_backward)->Apply(shapes);

void rotary(benchmark::State& state) {
    Bench bench;
    const kernels::TokenMap map = bench.token_map(256);
    Tensor qkv = bench.tensor({kTokens, kHeads.packed_width()}, dtype_of(state));
    bench.measure(state, [&] {
        kernels::rotary(bench.backend(), bench.stream(), {.heads = kHeads, .tokens = map, .qkv = qkv});
    });
}
BENCHMARK(rotary)->Apply(dtypes);

/// One new token after 1023.
void cached_attention(benchmark::State& state) {
    Bench bench;
    const Tensor qkv = bench.tensor({1, kHeads.packed_width()}, dtype_of(state));
    Tensor k_cache = bench.tensor({1024, kHidden}, dtype_of(state));
    Tensor v_cache = bench.tensor({1024, kHidden}, dtype_of(state));
    Tensor out = bench.tensor({1, kHidden}, dtype_of(state));
    bench.measure(state, [&] {
        kernels::cached_attention(bench.backend(), bench.stream(),
                                  {.heads = kHeads,
                                   .scale = 0.125F,
                                   .past = 1023,
                                   .qkv = qkv,
                                   .k_cache = k_cache,
                                   .v_cache = v_cache,
                                   .out = out});
    });
}
BENCHMARK(cached_attention)->Apply(dtypes);

}  // namespace
}  // namespace tessera::bench

// One call of every operation, large enough to be shared among threads, for comparisons between ways of running it.
#pragma once
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "support/tensor_support.h"

namespace tessera::kernels {

/// Whether oneDNN takes part: its sums may depend on the number of threads, ours may not.
enum class Product : std::uint8_t { none, gemm };

/// Runs on operands that depend only on the device's sequence, and returns everything that was written.
struct OperationCase {
    std::string name;
    Product product = Product::none;
    std::function<std::vector<core::Tensor>(support::Device&, core::DType)> run;
};

namespace cases {

using core::DType;
using core::Shape;
using core::Tensor;
using support::Device;
using Tensors = std::vector<Tensor>;

inline constexpr std::int64_t kTokens = 67;
inline constexpr std::int64_t kHidden = 131;
inline constexpr std::int64_t kWide = 194;
inline constexpr std::int64_t kFlat = 40'003;

inline TokenMap tokens(Device& device) {
    return support::token_map(device,
                              {{.sample = 3, .offset = 0, .length = 41},
                               {.sample = 3, .offset = 41, .length = 1},
                               {.sample = 6'000'000'007, .offset = 5, .length = 22}},
                              3, 70);
}

inline Dropout dropout(float probability) {
    return {.probability = probability, .seed = 77, .site = dropout_site(1, 2, 1), .feature_begin = 4};
}

inline OperationCase linear_forward_case(const std::string& name, Epilogue epilogue) {
    auto run = [epilogue](Device& device, DType dtype) {
        const bool has_bias = epilogue == Epilogue::bias || epilogue == Epilogue::bias_gelu;
        const bool activates = epilogue == Epilogue::bias_gelu || epilogue == Epilogue::swiglu;
        const Tensor x = device.random({kTokens, kHidden}, dtype);
        const Tensor weight = device.random({kWide, kHidden}, dtype, 0.125);
        const Tensor bias = device.random({kWide}, dtype);
        Tensor y = device.make({kTokens, epilogue == Epilogue::swiglu ? kWide / 2 : kWide}, dtype);
        Tensor pre = device.make({kTokens, kWide}, dtype);
        linear_forward(device.backend(), device.stream(),
                       {.x = x,
                        .weight = weight,
                        .bias = has_bias ? &bias : nullptr,
                        .epilogue = epilogue,
                        .y = y,
                        .pre_activation = activates ? &pre : nullptr});
        return activates ? Tensors{y, pre} : Tensors{y};
    };
    return {"linear_forward " + name, Product::gemm, run};
}

inline OperationCase linear_dgrad_case(const std::string& name, Epilogue epilogue, bool accumulate) {
    auto run = [epilogue, accumulate](Device& device, DType dtype) {
        const bool activates = epilogue != Epilogue::none;
        const Tensor dy = device.random({kTokens, kWide}, dtype);
        const Tensor weight = device.random({kWide, kHidden}, dtype, 0.125);
        const std::int64_t width = epilogue == Epilogue::swiglu ? 2 * kHidden : kHidden;
        const Tensor pre = device.random({kTokens, width}, dtype, 2.0);
        Tensor dx = device.random({kTokens, width}, dtype);
        linear_dgrad(device.backend(), device.stream(),
                     {.dy = dy,
                      .weight = weight,
                      .epilogue = epilogue,
                      .pre_activation = activates ? &pre : nullptr,
                      .dx = dx,
                      .accumulate = accumulate});
        return Tensors{dx};
    };
    return {"linear_dgrad " + name, Product::gemm, run};
}

inline Tensors linear_wgrad_case(Device& device, DType dtype) {
    const Tensor x = device.random({kTokens, kHidden}, dtype);
    const Tensor dy = device.random({kTokens, 2 * kWide}, dtype);
    Tensor dweight = device.random({2 * kWide, kHidden}, DType::f32);
    Tensor dbias = device.random({2 * kWide}, DType::f32);
    linear_wgrad(device.backend(), device.stream(), {.x = x, .dy = dy, .dweight = dweight, .dbias = &dbias});
    return {dweight, dbias};
}

inline OperationCase norm_forward_case(const std::string& name, NormKind kind) {
    auto run = [kind](Device& device, DType dtype) {
        const bool layer = kind == NormKind::layer;
        const Tensor x = device.random({kTokens, kHidden}, dtype);
        const Tensor gamma = device.random({kHidden}, dtype);
        const Tensor beta = device.random({kHidden}, dtype);
        Tensor y = device.make({kTokens, kHidden}, dtype);
        Tensor mean = device.make({kTokens}, DType::f32);
        Tensor rstd = device.make({kTokens}, DType::f32);
        norm_forward(device.backend(), device.stream(),
                     {.kind = kind,
                      .x = x,
                      .gamma = gamma,
                      .beta = layer ? &beta : nullptr,
                      .y = y,
                      .mean = layer ? &mean : nullptr,
                      .rstd = &rstd});
        return layer ? Tensors{y, mean, rstd} : Tensors{y, rstd};
    };
    return {"norm_forward " + name, Product::none, run};
}

inline OperationCase norm_backward_case(const std::string& name, NormKind kind) {
    auto run = [kind](Device& device, DType dtype) {
        const bool layer = kind == NormKind::layer;
        const Tensor x = device.random({kTokens, kHidden}, dtype);
        const Tensor dy = device.random({kTokens, kHidden}, dtype);
        const Tensor dresidual = device.random({kTokens, kHidden}, dtype);
        const Tensor gamma = device.random({kHidden}, dtype);
        const Tensor mean = device.random({kTokens}, DType::f32);
        const Tensor rstd = device.random({kTokens}, DType::f32);
        Tensor dx = device.make({kTokens, kHidden}, dtype);
        Tensor dgamma = device.random({kHidden}, DType::f32);
        Tensor dbeta = device.random({kHidden}, DType::f32);
        norm_backward(device.backend(), device.stream(),
                      {.kind = kind,
                       .x = x,
                       .dy = dy,
                       .gamma = gamma,
                       .mean = layer ? &mean : nullptr,
                       .rstd = rstd,
                       .dresidual = &dresidual,
                       .dx = dx,
                       .dgamma = dgamma,
                       .dbeta = layer ? &dbeta : nullptr});
        return Tensors{dx, dgamma, dbeta};
    };
    return {"norm_backward " + name, Product::none, run};
}

inline Tensors residual_norm_forward_case(Device& device, DType dtype) {
    const TokenMap map = tokens(device);
    const Tensor x = device.random({kTokens, kHidden}, dtype);
    const Tensor residual = device.random({kTokens, kHidden}, dtype);
    const Tensor row = device.random({kHidden}, dtype);
    Tensor out = device.make({kTokens, kHidden}, dtype);
    Tensor y = device.make({kTokens, kHidden}, dtype);
    Tensor mean = device.make({kTokens}, DType::f32);
    Tensor rstd = device.make({kTokens}, DType::f32);
    bias_dropout_residual_norm_forward(device.backend(), device.stream(),
                                       {.x = x,
                                        .bias = &row,
                                        .residual = residual,
                                        .dropout = dropout(0.3F),
                                        .tokens = map,
                                        .residual_out = out,
                                        .gamma = &row,
                                        .beta = &row,
                                        .y = &y,
                                        .mean = &mean,
                                        .rstd = &rstd});
    return {out, y, mean, rstd};
}

inline Tensors residual_norm_backward_case(Device& device, DType dtype) {
    const TokenMap map = tokens(device);
    const Tensor dy = device.random({kTokens, kHidden}, dtype);
    const Tensor path = device.random({kTokens, kHidden}, dtype);
    const Tensor sum = device.random({kTokens, kHidden}, dtype);
    const Tensor gamma = device.random({kHidden}, dtype);
    const Tensor mean = device.random({kTokens}, DType::f32);
    const Tensor rstd = device.random({kTokens}, DType::f32);
    Tensor dresidual = device.make({kTokens, kHidden}, dtype);
    Tensor dx = device.make({kTokens, kHidden}, dtype);
    Tensors sums;
    for (int i = 0; i < 3; ++i) sums.push_back(device.random({kHidden}, DType::f32));
    bias_dropout_residual_norm_backward(device.backend(), device.stream(),
                                        {.dy = &dy,
                                         .dresidual_out = &path,
                                         .dropout = dropout(0.3F),
                                         .tokens = map,
                                         .residual_out = &sum,
                                         .gamma = &gamma,
                                         .mean = &mean,
                                         .rstd = &rstd,
                                         .dresidual = dresidual,
                                         .dx = dx,
                                         .dbias = &sums[0],
                                         .dgamma = &sums[1],
                                         .dbeta = &sums[2]});
    return {dresidual, dx, sums[0], sums[1], sums[2]};
}

inline constexpr HeadLayout kHeads{.num_heads = 4, .num_kv_heads = 2, .head_dim = 38};

inline Tensors rotary_case(Device& device, DType dtype) {
    const TokenMap map = tokens(device);
    Tensor qkv = device.random({kTokens, kHeads.packed_width()}, dtype);
    rotary(device.backend(), device.stream(), {.heads = kHeads, .tokens = map, .qkv = qkv});
    return {qkv};
}

inline OperationCase attention_case(const std::string& name, float probability) {
    auto run = [probability](Device& device, DType dtype) {
        const TokenMap map = tokens(device);
        const Tensor qkv = device.random({kTokens, kHeads.packed_width()}, dtype);
        const std::int64_t width = kHeads.num_heads * kHeads.head_dim;
        Tensor out = device.make({kTokens, width}, dtype);
        Tensor lse = device.make({kHeads.num_heads, kTokens}, DType::f32);
        attention_forward(device.backend(), device.stream(),
                          {.heads = kHeads,
                           .scale = 0.25F,
                           .tokens = map,
                           .dropout = dropout(probability),
                           .qkv = qkv,
                           .out = out,
                           .lse = &lse});
        // Any `out` gives a defined gradient; one that all dtypes hold exactly lets them be compared.
        const Tensor any_out = device.random({kTokens, width}, dtype);
        const Tensor dout = device.random({kTokens, width}, dtype);
        Tensor dqkv = device.make(qkv.shape(), dtype);
        attention_backward(device.backend(), device.stream(),
                           {.heads = kHeads,
                            .scale = 0.25F,
                            .tokens = map,
                            .dropout = dropout(probability),
                            .qkv = qkv,
                            .out = any_out,
                            .lse = lse,
                            .dout = dout,
                            .dqkv = dqkv});
        return Tensors{out, lse, dqkv};
    };
    return {"attention " + name, Product::none, run};
}

inline Tensors cached_attention_case(Device& device, DType dtype) {
    const Tensor qkv = device.random({3, kHeads.packed_width()}, dtype);
    Tensor k_cache = device.random({kTokens, kHeads.num_kv_heads * kHeads.head_dim}, dtype);
    Tensor v_cache = device.random(k_cache.shape(), dtype);
    Tensor out = device.make({3, kHeads.num_heads * kHeads.head_dim}, dtype);
    cached_attention(device.backend(), device.stream(),
                     {.heads = kHeads,
                      .scale = 0.25F,
                      .past = 60,
                      .qkv = qkv,
                      .k_cache = k_cache,
                      .v_cache = v_cache,
                      .out = out});
    return {out, k_cache, v_cache};
}

inline Tensors embedding_case(Device& device, DType dtype) {
    const TokenMap map = tokens(device);
    std::vector<std::int32_t> ids;
    for (std::int32_t i = 0; i < kTokens; ++i) ids.push_back(i * i % 17);
    const Tensor id_tensor = device.of(ids);
    const Tensor word = device.random({17, 3 * kHidden}, dtype);
    const Tensor positions = device.random({70, 3 * kHidden}, dtype);
    const Tensor dy = device.random({kTokens, 3 * kHidden}, dtype);
    Tensor y = device.make({kTokens, 3 * kHidden}, dtype);
    Tensor dword = device.random({17, 3 * kHidden}, DType::f32);
    Tensor dpositions = device.random({70, 3 * kHidden}, DType::f32);
    embedding_forward(
            device.backend(), device.stream(),
            {.tokens = id_tensor, .word = word, .positions = &positions, .map = map, .dropout = dropout(0.3F), .y = y});
    embedding_backward(device.backend(), device.stream(),
                       {.tokens = id_tensor,
                        .map = map,
                        .dropout = dropout(0.3F),
                        .dy = dy,
                        .dword = dword,
                        .dpositions = &dpositions});
    return {y, dword, dpositions};
}

inline Tensors cross_entropy_case(Device& device, DType dtype) {
    constexpr std::int64_t kVocab = 509;
    Tensor logits = device.random({kTokens, 512}, dtype, 8.0);
    std::vector<std::int32_t> ids;
    for (std::int32_t i = 0; i < kTokens; ++i) ids.push_back(i % 5 == 0 ? -1 : i * 7);
    const Tensor targets = device.of(ids);
    Tensors rows;
    for (int i = 0; i < 4; ++i) rows.push_back(device.make({kTokens}, DType::f32));
    cross_entropy_statistics(device.backend(), device.stream(),
                             {.logits = logits,
                              .targets = targets,
                              .num_valid = kVocab,
                              .vocab_size = kVocab,
                              .maximum = rows[0],
                              .sum_exp = rows[1],
                              .target_logit = rows[2]});
    cross_entropy_finish(device.backend(), device.stream(),
                         {.logits = logits,
                          .targets = targets,
                          .num_valid = kVocab,
                          .maximum = rows[0],
                          .sum_exp = rows[1],
                          .target_logit = rows[2],
                          .grad_scale = 0.125F,
                          .losses = rows[3]});
    rows.push_back(logits);
    return rows;
}

inline Tensors flat_case(Device& device, DType dtype) {
    Tensors state;
    for (int i = 0; i < 3; ++i) state.push_back(device.random({kFlat}, DType::f32));
    state.push_back(device.filled({kFlat}, DType::f32, 0.5));
    Tensor model = device.make({kFlat}, dtype);
    adamw(device.backend(), device.stream(),
          {.main_param = state[0],
           .main_grad = state[1],
           .exp_avg = state[2],
           .exp_avg_sq = state[3],
           .model_param = dtype == DType::f32 ? nullptr : &model,
           .lr = 1e-3,
           .weight_decay = 0.1,
           .step = 3});
    const Tensor x = device.random({kFlat}, DType::f32);
    Tensor partial = device.make({(kFlat + kNormBlock - 1) / kNormBlock}, DType::f32);
    sum_of_squares(device.backend(), device.stream(), x, partial);
    state.push_back(partial);
    Tensor narrow = device.make({kFlat}, dtype);
    cast(device.backend(), device.stream(), x, narrow);
    Tensor y = device.random({kFlat}, dtype);
    add(device.backend(), device.stream(), narrow, y);
    scale(device.backend(), device.stream(), y, 0.5F);
    state.push_back(y);
    state.push_back(device.of(std::vector<float>{static_cast<float>(sum(device.backend(), device.stream(), x))}));
    return state;
}

}  // namespace cases

inline std::vector<OperationCase> operation_cases() {
    using namespace cases;
    return {linear_forward_case("none", Epilogue::none),
            linear_forward_case("bias", Epilogue::bias),
            linear_forward_case("bias_gelu", Epilogue::bias_gelu),
            linear_forward_case("swiglu", Epilogue::swiglu),
            linear_dgrad_case("none", Epilogue::none, false),
            linear_dgrad_case("accumulate", Epilogue::none, true),
            linear_dgrad_case("bias_gelu", Epilogue::bias_gelu, false),
            linear_dgrad_case("swiglu", Epilogue::swiglu, false),
            {"linear_wgrad", Product::gemm, linear_wgrad_case},
            norm_forward_case("layer", NormKind::layer),
            norm_forward_case("rms", NormKind::rms),
            norm_backward_case("layer", NormKind::layer),
            norm_backward_case("rms", NormKind::rms),
            {"bias_dropout_residual_norm_forward", Product::none, residual_norm_forward_case},
            {"bias_dropout_residual_norm_backward", Product::none, residual_norm_backward_case},
            {"rotary", Product::none, rotary_case},
            attention_case("without dropout", 0.0F),
            attention_case("with dropout", 0.3F),
            {"cached_attention", Product::none, cached_attention_case},
            {"embedding", Product::none, embedding_case},
            {"cross_entropy", Product::none, cross_entropy_case},
            {"flat", Product::none, flat_case}};
}

/// Every element within `relative` of the tensor's largest (at least 1).
inline void expect_near_largest(const std::string& what, const core::Tensor& actual, const core::Tensor& expected,
                                double relative) {
    const std::vector<double> want = support::values(expected);
    double largest = 1;
    for (const double value : want) largest = std::max(largest, std::abs(value));
    for (std::int64_t i = 0; i < actual.numel(); ++i) {
        ASSERT_NEAR(support::element(actual, i), want[static_cast<std::size_t>(i)], relative * largest)
                << what << " at " << i;
    }
}

}  // namespace tessera::kernels

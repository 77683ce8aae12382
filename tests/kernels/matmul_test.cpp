#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include "support/tensor_support.h"

namespace tessera::kernels {
namespace {

using core::DType;
using support::Doubles;
using support::TestDevice;

struct Case {
    std::int64_t tokens, inputs, outputs;
    Epilogue epilogue;
};

double gelu(double u) {
    return 0.5 * u * (1 + std::tanh(std::sqrt(2 / M_PI) * (u + 0.044715 * u * u * u)));
}
double silu(double g) {
    return g / (1 + std::exp(-g));
}

/// pre = x·wᵀ (+ b)
Doubles pre_activation(const Case& c, const Doubles& x, const Doubles& w, const Doubles& b) {
    Doubles pre;
    for (std::int64_t t = 0; t < c.tokens; ++t) {
        for (std::int64_t o = 0; o < c.outputs; ++o) {
            double sum = b.empty() ? 0.0 : b[static_cast<std::size_t>(o)];
            for (std::int64_t i = 0; i < c.inputs; ++i) {
                sum += x[static_cast<std::size_t>(t * c.inputs + i)] * w[static_cast<std::size_t>(o * c.inputs + i)];
            }
            pre.push_back(sum);
        }
    }
    return pre;
}

Doubles activate(Epilogue epilogue, const Doubles& pre, std::int64_t width) {
    if (epilogue == Epilogue::bias_gelu) {
        Doubles y;
        for (const double u : pre) y.push_back(gelu(u));
        return y;
    }
    if (epilogue != Epilogue::swiglu) return pre;
    Doubles y;
    const std::int64_t half = width / 2;
    for (std::size_t row = 0; row < pre.size(); row += static_cast<std::size_t>(width)) {
        for (std::size_t i = 0; i < static_cast<std::size_t>(half); ++i) {
            y.push_back(silu(pre[row + i]) * pre[row + static_cast<std::size_t>(half) + i]);
        }
    }
    return y;
}

class Linear : public testing::TestWithParam<std::tuple<int, DType>> {
protected:
    static constexpr Case kCases[] = {
            {1, 1, 1, Epilogue::none},     {5, 19, 7, Epilogue::none},       {16, 76, 131, Epilogue::bias},
            {3, 8, 1, Epilogue::bias},     {7, 13, 29, Epilogue::bias_gelu}, {33, 64, 48, Epilogue::bias_gelu},
            {5, 12, 22, Epilogue::swiglu}, {17, 31, 2, Epilogue::swiglu},    {2, 9, 1030, Epilogue::bias}};
    Case c_ = kCases[std::get<0>(GetParam())];
    DType dtype_ = std::get<1>(GetParam());
    TestDevice device_;
};
constexpr int kCaseCount = 9;

TEST_P(Linear, ForwardMatchesADoubleLoop) {
    const Doubles x = support::pattern(c_.tokens * c_.inputs, 1);
    const Doubles w = support::pattern(c_.outputs * c_.inputs, 2);
    const bool biased = c_.epilogue == Epilogue::bias || c_.epilogue == Epilogue::bias_gelu;
    const Doubles b = biased ? support::pattern(c_.outputs, 3) : Doubles{};
    const Doubles pre = pre_activation(c_, x, w, b);
    const std::int64_t width = c_.epilogue == Epilogue::swiglu ? c_.outputs / 2 : c_.outputs;
    core::Tensor xt = device_.tensor({c_.tokens, c_.inputs}, x, dtype_);
    core::Tensor wt = device_.tensor({c_.outputs, c_.inputs}, w, dtype_);
    core::Tensor bt = biased ? device_.tensor({c_.outputs}, b, dtype_) : core::Tensor{};
    core::Tensor yt = device_.tensor({c_.tokens, width}, dtype_);
    core::Tensor pt = device_.tensor({c_.tokens, c_.outputs}, dtype_);
    const bool activates = c_.epilogue == Epilogue::bias_gelu || c_.epilogue == Epilogue::swiglu;
    const double tolerance = 4 * support::storage_epsilon(dtype_) + 0x1p-22 * static_cast<double>(c_.inputs);
    for (const bool keep_pre : {true, false}) {
        linear_forward(*device_.backend, device_.stream,
                       {.x = xt,
                        .weight = wt,
                        .bias = biased ? &bt : nullptr,
                        .epilogue = c_.epilogue,
                        .y = yt,
                        .pre_activation = activates && keep_pre ? &pt : nullptr});
        support::expect_close(support::doubles(yt), activate(c_.epilogue, pre, c_.outputs), tolerance, "y");
    }
    if (activates) support::expect_close(support::doubles(pt), pre, tolerance, "pre");
    device_.check_guards();
}

TEST_P(Linear, DgradMatchesCentralDifferences) {
    // The layer above: dy·w flows into act'(pre) of the layer below; c_.inputs is the width of what lies below.
    const Epilogue below = c_.epilogue == Epilogue::bias ? Epilogue::none : c_.epilogue;
    const std::int64_t width = below == Epilogue::swiglu ? 2 * c_.inputs : c_.inputs;
    const Doubles pre = support::pattern(c_.tokens * width, 4, 2.0);
    const Doubles w = support::pattern(c_.outputs * c_.inputs, 5);
    const Doubles dy = support::pattern(c_.tokens * c_.outputs, 6);
    const Doubles expected = support::central_differences(
            [&](const Doubles& p) { return support::dot(dy, pre_activation(c_, activate(below, p, width), w, {})); },
            pre);
    core::Tensor wt = device_.tensor({c_.outputs, c_.inputs}, w, dtype_);
    core::Tensor dyt = device_.tensor({c_.tokens, c_.outputs}, dy, dtype_);
    core::Tensor pt = device_.tensor({c_.tokens, width}, pre, dtype_);
    core::Tensor dxt = device_.tensor({c_.tokens, width}, dtype_);
    const double tolerance = 8 * support::storage_epsilon(dtype_) + 0x1p-21 * static_cast<double>(c_.outputs) + 1e-6;
    const bool activates = below != Epilogue::none;
    auto run = [&](core::Tensor& dx, bool accumulate) {
        linear_dgrad(*device_.backend, device_.stream,
                     {.dy = dyt,
                      .weight = wt,
                      .epilogue = below,
                      .pre_activation = activates ? &pt : nullptr,
                      .dx = dx,
                      .accumulate = accumulate});
    };
    run(dxt, false);
    support::expect_close(support::doubles(dxt), expected, tolerance, "dx");
    if (activates) {
        run(pt, false);  // in place of the pre-activation
        support::expect_close(support::doubles(pt), expected, tolerance, "dx in place");
    } else {
        run(dxt, true);
        Doubles twice = expected;
        for (double& value : twice) value *= 2;
        support::expect_close(support::doubles(dxt), twice, 2 * tolerance, "dx accumulated");
    }
    device_.check_guards();
}

TEST_P(Linear, WgradAddsTheOuterProducts) {
    const Doubles x = support::pattern(c_.tokens * c_.inputs, 7);
    const Doubles dy = support::pattern(c_.tokens * c_.outputs, 8);
    const Doubles start = support::pattern(c_.outputs * c_.inputs, 9);
    const Doubles bias_start = support::pattern(c_.outputs, 10);
    Doubles expected = support::central_differences(
            [&](const Doubles& w) { return support::dot(dy, pre_activation(c_, x, w, {})); },
            Doubles(start.size(), 0.0), 0.5);
    Doubles bias_expected = bias_start;
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += start[i];
    for (std::size_t i = 0; i < dy.size(); ++i) bias_expected[i % static_cast<std::size_t>(c_.outputs)] += dy[i];
    core::Tensor xt = device_.tensor({c_.tokens, c_.inputs}, x, dtype_);
    core::Tensor dyt = device_.tensor({c_.tokens, c_.outputs}, dy, dtype_);
    core::Tensor dwt = device_.tensor({c_.outputs, c_.inputs}, start);
    core::Tensor dbt = device_.tensor({c_.outputs}, bias_start);
    linear_wgrad(*device_.backend, device_.stream, {.x = xt, .dy = dyt, .dweight = dwt, .dbias = &dbt});
    // Main gradients are f32 whatever the storage, and the inputs are exact in every storage.
    support::expect_close(support::doubles(dwt), expected, 0x1p-20 * static_cast<double>(c_.tokens + 1), "dweight");
    support::expect_close(support::doubles(dbt), bias_expected, 0x1p-22 * static_cast<double>(c_.tokens + 1), "dbias");
    device_.check_guards();
}

INSTANTIATE_TEST_SUITE_P(Shapes, Linear,
                         testing::Combine(testing::Range(0, kCaseCount),
                                          testing::Values(DType::f32, DType::bf16, DType::f16)));

TEST(LinearChecks, NameTheOperandAndBothShapes) {
    TestDevice device;
    core::Tensor x = device.zeros({4, 6});
    core::Tensor w = device.zeros({5, 7});
    core::Tensor y = device.zeros({4, 5});
    try {
        linear_forward(*device.backend, device.stream, {.x = x, .weight = w, .y = y});
        FAIL() << "accepted";
    } catch (const core::ShapeError& error) {
        EXPECT_STREQ(error.what(), "linear_forward: weight has shape [5, 7], expected [5, 6]");
    }
    core::Tensor good = device.zeros({5, 6}, DType::bf16);
    EXPECT_THROW(linear_forward(*device.backend, device.stream, {.x = x, .weight = good, .y = y}), core::ShapeError);
    core::Tensor odd = device.zeros({5, 6});
    core::Tensor half = device.zeros({4, 2});
    EXPECT_THROW(linear_forward(*device.backend, device.stream,
                                {.x = x, .weight = odd, .epilogue = Epilogue::swiglu, .y = half}),
                 core::ShapeError);
    EXPECT_THROW(
            linear_forward(*device.backend, device.stream, {.x = x, .weight = odd, .epilogue = Epilogue::bias, .y = y}),
            core::ShapeError);
}

TEST(LinearCost, IsTwoOperationsAMultiplyAdd) {
    TestDevice device;
    core::Tensor x = device.zeros({4, 6});
    core::Tensor w = device.zeros({128, 6});
    core::Tensor y = device.zeros({4, 128});
    linear_forward(*device.backend, device.stream, {.x = x, .weight = w, .y = y});
    EXPECT_EQ(device.backend->account()[Op::linear_forward].flops, 2.0 * 4 * 6 * 128);
    linear_forward(*device.backend, device.stream, {.x = x, .weight = w, .y = y, .counted_outputs = 61});
    EXPECT_EQ(device.backend->account()[Op::linear_forward].flops, 2.0 * 4 * 6 * (128 + 61));
    EXPECT_EQ(device.backend->account()[Op::linear_forward].calls, 2);
}

}  // namespace
}  // namespace tessera::kernels

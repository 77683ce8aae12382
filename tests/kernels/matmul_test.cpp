#include "kernels/matmul.h"

#include "support/tensor_support.h"

namespace tessera::kernels {
namespace {

using core::DType;
using core::Tensor;
using support::expect_close;
using support::expect_same_bits;
using support::values;
using Values = std::vector<double>;

struct LinearSize {
    std::int64_t tokens, inputs, outputs;
    std::string name(DType dtype) const {
        return fmt::format("{}x{}x{} {}", tokens, inputs, outputs, core::name_of(dtype));
    }
};

// 1030 rows of weight: more than two panels of a 16-bit product; rows of 1024 floats: the products that are packed
// here and not by the library, in two depths.
const std::vector<LinearSize> kSizes = {{1, 1, 2},    {1, 19, 6},    {5, 76, 38},    {13, 131, 34},
                                        {37, 64, 48}, {3, 40, 1030}, {7, 1024, 1030}};

double gelu(double u) {
    return 0.5 * u * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (u + 0.044715 * u * u * u)));
}

double silu(double u) {
    return u / (1.0 + std::exp(-u));
}

double slope(double (*f)(double), double u) {
    constexpr double kStep = 1e-6;
    return (f(u + kStep) - f(u - kStep)) / (2.0 * kStep);
}

/// c [rows, columns] = a [rows, inner] · b, b's element (p, j) = b[p·b_row + j·b_column].
Values product(const Values& a, const Values& b, std::int64_t rows, std::int64_t inner, std::int64_t columns,
               std::int64_t b_row, std::int64_t b_column) {
    Values c(static_cast<std::size_t>(rows * columns));
    for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < columns; ++j) {
            double sum = 0;
            for (std::int64_t p = 0; p < inner; ++p) {
                sum += a[static_cast<std::size_t>(i * inner + p)] *
                       b[static_cast<std::size_t>(p * b_row + j * b_column)];
            }
            c[static_cast<std::size_t>(i * columns + j)] = sum;
        }
    }
    return c;
}

class MatmulTest : public support::KernelTest {
protected:
    /// Runs body for every size and floating dtype.
    template <typename Body>
    void for_cases(const Body& body) {
        for (const LinearSize& size : kSizes) {
            for (const DType dtype : support::kFloatingDTypes) body(size, dtype);
        }
    }
    void forward(const LinearForwardArgs& args) { linear_forward(device.backend(), device.stream(), args); }
    void dgrad(const LinearDgradArgs& args) { linear_dgrad(device.backend(), device.stream(), args); }
    void wgrad(const LinearWgradArgs& args) { linear_wgrad(device.backend(), device.stream(), args); }
};

TEST_F(MatmulTest, ForwardWithAndWithoutBias) {
    for_cases([&](const LinearSize& s, DType dtype) {
        const Tensor x = device.random({s.tokens, s.inputs}, dtype);
        const Tensor weight = device.random({s.outputs, s.inputs}, dtype);
        const Tensor bias = device.random({s.outputs}, dtype);
        Tensor y = device.make({s.tokens, s.outputs}, dtype);
        Values expected = product(values(x), values(weight), s.tokens, s.inputs, s.outputs, 1, s.inputs);
        forward({.x = x, .weight = weight, .y = y});
        const support::Tolerance tolerance{.terms = static_cast<double>(s.inputs + 1)};
        expect_close("none " + s.name(dtype), y, expected, tolerance);
        Tensor with_bias = device.make({s.tokens, s.outputs}, dtype);
        forward({.x = x, .weight = weight, .bias = &bias, .epilogue = Epilogue::bias, .y = with_bias});
        for (std::size_t i = 0; i < expected.size(); ++i) {
            expected[i] += support::element(bias, static_cast<std::int64_t>(i) % s.outputs);
        }
        expect_close("bias " + s.name(dtype), with_bias, expected, tolerance);
    });
}

TEST_F(MatmulTest, ForwardBiasGelu) {
    for_cases([&](const LinearSize& s, DType dtype) {
        const Tensor x = device.random({s.tokens, s.inputs}, dtype);
        const Tensor weight = device.random({s.outputs, s.inputs}, dtype);
        const Tensor bias = device.random({s.outputs}, dtype);
        Tensor y = device.make({s.tokens, s.outputs}, dtype);
        Tensor pre = device.make({s.tokens, s.outputs}, dtype);
        forward({.x = x,
                 .weight = weight,
                 .bias = &bias,
                 .epilogue = Epilogue::bias_gelu,
                 .y = y,
                 .pre_activation = &pre});
        Values expected = product(values(x), values(weight), s.tokens, s.inputs, s.outputs, 1, s.inputs);
        for (std::size_t i = 0; i < expected.size(); ++i) {
            expected[i] += support::element(bias, static_cast<std::int64_t>(i) % s.outputs);
        }
        expect_close("pre " + s.name(dtype), pre, expected, {.terms = static_cast<double>(s.inputs + 1)});
        Values activated = values(pre);
        double largest = 1;
        for (double& u : activated) {
            largest = std::max(largest, std::abs(u));
            u = gelu(u);
        }
        expect_close("gelu " + s.name(dtype), y, activated, {.terms = 8, .magnitude = largest});
        Tensor alone = device.make({s.tokens, s.outputs}, dtype);
        forward({.x = x, .weight = weight, .bias = &bias, .epilogue = Epilogue::bias_gelu, .y = alone});
        expect_same_bits("gelu without pre_activation " + s.name(dtype), alone, y);
    });
}

TEST_F(MatmulTest, ForwardSwiglu) {
    for_cases([&](const LinearSize& s, DType dtype) {
        const std::int64_t half = s.outputs / 2;
        const Tensor x = device.random({s.tokens, s.inputs}, dtype);
        const Tensor weight = device.random({s.outputs, s.inputs}, dtype);
        Tensor y = device.make({s.tokens, half}, dtype);
        Tensor pre = device.make({s.tokens, s.outputs}, dtype);
        forward({.x = x, .weight = weight, .epilogue = Epilogue::swiglu, .y = y, .pre_activation = &pre});
        expect_close("pre " + s.name(dtype), pre,
                     product(values(x), values(weight), s.tokens, s.inputs, s.outputs, 1, s.inputs),
                     {.terms = static_cast<double>(s.inputs)});
        Values expected(static_cast<std::size_t>(s.tokens * half));
        double largest = 1;
        for (std::int64_t t = 0; t < s.tokens; ++t) {
            for (std::int64_t f = 0; f < half; ++f) {
                const double value = silu(support::element(pre, t * s.outputs + f)) *
                                     support::element(pre, t * s.outputs + half + f);
                expected[static_cast<std::size_t>(t * half + f)] = value;
                largest = std::max(largest, std::abs(value));
            }
        }
        expect_close("swiglu " + s.name(dtype), y, expected, {.terms = 8, .magnitude = largest});
        Tensor alone = device.make({s.tokens, half}, dtype);
        forward({.x = x, .weight = weight, .epilogue = Epilogue::swiglu, .y = alone});
        expect_same_bits("swiglu without pre_activation " + s.name(dtype), alone, y);
    });
}

TEST_F(MatmulTest, InputGradientAndItsAccumulation) {
    for_cases([&](const LinearSize& s, DType dtype) {
        const Tensor dy = device.random({s.tokens, s.outputs}, dtype);
        const Tensor weight = device.random({s.outputs, s.inputs}, dtype);
        Tensor dx = device.make({s.tokens, s.inputs}, dtype);
        Values expected = product(values(dy), values(weight), s.tokens, s.outputs, s.inputs, s.inputs, 1);
        const support::Tolerance tolerance{.terms = static_cast<double>(s.outputs + 1)};
        dgrad({.dy = dy, .weight = weight, .dx = dx});
        expect_close("dx " + s.name(dtype), dx, expected, tolerance);
        Tensor sum = device.random({s.tokens, s.inputs}, dtype);
        const Values before = values(sum);
        dgrad({.dy = dy, .weight = weight, .dx = sum, .accumulate = true});
        for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += before[i];
        expect_close("dx += " + s.name(dtype), sum, expected, tolerance);
    });
}

TEST_F(MatmulTest, InputGradientThroughGelu) {
    for_cases([&](const LinearSize& s, DType dtype) {
        const Tensor dy = device.random({s.tokens, s.outputs}, dtype);
        const Tensor weight = device.random({s.outputs, s.inputs}, dtype);
        Tensor pre = device.random({s.tokens, s.inputs}, dtype, 4.0);
        Tensor dx = device.make({s.tokens, s.inputs}, dtype);
        Values expected = product(values(dy), values(weight), s.tokens, s.outputs, s.inputs, s.inputs, 1);
        double largest = 1;
        for (std::size_t i = 0; i < expected.size(); ++i) {
            largest = std::max(largest, std::abs(expected[i]));
            expected[i] *= slope(gelu, support::element(pre, static_cast<std::int64_t>(i)));
        }
        dgrad({.dy = dy, .weight = weight, .epilogue = Epilogue::bias_gelu, .pre_activation = &pre, .dx = dx});
        expect_close("dx " + s.name(dtype), dx, expected,
                     {.terms = static_cast<double>(s.outputs + 16), .magnitude = largest});
        dgrad({.dy = dy, .weight = weight, .epilogue = Epilogue::bias_gelu, .pre_activation = &pre, .dx = pre});
        expect_same_bits("dx in place of pre " + s.name(dtype), pre, dx);
    });
}

TEST_F(MatmulTest, InputGradientThroughSwiglu) {
    for_cases([&](const LinearSize& s, DType dtype) {
        const std::int64_t width = 2 * s.inputs;
        const Tensor dy = device.random({s.tokens, s.outputs}, dtype);
        const Tensor weight = device.random({s.outputs, s.inputs}, dtype);
        Tensor pre = device.random({s.tokens, width}, dtype, 4.0);
        Tensor dx = device.make({s.tokens, width}, dtype);
        const Values through = product(values(dy), values(weight), s.tokens, s.outputs, s.inputs, s.inputs, 1);
        Values expected(static_cast<std::size_t>(s.tokens * width));
        double largest = 1;
        for (std::int64_t t = 0; t < s.tokens; ++t) {
            for (std::int64_t i = 0; i < s.inputs; ++i) {
                const double gate = support::element(pre, t * width + i);
                const double up = support::element(pre, t * width + s.inputs + i);
                const double d = through[static_cast<std::size_t>(t * s.inputs + i)];
                expected[static_cast<std::size_t>(t * width + i)] = d * up * slope(silu, gate);
                expected[static_cast<std::size_t>(t * width + s.inputs + i)] = d * silu(gate);
                largest = std::max(largest, 4.0 * std::abs(d));
            }
        }
        dgrad({.dy = dy, .weight = weight, .epilogue = Epilogue::swiglu, .pre_activation = &pre, .dx = dx});
        expect_close("dx " + s.name(dtype), dx, expected,
                     {.terms = static_cast<double>(s.outputs + 16), .magnitude = largest});
        dgrad({.dy = dy, .weight = weight, .epilogue = Epilogue::swiglu, .pre_activation = &pre, .dx = pre});
        expect_same_bits("dx in place of pre " + s.name(dtype), pre, dx);
    });
}

TEST_F(MatmulTest, WeightGradientAddsToWhatIsThere) {
    for_cases([&](const LinearSize& s, DType dtype) {
        const Tensor x = device.random({s.tokens, s.inputs}, dtype);
        const Tensor dy = device.random({s.tokens, s.outputs}, dtype);
        Tensor dweight = device.random({s.outputs, s.inputs}, DType::f32);
        Tensor dbias = device.random({s.outputs}, DType::f32);
        Values weight_sum = values(dweight);
        Values bias_sum = values(dbias);
        const Values xs = values(x);
        const Values ds = values(dy);
        for (std::int64_t t = 0; t < s.tokens; ++t) {
            for (std::int64_t o = 0; o < s.outputs; ++o) {
                const double d = ds[static_cast<std::size_t>(t * s.outputs + o)];
                bias_sum[static_cast<std::size_t>(o)] += d;
                for (std::int64_t i = 0; i < s.inputs; ++i) {
                    weight_sum[static_cast<std::size_t>(o * s.inputs + i)] +=
                            d * xs[static_cast<std::size_t>(t * s.inputs + i)];
                }
            }
        }
        Tensor without_bias = device.copy_of(dweight);
        wgrad({.x = x, .dy = dy, .dweight = dweight, .dbias = &dbias});
        const support::Tolerance tolerance{.terms = static_cast<double>(s.tokens + 1)};
        expect_close("dweight " + s.name(dtype), dweight, weight_sum, tolerance);
        expect_close("dbias " + s.name(dtype), dbias, bias_sum, tolerance);
        wgrad({.x = x, .dy = dy, .dweight = without_bias});
        expect_close("dweight without dbias " + s.name(dtype), without_bias, weight_sum, tolerance);
    });
}

TEST_F(MatmulTest, GeluOfLargeValuesIsFinite) {
    const Tensor x = device.filled({1, 1}, DType::f32, 1.0);
    Tensor weight = device.make({4, 1}, DType::f32);
    const Values extremes = {1e4, -1e4, 30.0, -30.0};
    for (std::int64_t i = 0; i < 4; ++i) support::set_element(weight, i, extremes[static_cast<std::size_t>(i)]);
    const Tensor bias = device.zeros({4}, DType::f32);
    Tensor y = device.make({1, 4}, DType::f32);
    forward({.x = x, .weight = weight, .bias = &bias, .epilogue = Epilogue::bias_gelu, .y = y});
    expect_close("gelu", y, {1e4, 0.0, 30.0, 0.0}, {.terms = 1});
}

}  // namespace
}  // namespace tessera::kernels

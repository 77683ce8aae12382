#include <gtest/gtest.h>

#include <limits>

#include "kernels/optimizer.h"
#include "kernels/reduction.h"
#include "support/tensor_support.h"

namespace tessera::kernels {
namespace {

using core::DType;
using support::Doubles;
using support::TestDevice;

class Flat : public testing::TestWithParam<std::int64_t> {};

TEST_P(Flat, AdamWIsThePublishedUpdate) {
    const std::int64_t n = GetParam();
    for (const DType model : {DType::f32, DType::bf16, DType::f16}) {
        TestDevice device;
        Doubles p = support::pattern(n, 1);
        Doubles m(p.size(), 0.0);
        Doubles v(p.size(), 0.0);
        core::Tensor param = device.tensor({n}, p);
        core::Tensor exp_avg = device.zeros({n});
        core::Tensor exp_avg_sq = device.zeros({n});
        core::Tensor values = device.tensor({n}, model);
        for (std::int64_t step = 1; step <= 5; ++step) {
            const Doubles g = support::pattern(n, static_cast<std::uint32_t>(100 + step));
            core::Tensor grad = device.tensor({n}, g);
            const bool keep = step % 2 == 0;
            adamw(*device.backend, device.stream,
                  {.main_param = param,
                   .main_grad = grad,
                   .exp_avg = exp_avg,
                   .exp_avg_sq = exp_avg_sq,
                   .model_param = model == DType::f32 ? nullptr : &values,
                   .lr = 0.01,
                   .beta1 = 0.9,
                   .beta2 = 0.95,
                   .eps = 1e-8,
                   .weight_decay = 0.1,
                   .grad_scale = 0.5,
                   .step = step,
                   .after = keep ? GradientAfterStep::keep : GradientAfterStep::zero});
            for (std::size_t i = 0; i < p.size(); ++i) {
                const double scaled = 0.5 * g[i];
                m[i] = 0.9 * m[i] + 0.1 * scaled;
                v[i] = 0.95 * v[i] + 0.05 * scaled * scaled;
                const double t = static_cast<double>(step);
                p[i] = p[i] * (1 - 0.01 * 0.1) -
                       0.01 * (m[i] / (1 - std::pow(0.9, t))) / (std::sqrt(v[i] / (1 - std::pow(0.95, t))) + 1e-8);
                EXPECT_EQ(support::doubles(grad)[i], keep ? g[i] : 0.0);
            }
            support::expect_close(support::doubles(param), p, 2e-6, "p");
            support::expect_close(support::doubles(exp_avg), m, 1e-6, "exp_avg");
            support::expect_close(support::doubles(exp_avg_sq), v, 1e-6, "exp_avg_sq");
            for (std::int64_t i = 0; i < n && model == DType::bf16; ++i) {
                ASSERT_EQ(values.data<core::bf16>()[i].bits, core::to_bf16(param.data<float>()[i]).bits);
            }
            for (std::int64_t i = 0; i < n && model == DType::f16; ++i) {
                ASSERT_EQ(values.data<core::f16>()[i].bits, core::to_f16(param.data<float>()[i]).bits);
            }
        }
        device.check_guards();
    }
}

TEST_P(Flat, ReductionsAndElementwise) {
    const std::int64_t n = GetParam();
    TestDevice device;
    const Doubles x = support::pattern(n, 1);
    core::Tensor xt = device.tensor({n}, x);
    const std::int64_t blocks = (n + kNormBlock - 1) / kNormBlock;
    core::Tensor partial = device.tensor({blocks});
    sum_of_squares(*device.backend, device.stream, xt, partial);
    Doubles expected(static_cast<std::size_t>(blocks), 0.0);
    double total = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        expected[i / kNormBlock] += x[i] * x[i];
        total += x[i];
    }
    support::expect_close(support::doubles(partial), expected, 1e-5, "partial");
    EXPECT_NEAR(sum(*device.backend, device.stream, xt), total, 1e-6 * static_cast<double>(n));
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        core::Tensor narrow = device.tensor({n}, dtype);
        core::Tensor wide = device.tensor({n});
        cast(*device.backend, device.stream, xt, narrow);
        cast(*device.backend, device.stream, narrow, wide);
        EXPECT_EQ(support::doubles(wide), x);  // the pattern is exact in every storage
        core::Tensor y = device.tensor({n}, support::pattern(n, 2), dtype);
        Doubles sums = support::pattern(n, 2);
        for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += x[i];
        add(*device.backend, device.stream, narrow, y);
        support::expect_close(support::doubles(y), sums, 2 * support::storage_epsilon(dtype), "add");
        scale(*device.backend, device.stream, y, -0.5F);
        for (double& value : sums) value *= -0.5;
        support::expect_close(support::doubles(y), sums, 2 * support::storage_epsilon(dtype), "scale");
    }
    device.check_guards();
}

INSTANTIATE_TEST_SUITE_P(Sizes, Flat, testing::Values(1, 7, 19, 131, 1024, 1031, 10007));

TEST(Cast, RoundsToNearestEvenAndKeepsSpecialValues) {
    TestDevice device;
    std::vector<float> inputs = {0.0F,
                                 -0.0F,
                                 1.0F,
                                 65504.0F,
                                 65520.0F,
                                 1e-8F,
                                 3e-6F,
                                 6e-5F,
                                 -1e38F,
                                 std::numeric_limits<float>::infinity(),
                                 -std::numeric_limits<float>::infinity(),
                                 std::numeric_limits<float>::quiet_NaN(),
                                 std::bit_cast<float>(0x7f800001U)};
    for (std::uint32_t bits = 0x3f800000U; bits < 0x3f820000U; bits += 0x1fffU)
        inputs.push_back(std::bit_cast<float>(bits));
    const auto n = static_cast<std::int64_t>(inputs.size());
    core::Tensor x = device.tensor({n});
    x.copy_from_host(inputs.data());
    core::Tensor bf16 = device.tensor({n}, DType::bf16);
    core::Tensor f16 = device.tensor({n}, DType::f16);
    cast(*device.backend, device.stream, x, bf16);
    cast(*device.backend, device.stream, x, f16);
    for (std::int64_t i = 0; i < n; ++i) {
        const float value = inputs[static_cast<std::size_t>(i)];
        if (std::isnan(value)) {
            EXPECT_TRUE(std::isnan(core::to_f32(bf16.data<core::bf16>()[i])));
            EXPECT_TRUE(std::isnan(core::to_f32(f16.data<core::f16>()[i])));
        } else {
            EXPECT_EQ(bf16.data<core::bf16>()[i].bits, core::to_bf16(value).bits) << value;
            EXPECT_EQ(f16.data<core::f16>()[i].bits, core::to_f16(value).bits) << value;
        }
    }
}

TEST(SumOfSquares, ShowsANonFiniteElement) {
    TestDevice device;
    for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        Doubles x(3000, 1.0);
        core::Tensor xt = device.tensor({3000}, x);
        xt.data<float>()[2100] = bad;
        core::Tensor partial = device.tensor({3});
        sum_of_squares(*device.backend, device.stream, xt, partial);
        EXPECT_EQ(partial.data<float>()[0], 1024.0F);
        EXPECT_FALSE(std::isfinite(partial.data<float>()[2]));
    }
}

TEST(FlatThreads, NothingDependsOnThem) {
    support::expect_same_on_any_threads([] {
        TestDevice device;
        const std::int64_t n = 100003;
        core::Tensor x = device.tensor({n}, support::pattern(n, 1));
        core::Tensor partial = device.tensor({98});
        sum_of_squares(*device.backend, device.stream, x, partial);
        return std::vector<Doubles>{support::doubles(partial), {sum(*device.backend, device.stream, partial)}};
    });
}

}  // namespace
}  // namespace tessera::kernels

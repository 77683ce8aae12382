#include "kernels/optimizer.h"

#include "support/tensor_support.h"

namespace tessera::kernels {
namespace {

using core::DType;
using core::Tensor;
using support::expect_close;
using support::expect_same_bits;
using support::values;
using Values = std::vector<double>;

class OptimizerTest : public support::KernelTest {};

struct State {
    Tensor param, grad, exp_avg, exp_avg_sq;
};

State make_state(support::Device& device, std::int64_t count) {
    State state{device.random({count}, DType::f32), device.random({count}, DType::f32, 4.0),
                device.random({count}, DType::f32, 0.1), device.random({count}, DType::f32, 0.1)};
    for (std::int64_t i = 0; i < count; ++i) {
        support::set_element(state.exp_avg_sq, i, std::abs(support::element(state.exp_avg_sq, i)));
    }
    return state;
}

struct Settings {
    double lr, beta1, beta2, eps, weight_decay, grad_scale;
    std::int64_t step;
};

const std::vector<Settings> kSettings = {{1e-2, 0.9, 0.95, 1e-8, 0.1, 1.0, 1},
                                         {3e-4, 0.9, 0.999, 1e-8, 0.0, 0.25, 7},
                                         {6e-4, 0.8, 0.99, 1e-6, 0.01, 1.0 / 1024, 100000}};

/// Algorithm 2 of Loshchilov and Hutter in double, on the state as it was.
struct Expected {
    Values param, exp_avg, exp_avg_sq;
    Expected(const State& state, const Settings& s)
        : param(values(state.param)), exp_avg(values(state.exp_avg)), exp_avg_sq(values(state.exp_avg_sq)) {
        const Values grad = values(state.grad);
        const auto step = static_cast<double>(s.step);
        for (std::size_t i = 0; i < param.size(); ++i) {
            const double g = grad[i] * s.grad_scale;
            exp_avg[i] = s.beta1 * exp_avg[i] + (1 - s.beta1) * g;
            exp_avg_sq[i] = s.beta2 * exp_avg_sq[i] + (1 - s.beta2) * g * g;
            const double m = exp_avg[i] / (1 - std::pow(s.beta1, step));
            const double v = exp_avg_sq[i] / (1 - std::pow(s.beta2, step));
            param[i] = param[i] * (1 - s.lr * s.weight_decay) - s.lr * m / (std::sqrt(v) + s.eps);
        }
    }
};

AdamWArgs args_of(State& state, const Settings& s) {
    return {.main_param = state.param,
            .main_grad = state.grad,
            .exp_avg = state.exp_avg,
            .exp_avg_sq = state.exp_avg_sq,
            .lr = s.lr,
            .beta1 = s.beta1,
            .beta2 = s.beta2,
            .eps = s.eps,
            .weight_decay = s.weight_decay,
            .grad_scale = s.grad_scale,
            .step = s.step};
}

TEST_F(OptimizerTest, AdamWAgainstDoublePrecision) {
    for (const std::int64_t count : {1, 7, 19, 1025, 4099}) {
        for (const Settings& s : kSettings) {
            State state = make_state(device, count);
            const Expected expected(state, s);
            adamw(device.backend(), device.stream(), args_of(state, s));
            const std::string what = fmt::format("{} elements, step {}", count, s.step);
            expect_close("exp_avg " + what, state.exp_avg, expected.exp_avg, {.terms = 3, .magnitude = 0.5});
            // Relative: v is small where the gradient is, and its root divides.
            expect_close("exp_avg_sq " + what, state.exp_avg_sq, expected.exp_avg_sq, {.terms = 2, .magnitude = 1});
            expect_close("main_param " + what, state.param, expected.param, {.terms = 4});
            expect_close("main_grad " + what, state.grad, Values(static_cast<std::size_t>(count)), {});
        }
    }
}

TEST_F(OptimizerTest, SecondMomentIsExactForASlowBeta) {
    // From zero, v = (1 - beta2)·g²: the difference 1 - 0.999 must not be taken in f32 (3e-5 of it would be lost).
    const Tensor zero = device.zeros({19}, DType::f32);
    State state{device.copy_of(zero), device.random({19}, DType::f32), device.copy_of(zero), device.copy_of(zero)};
    const Values grad = values(state.grad);
    adamw(device.backend(), device.stream(), args_of(state, {1e-3, 0.9, 0.999, 1e-8, 0.0, 1.0, 1}));
    for (std::int64_t i = 0; i < 19; ++i) {
        const double g = grad[static_cast<std::size_t>(i)];
        EXPECT_NEAR(support::element(state.exp_avg_sq, i), (1 - 0.999) * g * g, (1 - 0.999) * g * g * 0x1p-22);
        EXPECT_NEAR(support::element(state.param, i), g > 0 ? -1e-3 : 1e-3, 1e-3 * 1e-5);
    }
}

TEST_F(OptimizerTest, ModelParametersAreTheRoundedMainParameters) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
        for (const std::int64_t count : {1, 19, 4099}) {
            State with = make_state(device, count);
            State without{device.copy_of(with.param), device.copy_of(with.grad), device.copy_of(with.exp_avg),
                          device.copy_of(with.exp_avg_sq)};
            Tensor model = device.make({count}, dtype);
            AdamWArgs args = args_of(with, kSettings[0]);
            args.model_param = &model;
            adamw(device.backend(), device.stream(), args);
            adamw(device.backend(), device.stream(), args_of(without, kSettings[0]));
            expect_same_bits("main_param", with.param, without.param);
            Tensor rounded = device.make({count}, dtype);
            cast(device.backend(), device.stream(), with.param, rounded);
            expect_same_bits("model_param", model, rounded);
        }
    }
}

TEST_F(OptimizerTest, KeepLeavesTheGradient) {
    State state = make_state(device, 131);
    const Tensor grad = device.copy_of(state.grad);
    AdamWArgs args = args_of(state, kSettings[1]);
    args.after = GradientAfterStep::keep;
    adamw(device.backend(), device.stream(), args);
    expect_same_bits("main_grad", state.grad, grad);
}

TEST_F(OptimizerTest, AZeroGradientOnlyDecays) {
    State state{device.random({37}, DType::f32), device.zeros({37}, DType::f32), device.zeros({37}, DType::f32),
                device.zeros({37}, DType::f32)};
    Values expected = values(state.param);
    for (double& p : expected) p *= 1 - 1e-2 * 0.1;
    adamw(device.backend(), device.stream(), args_of(state, kSettings[0]));
    expect_close("main_param", state.param, expected, {.terms = 2});
}

}  // namespace
}  // namespace tessera::kernels

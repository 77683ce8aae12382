#include "zero/flat_parameters.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/philox.h"
#include "zero/optimizer.h"

namespace tessera::zero {
namespace {

using core::DType;
using layers::Initialisation;
using layers::LogicalSlice;
using layers::ParameterUnit;
using layers::WeightDecay;

LogicalSlice slice(const char* name, core::Shape shape, std::int64_t rows, std::int64_t local_row) {
    return {.name = name,
            .global_shape = shape,
            .rows = rows,
            .columns = shape.rank() > 1 ? shape[1] : 1,
            .local_row = local_row};
}

/// A unit with a fused matrix of two logical ones, a bias, and a matrix with padding rows.
class FlatParametersTest : public testing::Test {
protected:
    FlatParametersTest()
        : pool_(core::DeviceType::cpu),
          backend_(kernels::make_cpu_backend(pool_)),
          stream_(core::DeviceType::cpu, core::StreamKind::compute),
          unit_("unit") {
        unit_.add({5, 7}, {slice("a", {2, 7}, 2, 0), slice("b", {3, 7}, 3, 2)}, WeightDecay::apply,
                  Initialisation::normal, 0.5);
        unit_.add({5}, {slice("bias", {5}, 5, 0)}, WeightDecay::none, Initialisation::ones);
        unit_.add({8, 3}, {slice("padded", {6, 3}, 6, 0)}, WeightDecay::apply, Initialisation::normal, 0.1);
    }
    core::MemoryPool pool_;
    std::unique_ptr<kernels::Backend> backend_;
    core::Stream stream_;
    ParameterUnit unit_;
};

TEST_F(FlatParametersTest, UnitsArePaddedToDataTimes1024) {
    EXPECT_EQ(unit_.offset(1), 64);
    EXPECT_EQ(unit_.offset(2), 128);
    EXPECT_EQ(unit_.padded_numel(1), 1024);
    EXPECT_EQ(unit_.padded_numel(3), 3072);
}

TEST_F(FlatParametersTest, ValuesAreDrawnByLogicalName) {
    FlatParameters flat(*backend_, stream_, {&unit_}, DType::f32, StateKind::training);
    flat.initialise(42);
    const float* fused = unit_.parameters()[0]->value().data<float>();
    for (std::int64_t i = 0; i < 14; ++i) {
        EXPECT_EQ(fused[i],
                  static_cast<float>(0.5 * core::normal_at(42, core::name_hash("a"), static_cast<std::uint64_t>(i))));
    }
    for (std::int64_t i = 0; i < 21; ++i) {
        EXPECT_EQ(fused[14 + i],
                  static_cast<float>(0.5 * core::normal_at(42, core::name_hash("b"), static_cast<std::uint64_t>(i))));
    }
    EXPECT_EQ(unit_.parameters()[1]->value().data<float>()[4], 1.0F);
    for (std::int64_t i = 18; i < 24; ++i) EXPECT_EQ(unit_.parameters()[2]->value().data<float>()[i], 0.0F);
    EXPECT_EQ(unit_.parameters()[2]->logical_numel(), 18);
}

TEST_F(FlatParametersTest, Bf16ValuesAreTheRoundedMainParameters) {
    FlatParameters flat(*backend_, stream_, {&unit_}, DType::bf16, StateKind::training);
    flat.initialise(42);
    const float* main = flat.units()[0].main_param.data<float>();
    const core::bf16* values = flat.units()[0].values.data<core::bf16>();
    for (std::int64_t i = 0; i < 1024; ++i) EXPECT_EQ(values[i].bits, core::to_bf16(main[i]).bits);
    // 2 + 4 + 12 bytes for each of 1024 elements.
    const auto statistics = pool_.statistics();
    EXPECT_EQ(statistics[core::MemoryCategory::parameters].current_bytes, 2 * 1024);
    EXPECT_EQ(statistics[core::MemoryCategory::gradients].current_bytes, 4 * 1024);
    EXPECT_EQ(statistics[core::MemoryCategory::optimizer].current_bytes, 12 * 1024);
}

TEST_F(FlatParametersTest, LeasesAreCounted) {
    FlatParameters flat(*backend_, stream_, {&unit_}, DType::f32, StateKind::training);
    {
        const layers::ParameterLease outer(unit_, stream_);
        const layers::ParameterLease inner(unit_, stream_);
        EXPECT_EQ(flat.leases(unit_), 2);
    }
    EXPECT_EQ(flat.leases(unit_), 0);
}

TEST_F(FlatParametersTest, OneStepIsClippedDecayedAdamW) {
    FlatParameters flat(*backend_, stream_, {&unit_}, DType::f32, StateKind::training);
    flat.initialise(7);
    FlatUnit& unit = flat.units()[0];
    std::vector<double> before(1024);
    std::vector<double> gradient(1024);
    double squares = 0;
    float* grad = unit.main_grad.data<float>();
    for (std::size_t i = 0; i < 1024; ++i) {
        before[i] = unit.main_param.data<float>()[i];
        const bool used = i < 35 || (i >= 64 && i < 69) || (i >= 128 && i < 146);
        gradient[i] = used ? 0.25 * (static_cast<double>(i % 5) - 1.0) : 0.0;
        grad[i] = static_cast<float>(gradient[i] * 16);  // scaled by the loss scale
        squares += gradient[i] * gradient[i];
    }
    Optimizer optimizer(*backend_, stream_, flat,
                        {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip_grad_norm = 0.5});
    const StepOutcome outcome = optimizer.step(1e-2, 16);
    EXPECT_NEAR(outcome.grad_norm, std::sqrt(squares), 1e-5);
    const double clip = 0.5 / (std::sqrt(squares) + 1e-6);
    EXPECT_NEAR(outcome.clip_factor, clip, 1e-6);
    for (std::size_t i = 0; i < 1024; ++i) {
        const double g = gradient[i] * clip;
        const double decay = i >= 64 && i < 128 ? 0.0 : 0.1;
        // The first step: m/(1-b1) = g and v/(1-b2) = g².
        const double expected = before[i] * (1 - 1e-2 * decay) - 1e-2 * g / (std::abs(g) + 1e-8);
        EXPECT_NEAR(unit.main_param.data<float>()[i], expected, 2e-6) << i;
        EXPECT_EQ(grad[i], 0.0F);
    }
}

TEST_F(FlatParametersTest, ANonFiniteGradientLeavesEverythingAsItWas) {
    FlatParameters flat(*backend_, stream_, {&unit_}, DType::f32, StateKind::training);
    flat.initialise(7);
    FlatUnit& unit = flat.units()[0];
    const std::vector<float> before(unit.main_param.data<float>(), unit.main_param.data<float>() + 1024);
    unit.main_grad.data<float>()[3] = NAN;
    unit.main_grad.data<float>()[4] = 1;
    Optimizer optimizer(*backend_, stream_, flat, {});
    EXPECT_FALSE(optimizer.step(1e-2, 1).updated);
    EXPECT_EQ(optimizer.updates(), 0);
    EXPECT_EQ(std::memcmp(before.data(), unit.main_param.data<float>(), 4096), 0);
    for (std::size_t i = 0; i < 1024; ++i) {
        EXPECT_EQ(unit.main_grad.data<float>()[i], 0.0F);
        EXPECT_EQ(unit.exp_avg.data<float>()[i], 0.0F);
    }
}

}  // namespace
}  // namespace tessera::zero

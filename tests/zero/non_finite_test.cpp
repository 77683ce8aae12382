#include "zero/non_finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "zero/optimizer.h"

namespace tessera::zero {
namespace {

using core::DType;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

layers::LogicalSlice slice(const char* name, std::int64_t rows, std::int64_t columns, std::int64_t local_row) {
    return {.name = name, .global_shape = {rows, columns}, .rows = rows, .columns = columns, .local_row = local_row};
}

/// Two units: a matrix of two logical ones and a vector; a matrix with padding rows.
class NonFinite : public testing::TestWithParam<DType> {
protected:
    NonFinite()
        : pool_(core::DeviceType::cpu),
          backend_(kernels::make_cpu_backend(pool_)),
          stream_(core::DeviceType::cpu, core::StreamKind::compute) {
        first_.add({5, 7}, {slice("a", 2, 7, 0), slice("b", 3, 7, 2)}, layers::WeightDecay::apply,
                   layers::Initialisation::normal, 0.5);
        first_.add({5, 1}, {slice("gain", 5, 1, 0)}, layers::WeightDecay::none, layers::Initialisation::ones);
        second_.add({8, 3}, {slice("padded", 6, 3, 0)}, layers::WeightDecay::apply, layers::Initialisation::normal,
                    0.1);
        flat_ = std::make_unique<FlatParameters>(*backend_, stream_,
                                                 std::vector<layers::ParameterUnit*>{&first_, &second_}, GetParam(),
                                                 StateKind::training);
        flat_->initialise(3);
    }
    float* values(std::size_t unit) { return flat_->units()[unit].main_param.data<float>(); }
    float* gradients(std::size_t unit) { return flat_->units()[unit].main_grad.data<float>(); }
    std::string found() { return describe(find_non_finite(*backend_, stream_, *flat_)); }

    core::MemoryPool pool_;
    std::unique_ptr<kernels::Backend> backend_;
    core::Stream stream_;
    layers::ParameterUnit first_{"first"};
    layers::ParameterUnit second_{"second"};
    std::unique_ptr<FlatParameters> flat_;
};

TEST_P(NonFinite, TheFirstTensorAtFaultIsNamed_NU_01_NU_02) {
    EXPECT_EQ(found(), "every value and gradient is finite");
    gradients(1)[17] = -kInfinity;
    EXPECT_EQ(found(), "the gradient of padded is not finite");
    gradients(0)[2 * 7] = kNan;
    EXPECT_EQ(found(), "the gradient of b is not finite (and of 1 more)");
    // Two infinities of either sign must not cancel.
    gradients(0)[0] = kInfinity;
    gradients(0)[13] = -kInfinity;
    EXPECT_EQ(found(), "the gradient of a is not finite (and of 2 more)");
    // A value at fault is the cause, wherever it stands.
    values(1)[0] = kNan;
    flat_->refresh_values();
    EXPECT_EQ(found(), "the value of padded is not finite");
    values(0)[64 + 4] = kInfinity;
    flat_->refresh_values();
    EXPECT_EQ(found(), "the value of gain is not finite (and of 1 more)");
}

TEST_P(NonFinite, PaddingIsNobodysFault) {
    values(1)[18] = kNan;
    gradients(1)[23] = kNan;
    gradients(0)[36] = kNan;
    flat_->refresh_values();
    EXPECT_EQ(found(), "every value and gradient is finite");
}

TEST_P(NonFinite, AValueBeyondTheModelsRangeIsFound_NU_01) {
    values(0)[3] = 1e6F;
    flat_->refresh_values();
    EXPECT_EQ(found(),
              GetParam() == DType::f16 ? "the value of a is not finite" : "every value and gradient is finite");
}

TEST_P(NonFinite, AStepLeftOutChangesNothingAndNamesTheCause_NU_02) {
    Optimizer optimizer(*backend_, stream_, *flat_, {});
    const std::vector<float> before(values(0), values(0) + 35);
    for (std::int64_t i = 0; i < 35; ++i) gradients(0)[i] = 1;
    StepOutcome outcome = optimizer.skip(2);
    EXPECT_FALSE(outcome.updated);
    EXPECT_DOUBLE_EQ(outcome.grad_norm, std::sqrt(35.0) / 2);
    EXPECT_FALSE(outcome.non_finite);
    gradients(0)[20] = kNan;
    outcome = optimizer.step(1e-3, 1);
    EXPECT_FALSE(outcome.updated);
    ASSERT_TRUE(outcome.non_finite);
    EXPECT_EQ(outcome.non_finite->name, "b");
    EXPECT_EQ(std::vector<float>(values(0), values(0) + 35), before);
    EXPECT_EQ(optimizer.updates(), 0);
    // The gradients are clear again: the next step is sound.
    gradients(0)[0] = 1;
    outcome = optimizer.step(1e-3, 1);
    EXPECT_TRUE(outcome.updated);
    EXPECT_FALSE(outcome.non_finite);
    EXPECT_EQ(outcome.grad_norm, 1);
}

INSTANTIATE_TEST_SUITE_P(DTypes, NonFinite, testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const testing::TestParamInfo<DType>& each) {
                             return std::string(core::name_of(each.param));
                         });

}  // namespace
}  // namespace tessera::zero

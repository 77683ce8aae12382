// One operation, run in different ways: other numbers of threads, vector extensions and storage types.
#include <hwy/highway.h>
#include <omp.h>

#include "operation_cases.h"

namespace tessera::kernels {
namespace {

using core::DType;
using core::Tensor;
using support::Device;
using support::Grid;

/// Sets OpenMP's number of threads for a scope.
class Threads {
public:
    explicit Threads(int count) : before_(omp_get_max_threads()) { omp_set_num_threads(count); }
    ~Threads() { omp_set_num_threads(before_); }
    Threads(const Threads&) = delete;
    Threads& operator=(const Threads&) = delete;

private:
    int before_;
};

/// Restricts Highway's choice to one target for a scope.
class VectorTarget {
public:
    explicit VectorTarget(std::int64_t target) { hwy::SetSupportedTargetsForTest(target); }
    ~VectorTarget() { hwy::SetSupportedTargetsForTest(0); }
    VectorTarget(const VectorTarget&) = delete;
    VectorTarget& operator=(const VectorTarget&) = delete;
};

std::string describe(const OperationCase& c, DType dtype, std::size_t output) {
    return fmt::format("{} {}, output {}", c.name, core::name_of(dtype), output);
}

TEST(Agreement, TheNumberOfThreadsDoesNotShow) {
    for (const OperationCase& c : operation_cases()) {
        for (const DType dtype : support::kFloatingDTypes) {
            Device alone;
            std::vector<Tensor> expected;
            {
                const Threads threads(1);
                expected = c.run(alone, dtype);
            }
            for (const int count : {2, 3}) {
                const Threads threads(count);
                Device several;
                const std::vector<Tensor> actual = c.run(several, dtype);
                for (std::size_t i = 0; i < actual.size(); ++i) {
                    const std::string what = describe(c, dtype, i) + fmt::format(", {} threads", count);
                    if (c.product == Product::none) {
                        support::expect_same_bits(what, actual[i], expected[i]);
                    } else {
                        expect_near_largest(
                                what, actual[i], expected[i],
                                1e-6 + (actual[i].dtype() == DType::f32 ? 0 : 2 * support::roundoff(dtype)));
                    }
                }
                several.expect_guards();
            }
        }
    }
}

/// dbias of linear_wgrad is ours, not oneDNN's: its bits may not depend on the threads.
TEST(Agreement, BiasGradientsDoNotDependOnTheThreads) {
    for (const DType dtype : support::kFloatingDTypes) {
        Device alone;
        Device pair;
        const Threads one(1);
        const Tensor expected = cases::linear_wgrad_case(alone, dtype)[1];
        const Threads two(2);
        support::expect_same_bits("dbias", cases::linear_wgrad_case(pair, dtype)[1], expected);
    }
}

/// The targets that the kernels are compiled for (SSE4 and above; a better target is a lower bit) and this CPU has.
std::vector<std::int64_t> vector_targets() {
    std::vector<std::int64_t> targets;
    const std::int64_t attainable = hwy::SupportedTargets() & HWY_TARGETS;
    for (std::int64_t bit = 1; bit <= std::int64_t{HWY_SSE4}; bit <<= 1) {
        if (attainable & bit) targets.push_back(bit);
    }
    return targets;
}

TEST(Agreement, EveryVectorTargetGivesTheSameNumbers) {
    const std::vector<std::int64_t> targets = vector_targets();
    if (targets.empty()) GTEST_SKIP() << "no target of this processor";
    for (const std::int64_t target : targets) {
        const VectorTarget only(target);
        Device device;
        EXPECT_NE(device.backend().description().find(hwy::TargetName(target)), std::string::npos)
                << device.backend().description() << " instead of " << hwy::TargetName(target);
        for (const OperationCase& c : operation_cases()) {
            for (const DType dtype : support::kFloatingDTypes) {
                Device here;
                Device best;
                const std::vector<Tensor> actual = c.run(here, dtype);
                here.expect_guards();
                hwy::SetSupportedTargetsForTest(targets.front());
                const std::vector<Tensor> expected = c.run(best, dtype);
                hwy::SetSupportedTargetsForTest(target);
                for (std::size_t i = 0; i < actual.size(); ++i) {
                    // Other vector lengths add in another order: as many f32 roundings as a row has elements.
                    const double relative = actual[i].dtype() == DType::f32 ? 0 : 2 * support::roundoff(dtype);
                    expect_near_largest(fmt::format("{} {}", hwy::TargetName(target), describe(c, dtype, i)), actual[i],
                                        expected[i], relative + cases::kWide * support::roundoff(DType::f32));
                }
            }
        }
    }
}

TEST(Agreement, EveryVectorTargetConvertsExactly) {
    std::vector<core::f16> halves;
    std::vector<float> floats;
    for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
        halves.push_back({static_cast<std::uint16_t>(bits)});
        floats.push_back(std::bit_cast<float>(bits * 0x9E3779B9U));
    }
    for (const std::int64_t target : vector_targets()) {
        const VectorTarget only(target);
        Device device;
        const Tensor narrow = device.of(halves);
        const Tensor wide = device.of(floats);
        Tensor widened = device.make({0x10000}, DType::f32);
        Tensor half = device.make({0x10000}, DType::f16);
        Tensor brain = device.make({0x10000}, DType::bf16);
        cast(device.backend(), device.stream(), narrow, widened);
        cast(device.backend(), device.stream(), wide, half);
        cast(device.backend(), device.stream(), wide, brain);
        for (std::size_t i = 0; i < halves.size(); ++i) {
            const float exact = core::to_f32(halves[i]);
            ASSERT_TRUE(std::isnan(exact) ? std::isnan(widened.data<float>()[i]) : widened.data<float>()[i] == exact)
                    << hwy::TargetName(target) << " f16 " << i;
            const bool nan = std::isnan(floats[i]);
            ASSERT_TRUE(nan ? std::isnan(core::to_f32(half.data<core::f16>()[i]))
                            : half.data<core::f16>()[i].bits == core::to_f16(floats[i]).bits)
                    << hwy::TargetName(target) << " " << floats[i];
            ASSERT_TRUE(nan ? std::isnan(core::to_f32(brain.data<core::bf16>()[i]))
                            : brain.data<core::bf16>()[i].bits == core::to_bf16(floats[i]).bits)
                    << hwy::TargetName(target) << " " << floats[i];
        }
    }
}

/// The same operands in every dtype (multiples of 1/128): only rounding on the way out, and of activations, differs.
TEST(Agreement, HalfPrecisionFollowsSinglePrecision) {
    for (const OperationCase& c : operation_cases()) {
        Device wide(core::DeviceType::cpu, Grid::coarse);
        const std::vector<Tensor> expected = c.run(wide, DType::f32);
        for (const DType dtype : {DType::bf16, DType::f16}) {
            Device narrow(core::DeviceType::cpu, Grid::coarse);
            const std::vector<Tensor> actual = c.run(narrow, dtype);
            ASSERT_EQ(actual.size(), expected.size());
            for (std::size_t i = 0; i < actual.size(); ++i) {
                expect_near_largest(describe(c, dtype, i), actual[i], expected[i], 3 * support::roundoff(dtype));
            }
        }
    }
}

/// A comparison that cannot fail proves nothing: operands that differ in one element must be seen.
TEST(Agreement, ADifferenceIsSeen) {
    Device device;
    const Tensor a = device.random({64}, DType::f32);
    const Tensor b = device.copy_of(a);
    support::set_element(b, 63, support::element(a, 63) + 1e-3);
    EXPECT_FALSE(std::memcmp(a.bytes(), b.bytes(), 256) == 0);
    const support::Tolerance tolerance{.terms = 64};
    EXPECT_GT(1e-3, tolerance.bound(1.0, DType::f32));
}

}  // namespace
}  // namespace tessera::kernels

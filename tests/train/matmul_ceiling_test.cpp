#include "train/matmul_ceiling.h"

#include <gtest/gtest.h>

namespace tessera::train {
namespace {

TEST(MatmulCeiling, IsTheRateOfOneOfTheProductsItCalled) {
    core::MemoryPool pool(core::DeviceType::cpu);
    const auto backend = kernels::make_cpu_backend(pool);
    core::Stream stream(core::DeviceType::cpu, core::StreamKind::compute);
    const MatmulCeiling ceiling = measure_matmul_ceiling(*backend, stream);
    EXPECT_GT(ceiling.flops_s, 0);
    EXPECT_TRUE(ceiling.size == 512 || ceiling.size == 1024) << ceiling.size;
    EXPECT_TRUE(ceiling.dtype == core::DType::f32 || ceiling.dtype == core::DType::bf16);
    // Both dtypes and sizes were called more than once, and the best is no slower than all of them together.
    const kernels::OpTotals& calls = backend->account()[kernels::Op::linear_forward];
    EXPECT_GE(calls.calls, 8);
    EXPECT_GE(ceiling.flops_s, 0.99 * calls.flops / calls.seconds);
    EXPECT_EQ(pool.statistics().current_bytes, 0);
}

}  // namespace
}  // namespace tessera::train

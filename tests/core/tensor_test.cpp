#include "core/tensor.h"

#include <gtest/gtest.h>

namespace tessera::core {
namespace {

TEST(Tensor, ViewsShareStorage) {
    MemoryPool pool(DeviceType::cpu);
    Tensor tensor = Tensor::zeros(pool, {6, 4}, DType::f32, MemoryCategory::activations);
    Tensor rows = tensor.range(2, 5);
    EXPECT_EQ(rows.shape(), (Shape{3, 4}));
    rows.data<float>()[0] = 3.0F;
    EXPECT_EQ(tensor.data<float>()[8], 3.0F);
    EXPECT_TRUE(rows.overlaps(tensor));
    EXPECT_FALSE(rows.overlaps(tensor.range(0, 2)));
    EXPECT_EQ(tensor.reshape({2, 3, 4}).shape(), (Shape{2, 3, 4}));
    EXPECT_EQ(tensor.reshape({24}).range(8, 9).data<float>()[0], 3.0F);
}

TEST(Tensor, WrongViewsNameBothNumbers) {
    MemoryPool pool(DeviceType::cpu);
    Tensor tensor = Tensor::empty(pool, {6, 4}, DType::bf16, MemoryCategory::activations);
    EXPECT_EQ(tensor.nbytes(), 48);
    EXPECT_THROW(tensor.reshape({5, 5}), ShapeError);
    EXPECT_THROW(tensor.range(3, 7), ShapeError);
    try {
        tensor.reshape({5, 5});
    } catch (const ShapeError& error) {
        EXPECT_STREQ(error.what(), "cannot reshape [6, 4] (24 elements) to [5, 5] (25 elements)");
    }
}

TEST(Tensor, MetaHasNoBytes) {
    MemoryPool pool(DeviceType::meta);
    Tensor tensor = Tensor::zeros(pool, {1000000, 1000000}, DType::f32, MemoryCategory::parameters);
    EXPECT_TRUE(tensor.is_meta());
    EXPECT_EQ(pool.statistics().current_bytes, 4000000000000);
    EXPECT_EQ(tensor.range(10, 20).byte_offset(), 40000000);
}

TEST(Tensor, EmptyTensorsAreAllowed) {
    MemoryPool pool(DeviceType::cpu);
    Tensor tensor = Tensor::zeros(pool, {0, 4}, DType::f32, MemoryCategory::activations);
    EXPECT_EQ(tensor.numel(), 0);
    EXPECT_EQ(tensor.range(0, 0).numel(), 0);
}

}  // namespace
}  // namespace tessera::core

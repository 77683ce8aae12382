#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>

#include "core/dtype.h"
#include "core/error.h"
#include "core/memory.h"

namespace tessera::core {

/// Up to four extents; row-major.
class Shape {
public:
    static constexpr int kMaxRank = 4;

    Shape() = default;
    Shape(std::initializer_list<std::int64_t> extents) : Shape(std::span(extents.begin(), extents.size())) {}
    /// At most kMaxRank extents, none negative.
    explicit Shape(std::span<const std::int64_t> extents);

    int rank() const { return rank_; }
    std::int64_t operator[](int axis) const { return extents_[static_cast<std::size_t>(axis)]; }
    std::int64_t numel() const;
    /// The same with another first extent. The rank must be at least 1.
    Shape with_rows(std::int64_t rows) const;
    bool operator==(const Shape& other) const;
    /// "[4, 256]"
    std::string to_string() const;

private:
    std::array<std::int64_t, kMaxRank> extents_{};
    int rank_ = 0;
};

/// A contiguous row-major array with shared storage. Views exist by reshape and by a range of the first dimension;
/// column views do not exist (packed operands stay packed). Copying a Tensor copies the handle.
class Tensor {
public:
    Tensor() = default;
    /// An uninitialised tensor from the pool.
    static Tensor empty(MemoryPool& pool, Shape shape, DType dtype, MemoryCategory category);
    /// As empty, filled with zero bytes (on meta: counted only).
    static Tensor zeros(MemoryPool& pool, Shape shape, DType dtype, MemoryCategory category);

    bool defined() const { return storage_ != nullptr; }
    const Shape& shape() const { return shape_; }
    std::int64_t size(int axis) const { return shape_[axis]; }
    std::int64_t numel() const { return numel_; }
    std::int64_t nbytes() const { return numel_ * size_of(dtype_); }
    DType dtype() const { return dtype_; }
    DeviceType device() const { return storage_->device(); }
    bool is_meta() const { return storage_->device() == DeviceType::meta; }
    const std::shared_ptr<Storage>& storage() const { return storage_; }
    std::int64_t byte_offset() const { return byte_offset_; }
    /// True if both refer to at least one common byte.
    bool overlaps(const Tensor& other) const;

    /// The elements; T must be the dtype's type (float, bf16, f16, int32_t, int64_t, uint16_t). Not on meta.
    template <typename T>
    T* data() const {
        TESSERA_INVARIANT(defined() && DTypeOf<T>::value == dtype_ && !is_meta());
        return reinterpret_cast<T*>(storage_->data() + byte_offset_);
    }
    std::byte* bytes() const {
        TESSERA_INVARIANT(defined() && !is_meta());
        return storage_->data() + byte_offset_;
    }

    /// Copies nbytes() bytes from host memory; on meta nothing happens.
    void copy_from_host(const void* source);
    /// Sets every byte to zero; on meta nothing happens.
    void fill_zero();

    /// The same elements under another shape. Throws ShapeError if the counts differ.
    Tensor reshape(Shape shape) const;
    /// Rows [begin, end) of the first dimension, sharing storage. Throws ShapeError if out of range.
    Tensor range(std::int64_t begin, std::int64_t end) const;

private:
    std::shared_ptr<Storage> storage_;
    std::int64_t byte_offset_ = 0;
    std::int64_t numel_ = 0;
    Shape shape_;
    DType dtype_ = DType::f32;
};

}  // namespace tessera::core

#include "core/tensor.h"

#include <cstring>

namespace tessera::core {

Shape::Shape(std::span<const std::int64_t> extents) {
    TESSERA_INVARIANT(extents.size() <= kMaxRank);
    for (std::int64_t extent : extents) {
        TESSERA_INVARIANT(extent >= 0);
        extents_[static_cast<std::size_t>(rank_++)] = extent;
    }
}

std::int64_t Shape::numel() const {
    std::int64_t count = 1;
    for (int axis = 0; axis < rank_; ++axis) count *= (*this)[axis];
    return count;
}

Shape Shape::with_rows(std::int64_t rows) const {
    TESSERA_INVARIANT(rank_ > 0 && rows >= 0);
    Shape result = *this;
    result.extents_[0] = rows;
    return result;
}

bool Shape::operator==(const Shape& other) const {
    return rank_ == other.rank_ && extents_ == other.extents_;
}

std::string Shape::to_string() const {
    std::string text = "[";
    for (int axis = 0; axis < rank_; ++axis) text += (axis ? ", " : "") + std::to_string((*this)[axis]);
    return text + "]";
}

Tensor Tensor::empty(MemoryPool& pool, Shape shape, DType dtype, MemoryCategory category) {
    Tensor tensor;
    tensor.shape_ = shape;
    tensor.numel_ = shape.numel();
    tensor.dtype_ = dtype;
    tensor.storage_ = pool.allocate(tensor.nbytes(), category);
    return tensor;
}

Tensor Tensor::zeros(MemoryPool& pool, Shape shape, DType dtype, MemoryCategory category) {
    Tensor tensor = empty(pool, shape, dtype, category);
    tensor.fill_zero();
    return tensor;
}

bool Tensor::overlaps(const Tensor& other) const {
    return defined() && storage_ == other.storage_ && byte_offset_ < other.byte_offset_ + other.nbytes() &&
           other.byte_offset_ < byte_offset_ + nbytes();
}

void Tensor::copy_from_host(const void* source) {
    if (!is_meta() && numel_ > 0) std::memcpy(bytes(), source, static_cast<std::size_t>(nbytes()));
}

void Tensor::fill_zero() {
    if (!is_meta() && numel_ > 0) std::memset(bytes(), 0, static_cast<std::size_t>(nbytes()));
}

Tensor Tensor::reshape(Shape shape) const {
    if (shape.numel() != numel_) {
        raise<ShapeError>("cannot reshape {} ({} elements) to {} ({} elements)", shape_.to_string(), numel_,
                          shape.to_string(), shape.numel());
    }
    Tensor view = *this;
    view.shape_ = shape;
    return view;
}

Tensor Tensor::range(std::int64_t begin, std::int64_t end) const {
    if (shape_.rank() == 0 || begin < 0 || end < begin || end > shape_[0]) {
        raise<ShapeError>("rows [{}, {}) are outside of a tensor of shape {}", begin, end, shape_.to_string());
    }
    const std::int64_t row = shape_[0] == 0 ? 0 : numel_ / shape_[0];
    Tensor view = *this;
    view.shape_ = shape_.with_rows(end - begin);
    view.numel_ = row * (end - begin);
    view.byte_offset_ = byte_offset_ + begin * row * size_of(dtype_);
    return view;
}

}  // namespace tessera::core

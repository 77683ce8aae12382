#include "kernels/check.h"

namespace tessera::kernels {

using core::raise;
using core::ShapeError;

void check_shape(const char* op, const char* operand, const core::Tensor& tensor, const core::Shape& expected) {
    if (!tensor.defined()) raise<ShapeError>("{}: {} is missing; expected shape {}", op, operand, expected.to_string());
    if (!(tensor.shape() == expected)) {
        raise<ShapeError>("{}: {} has shape {}, expected {}", op, operand, tensor.shape().to_string(),
                          expected.to_string());
    }
}

void check_dtype(const char* op, const char* operand, const core::Tensor& tensor, core::DType expected) {
    if (tensor.dtype() != expected) {
        raise<ShapeError>("{}: {} has dtype {}, expected {}", op, operand, core::name_of(tensor.dtype()),
                          core::name_of(expected));
    }
}

void check_floating(const char* op, const char* operand, const core::Tensor& tensor) {
    if (!tensor.defined()) raise<ShapeError>("{}: {} is missing", op, operand);
    if (!core::is_floating(tensor.dtype())) {
        raise<ShapeError>("{}: {} has dtype {}, expected f32, bf16 or f16", op, operand, core::name_of(tensor.dtype()));
    }
}

void check_rank(const char* op, const char* operand, const core::Tensor& tensor, int rank) {
    if (!tensor.defined()) raise<ShapeError>("{}: {} is missing", op, operand);
    if (tensor.shape().rank() != rank) {
        raise<ShapeError>("{}: {} has {} dimensions {}, expected {}", op, operand, tensor.shape().rank(),
                          tensor.shape().to_string(), rank);
    }
}

void check_operand(const char* op, const char* operand, const core::Tensor& tensor, const core::Shape& shape,
                   core::DType dtype) {
    check_shape(op, operand, tensor, shape);
    check_dtype(op, operand, tensor, dtype);
}

void check_rule(const char* op, bool condition, const char* rule) {
    if (!condition) raise<ShapeError>("{}: {}", op, rule);
}

}  // namespace tessera::kernels

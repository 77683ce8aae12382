#pragma once
#include "core/tensor.h"

namespace tessera::kernels {

/// Checks of an operation's operands, used above the backends. Each throws core::ShapeError naming the operation, the
/// operand and both values.
void check_shape(const char* op, const char* operand, const core::Tensor& tensor, const core::Shape& expected);
void check_dtype(const char* op, const char* operand, const core::Tensor& tensor, core::DType expected);
/// A floating dtype.
void check_floating(const char* op, const char* operand, const core::Tensor& tensor);
void check_rank(const char* op, const char* operand, const core::Tensor& tensor, int rank);
/// shape and dtype in one call.
void check_operand(const char* op, const char* operand, const core::Tensor& tensor, const core::Shape& shape,
                   core::DType dtype);
/// Throws ShapeError unless `condition`; `rule` says in words what must hold.
void check_rule(const char* op, bool condition, const char* rule);

}  // namespace tessera::kernels

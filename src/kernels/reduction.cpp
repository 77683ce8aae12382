#include "kernels/reduction.h"

#include "kernels/check.h"
#include "kernels/run_operation.h"

namespace tessera::kernels {
namespace {

using core::DType;
using core::Tensor;

}  // namespace

void sum_of_squares(Backend& backend, core::Stream& stream, const Tensor& x, Tensor& partial) {
    constexpr const char* op = "sum_of_squares";
    check_rank(op, "x", x, 1);
    check_dtype(op, "x", x, DType::f32);
    check_operand(op, "partial", partial, {(x.numel() + kNormBlock - 1) / kNormBlock}, DType::f32);
    run_operation(backend, stream, Op::sum_of_squares,
                  {.flops = 0, .bytes = static_cast<double>(x.nbytes() + partial.nbytes())},
                  [&] { backend.reduction().sum_of_squares(x, partial); });
}

void cast(Backend& backend, core::Stream& stream, const Tensor& x, Tensor& y) {
    constexpr const char* op = "cast";
    check_floating(op, "x", x);
    check_floating(op, "y", y);
    check_shape(op, "y", y, x.shape());
    check_rule(op, !x.overlaps(y), "x and y may not overlap");
    run_operation(backend, stream, Op::cast, {.flops = 0, .bytes = static_cast<double>(x.nbytes() + y.nbytes())},
                  [&] { backend.reduction().cast(x, y); });
}

void scale(Backend& backend, core::Stream& stream, Tensor& x, float factor) {
    check_floating("scale", "x", x);
    run_operation(backend, stream, Op::scale, {.flops = 0, .bytes = 2.0 * static_cast<double>(x.nbytes())},
                  [&] { backend.reduction().scale(x, factor); });
}

void add(Backend& backend, core::Stream& stream, const Tensor& x, Tensor& y) {
    constexpr const char* op = "add";
    check_floating(op, "x", x);
    check_operand(op, "y", y, x.shape(), x.dtype());
    run_operation(backend, stream, Op::add, {.flops = 0, .bytes = 3.0 * static_cast<double>(x.nbytes())},
                  [&] { backend.reduction().add(x, y); });
}

double sum(Backend& backend, core::Stream& stream, const Tensor& x) {
    constexpr const char* op = "sum";
    check_rank(op, "x", x, 1);
    check_dtype(op, "x", x, DType::f32);
    double result = 0;
    run_operation(backend, stream, Op::sum, {.flops = 0, .bytes = static_cast<double>(x.nbytes())},
                  [&] { result = backend.reduction().sum(x); });
    return result;
}

}  // namespace tessera::kernels

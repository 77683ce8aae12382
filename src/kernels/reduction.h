#pragma once
#include "core/tensor.h"

namespace tessera::kernels {

class Backend;

/// Elements per block of a norm over a flat range: the unit of layout-independent sums (docs/design.md section 3).
inline constexpr std::int64_t kNormBlock = 1024;

/// partial[b] f32 = Σ x[i]² over block b of kNormBlock elements; x [n] f32, partial [ceil(n / kNormBlock)].
/// Each block is summed in a fixed order. A non-finite input gives a non-finite partial.
void sum_of_squares(Backend& backend, core::Stream& stream, const core::Tensor& x, core::Tensor& partial);
/// y[i] = x[i] converted (round to nearest even); x, y [n] of any floating dtypes, not overlapping.
void cast(Backend& backend, core::Stream& stream, const core::Tensor& x, core::Tensor& y);
/// x[i] *= factor; x [n] of a floating dtype.
void scale(Backend& backend, core::Stream& stream, core::Tensor& x, float factor);
/// y[i] += x[i]; x, y [n] of one floating dtype.
void add(Backend& backend, core::Stream& stream, const core::Tensor& x, core::Tensor& y);
/// The sum of x [n] f32 in f64, added in blocks of kNormBlock and then over blocks; read by the host. Meta answers n.
double sum(Backend& backend, core::Stream& stream, const core::Tensor& x);

class ReductionKernels {
public:
    virtual ~ReductionKernels() = default;
    virtual void sum_of_squares(const core::Tensor& x, core::Tensor& partial) = 0;
    virtual void cast(const core::Tensor& x, core::Tensor& y) = 0;
    virtual void scale(core::Tensor& x, float factor) = 0;
    virtual void add(const core::Tensor& x, core::Tensor& y) = 0;
    virtual double sum(const core::Tensor& x) = 0;
};

}  // namespace tessera::kernels

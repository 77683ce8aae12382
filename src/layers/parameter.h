#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/stream.h"
#include "core/tensor.h"

namespace tessera::layers {

/// A block of a logical tensor held by a local one: rows [global_row, global_row + rows) and columns
/// [global_column, global_column + columns) of the logical tensor stand in local rows [local_row, local_row + rows).
/// Logical tensors are never fused: q, k, v, gate and up are five tensors even when one product reads them. A 1-D
/// tensor has one column. A padded vocabulary's padding rows belong to no slice.
struct LogicalSlice {
    std::string name;
    core::Shape global_shape;
    std::int64_t global_row = 0;
    std::int64_t global_column = 0;
    std::int64_t rows = 0;
    std::int64_t columns = 1;
    std::int64_t local_row = 0;
};

enum class Initialisation : std::uint8_t { zeros, ones, normal };
enum class WeightDecay : std::uint8_t { apply, none };

/// A local tensor of the model, [rows, columns] or [rows], and what it holds of the logical tensors. Its memory is
/// bound by flat storage (src/zero); until then value and main_grad are undefined.
class Parameter {
public:
    Parameter(core::Shape shape, std::vector<LogicalSlice> slices, WeightDecay decay, Initialisation init,
              double init_std)
        : shape_(shape), slices_(std::move(slices)), decay_(decay), init_(init), init_std_(init_std) {}
    Parameter(const Parameter&) = delete;
    Parameter& operator=(const Parameter&) = delete;

    const core::Shape& shape() const { return shape_; }
    const std::vector<LogicalSlice>& slices() const { return slices_; }
    WeightDecay decay() const { return decay_; }
    Initialisation init() const { return init_; }
    double init_std() const { return init_std_; }
    std::int64_t columns() const { return shape_.rank() > 1 ? shape_[1] : 1; }
    /// Elements of the slices: the padding of a vocabulary is not counted.
    std::int64_t logical_numel() const;

    /// The model's copy in its dtype, and the f32 gradient that backward adds to.
    const core::Tensor& value() const { return value_; }
    core::Tensor& main_grad() { return main_grad_; }
    void bind(core::Tensor value, core::Tensor main_grad) {
        value_ = std::move(value);
        main_grad_ = std::move(main_grad);
    }

private:
    core::Shape shape_;
    std::vector<LogicalSlice> slices_;
    WeightDecay decay_;
    Initialisation init_;
    double init_std_;
    core::Tensor value_;
    core::Tensor main_grad_;
};

class ParameterUnit;

/// Keeps a unit's parameters in memory while somebody computes with them. Implemented by src/zero.
class UnitResidency {
public:
    virtual ~UnitResidency() = default;
    virtual void acquire(ParameterUnit& unit, core::Stream& stream) = 0;
    virtual void release(ParameterUnit& unit, core::Stream& stream) = 0;
};

/// The parameters of one layer as one flat range. Each starts at a multiple of 64 elements; the range is padded to
/// data_parallel_size · 1024 elements, so that every rank's shard is a whole number of norm blocks.
class ParameterUnit {
public:
    explicit ParameterUnit(std::string name) : name_(std::move(name)) {}

    const std::string& name() const { return name_; }
    Parameter& add(core::Shape shape, std::vector<LogicalSlice> slices, WeightDecay decay, Initialisation init,
                   double init_std = 0);
    const std::vector<std::unique_ptr<Parameter>>& parameters() const { return parameters_; }
    /// Offset of the i-th parameter in the flat range, in elements.
    std::int64_t offset(std::size_t i) const { return offsets_[i]; }
    std::int64_t padded_numel(std::int64_t data_parallel_size) const;

    void set_residency(UnitResidency* residency) { residency_ = residency; }
    UnitResidency* residency() const { return residency_; }

private:
    std::string name_;
    std::vector<std::unique_ptr<Parameter>> parameters_;
    std::vector<std::int64_t> offsets_;
    std::int64_t end_ = 0;
    UnitResidency* residency_ = nullptr;
};

/// Held by a layer in forward and in the first half of backward.
class ParameterLease {
public:
    ParameterLease(ParameterUnit& unit, core::Stream& stream) : unit_(unit), stream_(stream) {
        if (unit_.residency()) unit_.residency()->acquire(unit_, stream_);
    }
    ~ParameterLease() {
        if (unit_.residency()) unit_.residency()->release(unit_, stream_);
    }
    ParameterLease(const ParameterLease&) = delete;
    ParameterLease& operator=(const ParameterLease&) = delete;

private:
    ParameterUnit& unit_;
    core::Stream& stream_;
};

/// Fills `values` (f32, the parameter's shape) with the parameter's initial values: each element of a logical tensor is
/// a function of (seed, name, index in the logical tensor), so any rank draws the same numbers for its part.
void draw_initial_values(const Parameter& parameter, std::uint64_t seed, float* values);

}  // namespace tessera::layers

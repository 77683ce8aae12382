#pragma once
#include <map>
#include <vector>

#include "kernels/backend.h"
#include "layers/parameter.h"

namespace tessera::zero {

/// The flat tensors of one parameter unit, each of padded_numel elements.
struct FlatUnit {
    layers::ParameterUnit* unit = nullptr;
    core::Tensor values;      ///< the model's dtype
    core::Tensor main_param;  ///< f32; the same tensor as values if the model is f32
    core::Tensor main_grad;   ///< f32
    core::Tensor exp_avg;     ///< f32
    core::Tensor exp_avg_sq;  ///< f32
    /// Maximal ranges of elements with one weight decay rule.
    struct Range {
        std::int64_t begin = 0;
        std::int64_t end = 0;
        layers::WeightDecay decay = layers::WeightDecay::none;
    };
    std::vector<Range> ranges;
};

/// Whether optimizer state and gradients are held (training) or values alone (generation, evaluation).
enum class StateKind : std::uint8_t { training, values_only };

/// Owns the memory of a model's parameters, unit by unit, and binds each Parameter to its place (ZeRO stage 0: every
/// rank holds everything). As the units' residency it counts leases; nothing has to be gathered.
class FlatParameters : public layers::UnitResidency {
public:
    FlatParameters(kernels::Backend& backend, core::Stream& stream, const std::vector<layers::ParameterUnit*>& units,
                   core::DType dtype, StateKind kind);
    ~FlatParameters() override;

    /// Draws every parameter from its logical coordinates and clears the optimizer state.
    void initialise(std::uint64_t seed);
    /// Model values from main parameters (after loading a checkpoint).
    void refresh_values();

    std::vector<FlatUnit>& units() { return units_; }
    const std::vector<FlatUnit>& units() const { return units_; }
    std::int64_t padded_numel() const;

    /// The global gradient norm: Σ x² per kNormBlock elements, then over blocks in unit order, each logical element
    /// once.
    double gradient_norm();

    void acquire(layers::ParameterUnit& unit, core::Stream& stream) override;
    void release(layers::ParameterUnit& unit, core::Stream& stream) override;
    /// Leases of this unit now held.
    std::int64_t leases(const layers::ParameterUnit& unit) const;

private:
    kernels::Backend& backend_;
    core::Stream& stream_;
    std::vector<FlatUnit> units_;
    core::Tensor partial_norms_;
    std::map<const layers::ParameterUnit*, std::int64_t> leases_;
};

}  // namespace tessera::zero

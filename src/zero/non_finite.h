#pragma once
#include <optional>
#include <string>

#include "zero/flat_parameters.h"

namespace tessera::zero {

/// Which of a parameter's numbers are meant.
enum class NonFinitePart : std::uint8_t { value, gradient };

/// A logical tensor with a NaN or an infinity in it.
struct NonFiniteTensor {
    std::string name;
    NonFinitePart part = NonFinitePart::value;
    std::int64_t others = 0;  ///< how many later tensors have one in the same part
};

/// The first logical tensor, in the model's order, with a value that is not finite (of the main parameter or, rounded
/// to the model's dtype, of the value itself); without any such, the first with such a gradient: one bad value spoils
/// the gradients of all. Nothing if all are finite. One pass over parameters and gradients, read by the host.
std::optional<NonFiniteTensor> find_non_finite(kernels::Backend& backend, core::Stream& stream,
                                               const FlatParameters& parameters);

/// "the value of layers.0.mlp.in.weight is not finite (and of 3 more)"; "every value and gradient is finite".
std::string describe(const std::optional<NonFiniteTensor>& found);

}  // namespace tessera::zero

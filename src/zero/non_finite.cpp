#include "zero/non_finite.h"

#include <fmt/format.h>

#include <cmath>

namespace tessera::zero {
namespace {

using core::DType;
using core::Tensor;

/// A sum of finite f32 in f64 is finite, and nothing else can make it so.
bool is_finite(kernels::Backend& backend, core::Stream& stream, const Tensor& tensor) {
    if (tensor.dtype() == DType::f32) return std::isfinite(kernels::sum(backend, stream, tensor));
    Tensor wide = Tensor::empty(backend.pool(), tensor.shape(), DType::f32, core::MemoryCategory::workspace);
    kernels::cast(backend, stream, tensor, wide);
    return std::isfinite(kernels::sum(backend, stream, wide));
}

/// Calls visit(slice, its elements [begin, end) in the unit's flat tensors) in the model's order.
template <typename Visit>
void for_each_slice(const FlatParameters& parameters, Visit&& visit) {
    for (const FlatUnit& flat : parameters.units()) {
        const auto& all = flat.unit->parameters();
        for (std::size_t i = 0; i < all.size(); ++i) {
            for (const layers::LogicalSlice& slice : all[i]->slices()) {
                const std::int64_t begin = flat.unit->offset(i) + slice.local_row * all[i]->columns();
                const std::int64_t end = begin + slice.rows * slice.columns;
                if (begin < end) visit(flat, slice, begin, end);
            }
        }
    }
}

}  // namespace

std::optional<NonFiniteTensor> find_non_finite(kernels::Backend& backend, core::Stream& stream,
                                               const FlatParameters& parameters) {
    for (const NonFinitePart part : {NonFinitePart::value, NonFinitePart::gradient}) {
        std::optional<NonFiniteTensor> found;
        const auto look = [&](const FlatUnit& flat, const layers::LogicalSlice& slice, std::int64_t begin,
                              std::int64_t end) {
            const auto finite = [&](const Tensor& tensor) {
                return !tensor.defined() || is_finite(backend, stream, tensor.range(begin, end));
            };
            if (part == NonFinitePart::gradient ? finite(flat.main_grad)
                                                : finite(flat.main_param) && finite(flat.values)) {
                return;
            }
            if (found) {
                ++found->others;
            } else {
                found = NonFiniteTensor{.name = slice.name, .part = part};
            }
        };
        for_each_slice(parameters, look);
        if (found) return found;
    }
    return std::nullopt;
}

std::string describe(const std::optional<NonFiniteTensor>& found) {
    if (!found) return "every value and gradient is finite";
    const std::string more = found->others > 0 ? fmt::format(" (and of {} more)", found->others) : std::string();
    return fmt::format("the {} of {} is not finite{}", found->part == NonFinitePart::value ? "value" : "gradient",
                       found->name, more);
}

}  // namespace tessera::zero

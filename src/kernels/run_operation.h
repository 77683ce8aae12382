#pragma once
#include "core/clock.h"
#include "kernels/backend.h"

namespace tessera::kernels {

/// Bytes of the operands that are given (null: absent); one that is read and written is listed twice.
inline double operand_bytes(std::initializer_list<const core::Tensor*> operands) {
    double total = 0;
    for (const core::Tensor* operand : operands) total += operand ? static_cast<double>(operand->nbytes()) : 0.0;
    return total;
}

/// Runs `body` as one call of `op`: accounts its cost and its time, and moves a modelled clock. Every public operation
/// goes through here after its checks, so the checks and the cost are written once for all backends.
template <typename Body>
void run_operation(Backend& backend, core::Stream& stream, Op op, const Cost& cost, Body&& body) {
    const double begin = core::now_s();
    body();
    const double modelled = backend.modelled_seconds(cost);
    stream.advance(modelled);
    backend.account().add(op, cost, backend.device() == core::DeviceType::meta ? modelled : core::now_s() - begin);
}

}  // namespace tessera::kernels

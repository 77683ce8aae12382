#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "core/memory.h"
#include "kernels/cost.h"

namespace tessera::train {

/// Where the time of training steps went and what memory held. Used by gpt_train --profile and gpt_bench step.
struct Profile {
    kernels::OpAccount operations;              ///< of the steps alone
    std::int64_t steps = 0;                     ///< at least 1
    double seconds = 0;                         ///< wall time of these steps
    std::optional<double> data_wait_seconds{};  ///< of those, waiting for the reader; nothing if there is none
    core::MemoryStatistics memory;
    std::int64_t saved_bytes = 0;        ///< the most that a tape said it kept
    std::int64_t peak_resident_bytes{};  ///< of the whole process; 0: left out
};

/// A table with a row for each operation that was called, the slowest first, then the step's time outside operations,
/// then the whole step: calls, ms and share of the step's wall time, GFLOP/s, GB/s. The shares add up to 100 %.
/// GFLOP/s count model FLOPs, GB/s the operands once each (kernels/cost.h).
std::string operation_table(const Profile& profile);

/// A table of memory in MiB by category at the moment of the total's peak, beside each category's own peak; then the
/// total, what was reserved from the system, what the tape kept and the resident set's peak.
std::string memory_table(const Profile& profile);

/// The most memory this process has had resident (VmHWM); 0 if the system does not say.
std::int64_t peak_resident_bytes();

}  // namespace tessera::train

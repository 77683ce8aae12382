#include "train/profile_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <numeric>
#include <vector>

namespace tessera::train {
namespace {

constexpr double kMiB = 1 << 20;

/// Operations that were called, the slowest first.
std::vector<kernels::Op> called_operations(const kernels::OpAccount& account) {
    std::vector<kernels::Op> order;
    for (std::size_t i = 0; i < kernels::kOps; ++i) {
        if (account[static_cast<kernels::Op>(i)].calls > 0) order.push_back(static_cast<kernels::Op>(i));
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](kernels::Op a, kernels::Op b) { return account[a].seconds > account[b].seconds; });
    return order;
}

/// Billions a second; empty where there is nothing to count.
std::string rate_text(double amount, double seconds, int decimals) {
    return amount > 0 && seconds > 0 ? fmt::format("{:.{}f}", amount / seconds / 1e9, decimals) : std::string();
}

std::string memory_row(std::string_view name, std::int64_t bytes) {
    return fmt::format("{:<36} {:>11.1f}\n", name, static_cast<double>(bytes) / kMiB);
}

}  // namespace

std::string operation_table(const Profile& profile) {
    const double per_step = 1.0 / static_cast<double>(profile.steps);
    const auto time_text = [&](double seconds) {
        return fmt::format("{:>10.2f} {:>6.1f}%", seconds * 1e3 * per_step,
                           profile.seconds > 0 ? 100 * seconds / profile.seconds : 0.0);
    };
    const kernels::OpTotals total = profile.operations.total();
    std::string table = fmt::format("{:<36} {:>6} {:>10} {:>7} {:>9} {:>7}\n", "operation (a step)", "calls", "ms",
                                    "share", "GFLOP/s", "GB/s");
    const auto row = [&](std::string_view name, const kernels::OpTotals& op, double seconds) {
        const std::string line =
                fmt::format("{:<36} {:>6.0f} {} {:>9} {:>7}", name, static_cast<double>(op.calls) * per_step,
                            time_text(seconds), rate_text(op.flops, seconds, 1), rate_text(op.bytes, seconds, 2));
        table += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    };
    for (const kernels::Op op : called_operations(profile.operations)) {
        row(kernels::name_of(op), profile.operations[op], profile.operations[op].seconds);
    }
    const double waited = profile.data_wait_seconds.value_or(0);
    if (profile.data_wait_seconds) table += fmt::format("{:<43} {}\n", "waiting for data", time_text(waited));
    table += fmt::format("{:<43} {}\n", "host, outside operations",
                         time_text(std::max(0.0, profile.seconds - total.seconds - waited)));
    row("whole step", total, profile.seconds);
    return table;
}

std::string memory_table(const Profile& profile) {
    std::string table = fmt::format("{:<36} {:>11} {:>11}\n", "memory (MiB)", "at the peak", "own peak");
    for (std::size_t i = 0; i < core::kMemoryCategories; ++i) {
        const auto category = static_cast<core::MemoryCategory>(i);
        const core::CategoryStatistics& statistics = profile.memory[category];
        if (statistics.peak_bytes == 0) continue;
        table += fmt::format("{:<36} {:>11.1f} {:>11.1f}\n", core::name_of(category),
                             static_cast<double>(statistics.bytes_at_peak) / kMiB,
                             static_cast<double>(statistics.peak_bytes) / kMiB);
    }
    std::int64_t reserved = 0;
    for (const core::ArenaStatistics& arena : profile.memory.by_arena) reserved += arena.peak_reserved_bytes;
    table += memory_row("total", profile.memory.peak_bytes);
    table += memory_row("reserved from the system", reserved);
    table += memory_row("kept by the tape", profile.saved_bytes);
    if (profile.peak_resident_bytes > 0) {
        table += memory_row("resident set of the process, peak", profile.peak_resident_bytes);
    }
    return table;
}

std::int64_t peak_resident_bytes() {
    // getrusage would do, but its peak begins with that of whoever started this program.
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
        std::int64_t kib = 0;
        if (word == "VmHWM:" && status >> kib) return kib * 1024;
    }
    return 0;
}

}  // namespace tessera::train

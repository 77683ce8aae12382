#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace tessera::kernels {

/// Every fused operation, for accounts by operation.
enum class Op : std::uint8_t {
    linear_forward,
    linear_dgrad,
    linear_wgrad,
    norm_forward,
    norm_backward,
    bias_dropout_residual_norm_forward,
    bias_dropout_residual_norm_backward,
    rotary,
    attention_forward,
    attention_backward,
    cached_attention,
    embedding_forward,
    embedding_backward,
    cross_entropy_statistics,
    cross_entropy_finish,
    adamw,
    sum_of_squares,
    cast,
    scale,
    add,
    sum
};
inline constexpr std::size_t kOps = 21;

std::string_view name_of(Op op);

/// Work of one call. flops are model FLOPs: 2 per multiply-add of a matrix product or of attention's causal half, none
/// for anything else, none for work done again. bytes are the operands read and written once each.
struct Cost {
    double flops = 0;
    double bytes = 0;
};

struct OpTotals {
    std::int64_t calls = 0;
    double flops = 0;
    double bytes = 0;
    double seconds = 0;  ///< measured on a device that computes, modelled on meta
};

/// Accumulates costs and times by operation. Attached to a backend; timing is on only while someone asks for it.
class OpAccount {
public:
    void add(Op op, const Cost& cost, double seconds) {
        OpTotals& totals = totals_[static_cast<std::size_t>(op)];
        ++totals.calls;
        totals.flops += cost.flops;
        totals.bytes += cost.bytes;
        totals.seconds += seconds;
    }
    const OpTotals& operator[](Op op) const { return totals_[static_cast<std::size_t>(op)]; }
    OpTotals total() const;
    void reset() { totals_ = {}; }

private:
    std::array<OpTotals, kOps> totals_{};
};

}  // namespace tessera::kernels

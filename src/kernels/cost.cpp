#include "kernels/cost.h"

namespace tessera::kernels {

std::string_view name_of(Op op) {
    static constexpr std::array<std::string_view, kOps> kNames = {"linear_forward",
                                                                  "linear_dgrad",
                                                                  "linear_wgrad",
                                                                  "norm_forward",
                                                                  "norm_backward",
                                                                  "bias_dropout_residual_norm_forward",
                                                                  "bias_dropout_residual_norm_backward",
                                                                  "rotary",
                                                                  "attention_forward",
                                                                  "attention_backward",
                                                                  "cached_attention",
                                                                  "embedding_forward",
                                                                  "embedding_backward",
                                                                  "cross_entropy_statistics",
                                                                  "cross_entropy_finish",
                                                                  "adamw",
                                                                  "sum_of_squares",
                                                                  "cast",
                                                                  "scale",
                                                                  "add",
                                                                  "sum"};
    return kNames[static_cast<std::size_t>(op)];
}

OpTotals OpAccount::total() const {
    OpTotals sum;
    for (const OpTotals& totals : totals_) {
        sum.calls += totals.calls;
        sum.flops += totals.flops;
        sum.bytes += totals.bytes;
        sum.seconds += totals.seconds;
    }
    return sum;
}

}  // namespace tessera::kernels

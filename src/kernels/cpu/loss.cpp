#include "kernels/loss.h"

#include "kernels/cpu/families.h"
#include "kernels/cpu/loss_rows.h"

namespace tessera::kernels::cpu {
namespace {

/// What both halves read.
template <typename Args>
LossRows rows_of(const Args& args) {
    LossRows rows;
    rows.dtype = args.logits.dtype();
    rows.tokens = args.logits.size(0);
    rows.columns = args.logits.size(1);
    rows.num_valid = args.num_valid;
    rows.vocab_begin = args.vocab_begin;
    rows.logits = args.logits.bytes();
    rows.targets = args.targets.template data<std::int32_t>();
    rows.maximum = args.maximum.template data<float>();
    rows.sum_exp = args.sum_exp.template data<float>();
    rows.target_logit = args.target_logit.template data<float>();
    return rows;
}

class Loss final : public LossKernels {
public:
    void cross_entropy_statistics(const CrossEntropyStatisticsArgs& args) override {
        const LossRows rows = rows_of(args);
        for (std::int64_t token = 0; token < rows.tokens; ++token) {
            if (rows.targets[token] < -1 || rows.targets[token] >= args.vocab_size) {
                core::raise<core::DataError>("target id {} of token {} is outside the vocabulary of {} (-1 = no loss)",
                                             rows.targets[token], token, args.vocab_size);
            }
        }
        loss_rows_statistics(rows);
    }

    void cross_entropy_finish(const CrossEntropyFinishArgs& args) override {
        LossRows rows = rows_of(args);
        rows.losses = args.losses.data<float>();
        rows.grad_scale = args.grad_scale;
        rows.mode = args.mode;
        loss_rows_finish(rows);
    }
};

}  // namespace

std::unique_ptr<LossKernels> make_loss() {
    return std::make_unique<Loss>();
}

}  // namespace tessera::kernels::cpu

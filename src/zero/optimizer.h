#pragma once
#include "zero/flat_parameters.h"
#include "zero/loss_scaler.h"
#include "zero/non_finite.h"

namespace tessera::zero {

struct AdamWSettings {
    double beta1 = 0.9;
    double beta2 = 0.95;
    double eps = 1e-8;
    double weight_decay = 0.1;
    double clip_grad_norm = 1.0;  ///< 0 = no clipping
};

/// What one optimizer step did.
struct StepOutcome {
    double grad_norm = 0;    ///< global norm before clipping, unscaled
    bool updated = true;     ///< false: a non-finite gradient; parameters and moments are untouched
    double clip_factor = 1;  ///< what the gradients were multiplied with, loss scale apart
    std::optional<NonFiniteTensor> non_finite{};  ///< after a step that was left out: the first tensor at fault
};

/// AdamW over flat storage with global-norm clipping: g = main_grad/loss_scale · min(1, clip/(norm + 1e-6)).
/// Decay acts on matrices and embeddings only. The gradients are zero afterwards, also after a skipped step.
class Optimizer {
public:
    Optimizer(kernels::Backend& backend, core::Stream& stream, FlatParameters& parameters,
              const AdamWSettings& settings)
        : backend_(backend), stream_(stream), parameters_(parameters), settings_(settings) {}

    StepOutcome step(double lr, double loss_scale);
    /// Leaves the step out, as after a loss that is not finite: looks for the cause and clears the gradients.
    StepOutcome skip(double loss_scale);

    /// Updates applied so far: the step of Adam's bias correction.
    std::int64_t updates() const { return updates_; }
    void restore_updates(std::int64_t updates) { updates_ = updates; }

private:
    void give_up(StepOutcome& outcome);

    kernels::Backend& backend_;
    core::Stream& stream_;
    FlatParameters& parameters_;
    AdamWSettings settings_;
    std::int64_t updates_ = 0;
};

}  // namespace tessera::zero

#pragma once
#include <memory>

#include "layers/gpt.h"
#include "train/micro_batch.h"
#include "zero/optimizer.h"

namespace tessera::train {

struct EngineSettings {
    layers::ModelConfig model{};
    zero::AdamWSettings optimizer{};
    zero::LossScalerSettings loss_scaler{};
    std::uint64_t seed = 1234;
    DocumentMask document_mask = DocumentMask::off;
    zero::StateKind state = zero::StateKind::training;
    core::DeviceType device = core::DeviceType::cpu;
};

struct StepResult {
    double loss = 0;        ///< mean over the loss-carrying tokens of the global batch, nats
    double grad_norm = 0;   ///< before clipping
    double loss_scale = 1;  ///< the scale this step used
    bool updated = false;
    bool scale_exhausted = false;                       ///< an overflow although the loss scale was at its floor
    std::optional<zero::NonFiniteTensor> non_finite{};  ///< the first at fault, if loss or norm is not finite
    double model_flops = 0;
    std::int64_t loss_tokens = 0;
};

struct LossSum {
    double loss = 0;  ///< Σ over loss-carrying tokens, nats
    std::int64_t tokens = 0;
};

/// A model with its memory, optimizer and device: what one optimizer step needs. Knows nothing of files or schedules.
class Engine {
public:
    /// Throws EnvironmentError if the machine's memory cannot hold the model, ConfigError if nothing could.
    explicit Engine(const EngineSettings& settings);

    /// Draws the initial parameters.
    void initialise() { parameters_->initialise(settings_.seed); }

    /// One optimizer step on a global batch in micro-batches of `micro_batch_size` samples (the last one may be
    /// smaller). The loss is divided by the global number of loss-carrying tokens from the start, so any split gives
    /// the same step. A batch without any such token changes nothing (updated = false, loss 0); nor does one whose loss
    /// or gradient norm is not finite.
    StepResult train_step(const data::Batch& batch, std::int64_t micro_batch_size, double lr);
    /// Forward and backward of the whole batch into main_grad, without the update.
    StepResult accumulate_gradients(const data::Batch& batch, std::int64_t micro_batch_size);
    /// Losses without dropout or gradients.
    LossSum evaluate(const data::Batch& batch, std::int64_t micro_batch_size);

    const EngineSettings& settings() const { return settings_; }
    const layers::Gpt& model() const { return *model_; }
    zero::FlatParameters& parameters() { return *parameters_; }
    zero::Optimizer& optimizer() { return *optimizer_; }
    zero::LossScaler& loss_scaler() { return scaler_; }
    kernels::Backend& backend() { return *backend_; }
    core::Stream& stream() { return stream_; }
    core::MemoryPool& pool() { return *pool_; }
    /// The most bytes that a tape said it kept.
    std::int64_t peak_saved_bytes() const { return peak_saved_bytes_; }

private:
    double forward_backward(const MicroBatch& micro, double grad_scale);

    EngineSettings settings_;
    std::unique_ptr<core::MemoryPool> pool_;
    std::unique_ptr<kernels::Backend> backend_;
    core::Stream stream_;
    std::unique_ptr<layers::Gpt> model_;
    std::unique_ptr<zero::FlatParameters> parameters_;
    std::unique_ptr<zero::Optimizer> optimizer_;
    zero::LossScaler scaler_;
    std::int64_t peak_saved_bytes_ = 0;
};

}  // namespace tessera::train

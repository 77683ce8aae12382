#include "train/engine.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace tessera::train {
namespace {

/// A CPU with vector units, for meta's clock; only ratios of it mean anything.
constexpr kernels::MetaDevice kModelledDevice{.peak_flops = 1e11, .bandwidth_bytes_s = 2e10};

std::unique_ptr<kernels::Backend> make_backend(core::MemoryPool& pool) {
    return pool.device() == core::DeviceType::meta ? kernels::make_meta_backend(pool, kModelledDevice)
                                                   : kernels::make_cpu_backend(pool);
}

/// The settings, unless what a training keeps of the model is more than the machine has: the system would end the
/// process without a word.
const EngineSettings& fitting(const EngineSettings& settings) {
    if (settings.device == core::DeviceType::meta) return settings;
    const auto parameters = static_cast<double>(layers::parameter_count(settings.model));
    const auto value_bytes = static_cast<double>(core::size_of(settings.model.dtype));
    // Beside the values: main parameters unless they are the values, gradients, two moments.
    const double state_bytes = settings.model.dtype == core::DType::f32 ? 12 : 16;
    const double needed = parameters * (value_bytes + (settings.state == zero::StateKind::training ? state_bytes : 0));
    struct sysinfo system {};
    if (::sysinfo(&system) != 0) return settings;
    const double present = static_cast<double>(system.totalram + system.totalswap) * system.mem_unit;
    if (needed > present) {
        core::raise<core::EnvironmentError>(
                "the model's {:.3g} parameters need {:.1f} GiB, but this machine has {:.1f} GiB of memory; take a "
                "smaller model.hidden_size or model.num_layers",
                parameters, needed / 0x1p30, present / 0x1p30);
    }
    return settings;
}

}  // namespace

Engine::Engine(const EngineSettings& settings)
    : settings_(fitting(settings)),
      pool_(std::make_unique<core::MemoryPool>(settings.device)),
      backend_(make_backend(*pool_)),
      stream_(settings.device, core::StreamKind::compute),
      model_(std::make_unique<layers::Gpt>(settings.model)),
      parameters_(std::make_unique<zero::FlatParameters>(*backend_, stream_, model_->units(), settings.model.dtype,
                                                         settings.state)),
      optimizer_(std::make_unique<zero::Optimizer>(*backend_, stream_, *parameters_, settings.optimizer)),
      scaler_(settings.loss_scaler) {}

double Engine::forward_backward(const MicroBatch& micro, double grad_scale) {
    layers::Tape tape(*backend_, stream_);
    const layers::ForwardContext ctx{.backend = *backend_,
                                     .stream = stream_,
                                     .tape = &tape,
                                     .tokens = micro.map,
                                     .mode = layers::Mode::train,
                                     .seed = settings_.seed};
    const core::Tensor losses = model_->loss(ctx, micro.tokens, micro.targets, grad_scale);
    const double loss = kernels::sum(*backend_, stream_, losses);
    peak_saved_bytes_ = std::max(peak_saved_bytes_, tape.saved_bytes());
    tape.backward(layers::WeightGradients::immediate);
    return loss;
}

StepResult Engine::accumulate_gradients(const data::Batch& batch, std::int64_t micro_batch_size) {
    StepResult result{.loss_scale = scaler_.scale(), .loss_tokens = batch.loss_tokens};
    if (batch.loss_tokens == 0) return result;
    const double grad_scale = scaler_.scale() / static_cast<double>(batch.loss_tokens);
    double loss_sum = 0;
    double sum_squared = 0;
    for (std::int64_t first = 0; first < batch.num_samples; first += micro_batch_size) {
        const std::int64_t count = std::min(micro_batch_size, batch.num_samples - first);
        const MicroBatch micro = make_micro_batch(*backend_, batch, first, count, settings_.document_mask);
        loss_sum += forward_backward(micro, grad_scale);
        sum_squared += static_cast<double>(micro.map.sum_squared_seqlens);
    }
    result.loss = loss_sum / static_cast<double>(batch.loss_tokens);
    result.model_flops = layers::training_flops(settings_.model,
                                                static_cast<double>(batch.num_samples * batch.seq_length), sum_squared);
    return result;
}

StepResult Engine::train_step(const data::Batch& batch, std::int64_t micro_batch_size, double lr) {
    StepResult result = accumulate_gradients(batch, micro_batch_size);
    if (batch.loss_tokens == 0) return result;
    const zero::StepOutcome outcome =
            std::isfinite(result.loss) ? optimizer_->step(lr, result.loss_scale) : optimizer_->skip(result.loss_scale);
    result.grad_norm = outcome.grad_norm;
    result.updated = outcome.updated;
    result.non_finite = outcome.non_finite;
    result.scale_exhausted = scaler_.update(!outcome.updated) == zero::ScaleChange::exhausted;
    return result;
}

LossSum Engine::evaluate(const data::Batch& batch, std::int64_t micro_batch_size) {
    LossSum result{.loss = 0, .tokens = batch.loss_tokens};
    for (std::int64_t first = 0; first < batch.num_samples; first += micro_batch_size) {
        const std::int64_t count = std::min(micro_batch_size, batch.num_samples - first);
        const MicroBatch micro = make_micro_batch(*backend_, batch, first, count, settings_.document_mask);
        const layers::ForwardContext ctx{.backend = *backend_, .stream = stream_, .tokens = micro.map};
        const core::Tensor losses = model_->loss(ctx, micro.tokens, micro.targets, 1.0);
        result.loss += kernels::sum(*backend_, stream_, losses);
    }
    return result;
}

}  // namespace tessera::train

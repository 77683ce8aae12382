#include "gpt_bench/floor.h"

#include <algorithm>

#include "core/clock.h"

namespace tessera::apps {
namespace {

using core::Tensor;

constexpr int kKinds = 3;  // forward, input gradient, weight gradient
constexpr int kRepeats = 3;
/// AdamW in f32 reads p, g, m, v and writes p, m, v.
constexpr double kOptimizerBytes = 28;

/// 64 MiB an array.
constexpr std::int64_t kBandwidthCount = std::int64_t{1} << 24;

/// Bytes a second of the fastest of a few passes, each of which moves `bytes` bytes.
template <typename Pass>
double best_rate(double bytes, const Pass& pass) {
    constexpr int kPasses = 3;
    double best = 0;
    for (int i = 0; i < kPasses; ++i) {
        const double begin = core::now_s();
        pass();
        best = std::max(best, bytes / (core::now_s() - begin));
    }
    return best;
}

/// Uniform in [-1/32, 1/32): products of zeros draw less power and may run at a higher clock.
Tensor random_tensor(kernels::Backend& backend, core::Stream& stream, const core::Shape& shape, core::DType dtype) {
    Tensor wide = Tensor::empty(backend.pool(), shape, core::DType::f32, core::MemoryCategory::workspace);
    float* values = wide.data<float>();
    std::uint32_t state = 1;
    for (std::int64_t i = 0; i < wide.numel(); ++i) {
        state = state * 1664525U + 1013904223U;
        values[i] = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-36F;
    }
    if (dtype == core::DType::f32) return wide;
    Tensor narrow = Tensor::empty(backend.pool(), shape, dtype, core::MemoryCategory::workspace);
    kernels::cast(backend, stream, wide, narrow);
    return narrow;
}

}  // namespace

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

std::vector<Product> products_of(const layers::ModelConfig& model) {
    const std::int64_t hidden = model.hidden_size;
    const std::int64_t head_dim = model.head_dim();
    const std::int64_t qkv = (model.num_attention_heads + 2 * model.num_kv_heads) * head_dim;
    const std::int64_t query = model.num_attention_heads * head_dim;
    const std::int64_t gates = model.family == layers::Family::llama ? 2 : 1;
    return {{hidden, qkv, model.num_layers},
            {query, hidden, model.num_layers},
            {hidden, gates * model.ffn_hidden_size, model.num_layers},
            {model.ffn_hidden_size, hidden, model.num_layers},
            {hidden, model.padded_vocab_size(), 1}};
}

double measure_bandwidth() {
    std::vector<float> x(kBandwidthCount, 1.0F);
    std::vector<float> y(kBandwidthCount, 1.0F);
    float* const to = y.data();
    const float* const from = x.data();
    return best_rate(3.0 * sizeof(float) * kBandwidthCount, [&] {
#pragma omp parallel for schedule(static)
        for (std::int64_t i = 0; i < kBandwidthCount; ++i) to[i] = 0.5F * to[i] + from[i];
    });
}

double measure_read_bandwidth(kernels::Backend& backend, core::Stream& stream, double bytes) {
    constexpr double kMost = double{1 << 30};
    const auto blocks = std::max<std::int64_t>(
            1, static_cast<std::int64_t>(std::min(bytes, kMost) / (sizeof(float) * kernels::kNormBlock)));
    const std::int64_t count = blocks * kernels::kNormBlock;
    Tensor x = Tensor::zeros(backend.pool(), {count}, core::DType::f32, core::MemoryCategory::workspace);
    Tensor partial = Tensor::empty(backend.pool(), {blocks}, core::DType::f32, core::MemoryCategory::workspace);
    return best_rate(static_cast<double>(x.nbytes()), [&] { kernels::sum_of_squares(backend, stream, x, partial); });
}

FloorBench::FloorBench(const FloorArgs& args)
    : args_(args),
      pool_(core::DeviceType::cpu),
      backend_(kernels::make_cpu_backend(pool_)),
      stream_(core::DeviceType::cpu, core::StreamKind::compute) {
    for (const Product& product : products_of(args.model)) {
        for (int kind = 0; kind < kKinds; ++kind) timed_.push_back({.product = product, .kind = kind, .seconds = {}});
    }
}

double FloorBench::time_product(const Timed& timed) {
    const auto tensor = [&](std::int64_t rows, std::int64_t columns, core::DType dtype) {
        return random_tensor(*backend_, stream_, {rows, columns}, dtype);
    };
    const Product& p = timed.product;
    const core::DType dtype = args_.model.dtype;
    Tensor x = tensor(args_.tokens, p.inputs, dtype);
    Tensor y = tensor(args_.tokens, p.outputs, dtype);
    Tensor weight = tensor(p.outputs, p.inputs, timed.kind == 2 ? core::DType::f32 : dtype);
    std::vector<double> seconds;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
        const double begin = core::now_s();
        if (timed.kind == 0) {
            kernels::linear_forward(*backend_, stream_, {.x = x, .weight = weight, .y = y});
        } else if (timed.kind == 1) {
            kernels::linear_dgrad(*backend_, stream_, {.dy = y, .weight = weight, .dx = x});
        } else {
            kernels::linear_wgrad(*backend_, stream_, {.x = x, .dy = y, .dweight = weight});
        }
        seconds.push_back(core::now_s() - begin);
    }
    return median(seconds);
}

void FloorBench::measure() {
    for (Timed& timed : timed_) timed.seconds.push_back(time_product(timed));
    bandwidths_.push_back(measure_bandwidth());
}

Floor FloorBench::result() const {
    Floor floor;
    const auto micro_batches = static_cast<double>(args_.micro_batches);
    for (const Timed& timed : timed_) {
        const double seconds = median(timed.seconds);
        const double flops = 2.0 * static_cast<double>(args_.tokens) * static_cast<double>(timed.product.inputs) *
                             static_cast<double>(timed.product.outputs);
        floor.products_s += seconds * static_cast<double>(timed.product.count) * micro_batches;
        floor.best_flops_s = std::max(floor.best_flops_s, flops / seconds);
    }
    floor.attention_s = args_.attention_flops / floor.best_flops_s;
    floor.bandwidth_bytes_s = median(bandwidths_);
    floor.optimizer_s =
            kOptimizerBytes * static_cast<double>(layers::parameter_count(args_.model)) / floor.bandwidth_bytes_s;
    return floor;
}

}  // namespace tessera::apps

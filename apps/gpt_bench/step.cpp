#include "gpt_bench/step.h"

#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "core/clock.h"
#include "core/philox.h"
#include "gpt_bench/floor.h"
#include "train/micro_batch.h"
#include "train/profile_table.h"
#include "train/settings.h"

namespace tessera::apps {
namespace {

data::Batch random_tokens(const train::Config& config, std::int64_t step) {
    data::Batch batch;
    batch.num_samples = config.batch.global_batch_size;
    batch.seq_length = config.model.seq_length;
    batch.first_sample = step * batch.num_samples;
    batch.loss_tokens = batch.num_samples * batch.seq_length;
    batch.document_borders.resize(static_cast<std::size_t>(batch.num_samples));
    for (std::int64_t i = 0; i < batch.num_samples; ++i) batch.sample_index.push_back(batch.first_sample + i);
    for (std::int64_t i = 0; i < batch.loss_tokens; ++i) {
        const auto words =
                core::philox4x32_10({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(step), 0, 0}, {1, 2});
        batch.tokens.push_back(
                static_cast<std::int32_t>(words[0] % static_cast<std::uint32_t>(config.model.vocab_size)));
        batch.targets.push_back(
                static_cast<std::int32_t>(words[1] % static_cast<std::uint32_t>(config.model.vocab_size)));
    }
    return batch;
}

FloorArgs floor_args(const train::Config& config) {
    const layers::ModelConfig model = train::engine_settings(config).model;
    const std::int64_t tokens = config.batch.global_batch_size * config.model.seq_length;
    const auto squares = static_cast<double>(tokens * config.model.seq_length);
    const auto all = static_cast<double>(tokens);
    return {.model = model,
            .tokens = core::round_up(config.batch.micro_batch_size * config.model.seq_length, train::kTokenMultiple),
            .micro_batches = config.batch.global_batch_size / config.batch.micro_batch_size,
            .attention_flops = layers::training_flops(model, all, squares) - layers::training_flops(model, all, 0)};
}

void print_floor(const Floor& floor, double step_s) {
    std::printf(
            "floor: %.1f ms = products alone %.1f (best %.1f GFLOP/s) + attention %.1f + optimizer %.1f (%.1f GB/s); "
            "the "
            "step reaches %.1f %% of it\n",
            floor.total_s() * 1e3, floor.products_s * 1e3, floor.best_flops_s / 1e9, floor.attention_s * 1e3,
            floor.optimizer_s * 1e3, floor.bandwidth_bytes_s / 1e9, 100 * floor.total_s() / step_s);
}

/// state: parameters, gradients and optimizer; kept: what the tape holds, logits included; resident: the process's
/// peak.
void print_csv(train::Engine& engine, double tokens_per_s, double step_s, double flops) {
    constexpr double kMiB = 1 << 20;
    const core::MemoryStatistics& statistics = engine.pool().statistics();
    std::int64_t state = 0;
    for (const auto category :
         {core::MemoryCategory::parameters, core::MemoryCategory::gradients, core::MemoryCategory::optimizer}) {
        state += statistics[category].peak_bytes;
    }
    std::printf("tokens_per_s,step_ms,model_gflops,peak_mib,state_mib,kept_mib,resident_mib\n");
    std::printf("%.2f,%.3f,%.2f,%.1f,%.1f,%.1f,%.1f\n", tokens_per_s, step_s * 1e3, flops / step_s / 1e9,
                static_cast<double>(statistics.peak_bytes) / kMiB, static_cast<double>(state) / kMiB,
                static_cast<double>(engine.peak_saved_bytes()) / kMiB,
                static_cast<double>(train::peak_resident_bytes()) / kMiB);
}

}  // namespace

train::Config load_bench_config(const StepOptions& options) {
    train::Config config = train::load_config(options.config, options.overrides);
    if (config.model.vocab_size == 0) {
        core::raise<core::UsageError>(
                "{} leaves model.vocab_size to the tokenizer; a benchmark reads no data: give "
                "--model.vocab_size=N",
                options.config);
    }
    if (config.device.threads > 0) omp_set_num_threads(static_cast<int>(config.device.threads));
    return config;
}

int bench_step(const StepOptions& options) {
    const train::Config config = load_bench_config(options);
    train::Engine engine(train::engine_settings(config));
    engine.initialise();
    std::vector<double> seconds;
    double flops = 0;
    FloorBench floor(floor_args(config));
    for (std::int64_t step = 0; step < options.warmup + options.steps; ++step) {
        const data::Batch batch = random_tokens(config, step);
        if (step == options.warmup) engine.backend().account().reset();
        const double begin = core::now_s();
        const train::StepResult result = engine.train_step(batch, config.batch.micro_batch_size, 1e-4);
        if (step < options.warmup) continue;
        seconds.push_back(core::now_s() - begin);
        flops = result.model_flops;
        if (!options.csv) floor.measure();
    }
    const auto tokens = static_cast<double>(config.batch.global_batch_size * config.model.seq_length);
    const double step_s = median(seconds);
    if (options.csv) {
        print_csv(engine, tokens / step_s, step_s, flops);
        return 0;
    }
    std::printf("%s\n", engine.backend().description().c_str());
    std::printf("%lld parameters, %lld x %lld tokens a step in micro-batches of %lld, %s\n",
                static_cast<long long>(layers::parameter_count(engine.model().config())),
                static_cast<long long>(config.batch.global_batch_size), static_cast<long long>(config.model.seq_length),
                static_cast<long long>(config.batch.micro_batch_size),
                std::string(core::name_of(config.precision.dtype)).c_str());
    std::printf(
            "step: median %.1f ms of %lld (least %.1f, most %.1f): %.1f tokens/s, %.4f model TFLOP/s (causal half, no "
            "recomputation)\n",
            step_s * 1e3, static_cast<long long>(options.steps),
            *std::min_element(seconds.begin(), seconds.end()) * 1e3,
            *std::max_element(seconds.begin(), seconds.end()) * 1e3, tokens / step_s, flops / step_s / 1e12);
    print_floor(floor.result(), step_s);
    const train::Profile profile{.operations = engine.backend().account(),
                                 .steps = options.steps,
                                 .seconds = std::accumulate(seconds.begin(), seconds.end(), 0.0),
                                 .memory = engine.pool().statistics(),
                                 .saved_bytes = engine.peak_saved_bytes()};
    std::printf("\n%s\n%s", train::operation_table(profile).c_str(), train::memory_table(profile).c_str());
    return 0;
}

}  // namespace tessera::apps

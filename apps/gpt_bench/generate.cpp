#include "gpt_bench/generate.h"

#include <cstdio>

#include "core/clock.h"
#include "gpt_bench/floor.h"
#include "train/generation.h"
#include "train/settings.h"

namespace tessera::apps {
namespace {

/// Bytes of the matrices that one token multiplies by: an untied embedding and learned positions give one row each.
double weight_bytes(const layers::ModelConfig& model) {
    double elements = 0;
    for (const Product& product : products_of(model)) {
        elements += static_cast<double>(product.inputs * product.outputs * product.count);
    }
    return elements * static_cast<double>(core::size_of(model.dtype));
}

}  // namespace

int bench_generate(const StepOptions& options) {
    const train::Config config = load_bench_config(options);
    if (options.warmup + options.steps >= config.model.seq_length) {
        core::raise<core::UsageError>("{} + {} tokens do not fit the context of {} (model.seq_length)", options.warmup,
                                      options.steps, config.model.seq_length);
    }
    train::Engine engine(train::engine_settings(config));
    engine.initialise();
    const double bytes = weight_bytes(engine.model().config());
    const auto bandwidth_now = [&] { return measure_read_bandwidth(engine.backend(), engine.stream(), bytes); };
    std::vector<double> seconds;
    std::vector<double> bandwidths;
    double last = core::now_s();
    const auto on_token = [&](std::int32_t) {
        seconds.push_back(core::now_s() - last);
        // Between tokens, so that both see the same machine.
        if (seconds.size() % 16 == 0) bandwidths.push_back(bandwidth_now());
        last = core::now_s();
    };
    const train::GenerationRequest request{
            .prompt = {0}, .max_new_tokens = options.warmup + options.steps, .stop_ids = {}, .sampling = {.seed = 1}};
    train::generate(engine, request, on_token);
    seconds.erase(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(options.warmup));
    bandwidths.push_back(bandwidth_now());
    const double token_s = median(seconds);
    const double bandwidth = median(bandwidths);
    if (options.csv) {
        std::printf("tokens_per_s,floor_tokens_per_s\n%.2f,%.2f\n", 1 / token_s, bandwidth / bytes);
        return 0;
    }
    std::printf("%s\n", engine.backend().description().c_str());
    std::printf("generation, batch 1: median %.2f ms a token of %lld: %.1f tokens/s\n", token_s * 1e3,
                static_cast<long long>(options.steps), 1 / token_s);
    std::printf("floor: %.1f MiB of weights a token at %.1f GB/s: %.1f tokens/s; generation reaches %.1f %% of it\n",
                bytes / (1 << 20), bandwidth / 1e9, bandwidth / bytes, 100 * bytes / bandwidth / token_s);
    return 0;
}

}  // namespace tessera::apps

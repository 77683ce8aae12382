#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "train/config.h"

namespace tessera::apps {

struct StepOptions {
    std::string config;
    std::vector<std::string> overrides;
    std::int64_t steps = 5;
    std::int64_t warmup = 2;
    bool csv = false;
};

/// The config with its overrides, threads set. Throws UsageError if the vocabulary is left to the data.
train::Config load_bench_config(const StepOptions& options);

/// Times whole optimizer steps (forward, backward, clipping, AdamW) on random tokens and prints the account.
int bench_step(const StepOptions& options);

}  // namespace tessera::apps

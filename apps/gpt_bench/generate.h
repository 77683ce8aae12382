#pragma once
#include "gpt_bench/step.h"

namespace tessera::apps {

/// Times generation of one sequence with a KV cache, token by token, and prints it beside the floor: every weight
/// matrix read once a token at the measured bandwidth of reading. options.steps tokens are measured.
int bench_generate(const StepOptions& options);

}  // namespace tessera::apps

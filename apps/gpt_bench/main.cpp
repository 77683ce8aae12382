#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "common/program.h"
#include "core/error.h"
#include "gpt_bench/step.h"

namespace {

using namespace tessera;

int run(int argc, char** argv) {
    CLI::App app("Measures Tessera.");
    app.require_subcommand(1);
    app.set_version_flag("--version", apps::version_line("gpt_bench"));
    apps::StepOptions options;
    CLI::App* step = app.add_subcommand("step", "a training step: tokens/s, TFLOP/s, time by operation, memory");
    step->add_option("CONFIG", options.config, "the run's TOML file; no data is needed")->required();
    step->add_option("--steps", options.steps, "measured steps")->capture_default_str()->check(CLI::PositiveNumber);
    step->add_option("--warmup", options.warmup, "steps before")->capture_default_str()->check(CLI::NonNegativeNumber);
    step->add_flag("--csv", options.csv, "one line of figures for scripts");
    step->allow_extras();
    step->footer(
            "Examples:\n"
            "  gpt_bench step configs/gpt2_124m.toml --steps 5\n"
            "  gpt_bench step configs/gpt2_124m.toml --batch.global_batch_size=1 --model.seq_length=1024");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return apps::end_of_parsing(app, error);
    }
    options.overrides = step->remaining();
    return apps::bench_step(options);
}

}  // namespace

int main(int argc, char** argv) {
    return apps::run_program("gpt_bench", [&] { return run(argc, argv); });
}

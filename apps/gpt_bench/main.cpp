#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "common/config_keys.h"
#include "common/program.h"
#include "common/whole_number.h"
#include "core/error.h"
#include "gpt_bench/generate.h"
#include "gpt_bench/step.h"

namespace {

using namespace tessera;

CLI::App* add_command(CLI::App& app, const std::string& name, const std::string& description, const std::string& unit,
                      apps::StepOptions& options) {
    CLI::App* command = app.add_subcommand(name, description);
    command->add_option("CONFIG", options.config, "the run's TOML file; no data is needed")->required();
    command->add_option("--" + unit, options.steps, "measured " + unit)
            ->capture_default_str()
            ->check(apps::whole_number<std::int64_t>(1));
    command->add_option("--warmup", options.warmup, unit + " before")
            ->capture_default_str()
            ->check(apps::whole_number<std::int64_t>(0));
    command->add_flag("--csv", options.csv, "one line of figures for scripts");
    command->allow_extras();
    return command;
}

int run(int argc, char** argv) {
    CLI::App app("Measures Tessera.");
    app.require_subcommand(1);
    apps::set_up_program(app, "gpt_bench", apps::completed_config_keys());
    apps::StepOptions step_options;
    apps::StepOptions generate_options{.config = {}, .overrides = {}, .steps = 64, .warmup = 8};
    CLI::App* step =
            add_command(app, "step", "a training step: tokens/s, share of the floor, time by operation, memory",
                        "steps", step_options);
    step->footer(
            "Examples:\n"
            "  gpt_bench step configs/gpt2_124m.toml --steps 5\n"
            "  gpt_bench step configs/gpt2_124m.toml --model.seq_length=1024 --csv");
    CLI::App* generate = add_command(app, "generate", "generation with a KV cache: tokens/s beside the bandwidth floor",
                                     "tokens", generate_options);
    generate->footer(
            "Examples:\n"
            "  gpt_bench generate configs/gpt2_124m.toml --tokens 128\n"
            "  gpt_bench generate configs/gpt2_124m.toml --precision.dtype=bf16");
    app.footer(
            "Examples:\n"
            "  gpt_bench step configs/gpt2_124m.toml --steps 5\n"
            "  gpt_bench generate configs/gpt2_124m.toml --tokens 128");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return apps::end_of_parsing(app, error);
    }
    if (generate->parsed()) {
        generate_options.overrides = generate->remaining();
        return apps::bench_generate(generate_options);
    }
    step_options.overrides = step->remaining();
    return apps::bench_step(step_options);
}

}  // namespace

int main(int argc, char** argv) {
    return apps::run_program("gpt_bench", [&] { return run(argc, argv); });
}

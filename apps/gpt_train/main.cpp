#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>

#include "common/program.h"
#include "core/log.h"
#include "train/training_run.h"

namespace {

using namespace tessera;

// A signal handler can reach nothing but a global.
train::StopRequest stop_request;

void on_signal(int signal) {
    stop_request.request(signal);
}

void install_signal_handlers() {
    struct sigaction action {};
    action.sa_handler = on_signal;
    sigemptyset(&action.sa_mask);
    for (const int signal : {SIGTERM, SIGUSR1, SIGINT}) {
        // A second interrupt from the keyboard ends the program at once.
        action.sa_flags = signal == SIGINT ? static_cast<int>(SA_RESETHAND) : 0;
        sigaction(signal, &action, nullptr);
    }
}

void print_summary(const train::RunSummary& summary) {
    if (summary.steps == 0) {
        std::printf(
                "nothing was trained: the run is at its last step; raise run.train_steps, or start anew with "
                "--checkpoint.resume=none\n");
        return;
    }
    std::printf("trained %lld steps, %lld tokens in %.1f s: %.0f tokens/s (waiting for data: %.1f %%), loss %.4f\n",
                static_cast<long long>(summary.steps), static_cast<long long>(summary.tokens), summary.seconds,
                summary.seconds > 0 ? static_cast<double>(summary.tokens) / summary.seconds : 0.0,
                summary.seconds > 0 ? 100 * summary.data_wait_seconds / summary.seconds : 0.0, summary.last_loss);
    if (summary.skipped_steps > 0) std::printf("skipped steps: %lld\n", static_cast<long long>(summary.skipped_steps));
    if (summary.validation) {
        std::printf("validation: loss %.4f, perplexity %.2f", summary.validation->loss, summary.validation->perplexity);
        if (summary.validation->bits_per_byte) std::printf(", bits per byte %.4f", *summary.validation->bits_per_byte);
        std::printf("\n");
    }
    std::printf("peak memory: %.1f MiB\n", static_cast<double>(summary.peak_bytes) / (1 << 20));
    if (!summary.loss_curve.empty()) std::printf("loss curve: %s\n", summary.loss_curve.c_str());
    if (!summary.checkpoint.empty()) std::printf("checkpoint: %s\n", summary.checkpoint.c_str());
}

int run(int argc, char** argv) {
    CLI::App app("Trains a GPT from a TOML config. Any key can be overridden: --section.key=value.");
    app.footer(
            "Examples:\n"
            "  gpt_train configs/quickstart.toml\n"
            "  gpt_train configs/gpt2_124m.toml --run.train_steps=100 --optimizer.lr=3e-4\n"
            "  gpt_train configs/quickstart.toml --checkpoint.resume=none --run.directory=/tmp/other\n"
            "  gpt_train configs/quickstart.toml --dry-run\n"
            "Exit codes: 0 done, 1 the run failed, 2 usage, config or data error,\n"
            "75 stopped by a signal or by run.exit_minutes after saving.\n"
            "SIGTERM, SIGUSR1 and Ctrl-C finish the step, save a checkpoint and stop.");
    std::string config_path;
    bool dry_run = false;
    bool reference = false;
    app.add_option("CONFIG", config_path, "the run's TOML file");
    app.add_flag("--dry-run", dry_run, "check config, data and resume point, say what would happen, and exit");
    app.add_flag("--config-reference", reference, "print every config key as Markdown and exit");
    app.set_version_flag("--version", apps::version_line("gpt_train"));
    app.allow_extras();
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return apps::end_of_parsing(app, error);
    }
    if (reference) {
        std::printf("%s", train::config_reference().c_str());
        return 0;
    }
    std::vector<std::string> overrides;
    for (const std::string& extra : app.remaining()) {
        if (extra.rfind("--", 0) != 0 || extra.find('.') == std::string::npos || extra.find('=') == std::string::npos) {
            core::raise<core::UsageError>("'{}' is neither an option nor an override of the form --section.key=value",
                                          extra);
        }
        overrides.push_back(extra);
    }
    if (config_path.empty())
        core::raise<core::UsageError>("no config given; try gpt_train configs/quickstart.toml, or --help");
    train::TrainingRun training(train::load_config(config_path, overrides));
    if (dry_run) {
        for (const std::string& line : training.describe()) std::printf("%s\n", line.c_str());
        return 0;
    }
    install_signal_handlers();
    const train::RunSummary summary = training.run(stop_request);
    print_summary(summary);
    return static_cast<int>(summary.exit_code);
}

}  // namespace

int main(int argc, char** argv) {
    return apps::run_program("gpt_train", [&] { return run(argc, argv); });
}

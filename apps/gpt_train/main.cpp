#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <cstdio>

#include "common/config_keys.h"
#include "common/program.h"
#include "core/log.h"
#include "core/signal_watcher.h"
#include "train/training_run.h"

namespace {

using namespace tessera;

/// The signals that end a run, and what they do: the first one asks for a save, if there is yet anything to save.
class StopSignals {
public:
    const train::StopRequest& request() const { return request_; }
    void training_begins() { training_.store(true); }

private:
    void take(int signal) {
        // A second interrupt from the keyboard ends the program at once.
        const bool impatient = signal == SIGINT && interrupted_.exchange(true);
        if (!training_.load() || impatient) apps::die_of_signal(signal);
        request_.request(signal);
    }

    train::StopRequest request_;
    std::atomic<bool> training_{false};
    std::atomic<bool> interrupted_{false};
    core::SignalWatcher watcher_{{SIGTERM, SIGUSR1, SIGINT}, [this](int signal) { take(signal); }};
};

int run(int argc, char** argv) {
    CLI::App app("Trains a GPT from a TOML config. Any key can be overridden: --section.key=value.");
    apps::set_up_program(app, "gpt_train", apps::completed_config_keys());
    app.footer(
            "Examples:\n"
            "  gpt_train configs/quickstart.toml\n"
            "  gpt_train configs/gpt2_124m.toml --run.train_steps=100 --optimizer.lr=3e-4\n"
            "  gpt_train configs/quickstart.toml --checkpoint.resume=none --profile\n"
            "Exit codes: 0 done, 1 the run failed, 2 usage, config or data error,\n"
            "75 stopped by a signal or by run.exit_minutes after saving.\n"
            "SIGTERM, SIGUSR1 and Ctrl-C finish the step, save a checkpoint and stop.");
    std::string config_path;
    bool dry_run = false;
    bool profile = false;
    bool reference = false;
    app.add_option("CONFIG", config_path, "the run's TOML file");
    app.add_flag("--dry-run", dry_run, "check config, data and resume point, say what would happen, and exit");
    app.add_flag("--profile", profile, "at the end, print tables of time and memory by operation");
    app.add_flag("--config-reference", reference, "print every config key as Markdown and exit");
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
    StopSignals stop;  // Before the run's threads, which inherit what it blocks.
    train::TrainingRun training(train::load_config(config_path, overrides));
    if (dry_run) {
        for (const std::string& line : training.describe()) std::printf("%s\n", line.c_str());
        return 0;
    }
    stop.training_begins();
    const train::RunSummary summary = training.run(stop.request());
    std::fputs(train::summary_text(summary).c_str(), stdout);
    if (profile) std::fputs(train::profile_text(summary).c_str(), stdout);
    return static_cast<int>(summary.exit_code);
}

}  // namespace

int main(int argc, char** argv) {
    return apps::run_program("gpt_train", [&] { return run(argc, argv); });
}

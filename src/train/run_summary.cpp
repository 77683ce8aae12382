#include "train/run_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "train/progress.h"

namespace tessera::train {
namespace {

double percent(double part, double whole) {
    return whole > 0 ? 100 * part / whole : 0.0;
}

std::string seconds_text(double seconds) {
    return seconds < 100 ? fmt::format("{:.1f} s", seconds) : format_duration(seconds);
}

std::string mib_text(std::int64_t bytes) {
    return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

std::string line(std::string_view name, const std::string& text) {
    return fmt::format("{:<12} {}\n", name, text);
}

double rest_seconds(const RunSummary& summary) {
    return std::max(0.0, summary.wall_seconds - summary.seconds - summary.evaluation_seconds - summary.saving_seconds);
}

std::string evaluation_text(const EvaluationMetrics& metrics) {
    std::string text = fmt::format("loss {:.4f}, perplexity {:.2f}", metrics.loss, metrics.perplexity);
    if (metrics.bits_per_byte) text += fmt::format(", bits per byte {:.4f}", *metrics.bits_per_byte);
    return fmt::format("{}, at step {}", text, metrics.step);
}

/// The last evaluation of this process, and the best of the run if that is another.
std::string validation_text(const RunSummary& summary) {
    const std::optional<EvaluationMetrics>& last = summary.validation;
    const std::optional<EvaluationMetrics>& best = summary.best_validation;
    const bool last_is_best = last && best && last->step == best->step;
    std::string text;
    if (last) text += line("validation", evaluation_text(*last) + (last_is_best ? " (the best)" : ""));
    if (best && !last_is_best) text += line("best", evaluation_text(*best));
    return text;
}

std::string head_text(const RunSummary& summary) {
    const bool stopped = summary.last_step < summary.total_steps;
    const std::string where = fmt::format("step {} of {}", summary.last_step, summary.total_steps);
    if (summary.steps > 0) {
        return fmt::format("{} {}: trained {} steps, {} tokens; last loss {:.4f}\n",
                           stopped ? "stopped after" : "finished at", where, summary.steps, summary.tokens,
                           summary.last_loss);
    }
    if (stopped) return fmt::format("stopped after {}: nothing was trained\n", where);
    return "nothing was trained: the run is at its last step; raise run.train_steps, or start anew with "
           "--checkpoint.resume=none\n";
}

}  // namespace

std::string summary_text(const RunSummary& summary) {
    std::string text = head_text(summary);
    if (summary.steps == 0) return text;
    text += line("time",
                 fmt::format("{}: steps {} ({:.1f} %), evaluation {}, saving {}, other {}",
                             seconds_text(summary.wall_seconds), seconds_text(summary.seconds),
                             percent(summary.seconds, summary.wall_seconds), seconds_text(summary.evaluation_seconds),
                             seconds_text(summary.saving_seconds), seconds_text(rest_seconds(summary))));
    const double rate = summary.seconds > 0 ? 1 / summary.seconds : 0.0;
    text += line("in steps", fmt::format("{:.0f} tokens/s, {:.1f} model GFLOP/s, waiting for data {:.1f} %",
                                         static_cast<double>(summary.tokens) * rate, summary.model_flops * rate / 1e9,
                                         percent(summary.data_wait_seconds, summary.seconds)));
    if (summary.ceiling.flops_s > 0) {
        text += line("utilisation", fmt::format("{:.1f} % of {:.1f} GFLOP/s, the best matrix product now ({}, {} x {})",
                                                percent(summary.model_flops * rate, summary.ceiling.flops_s),
                                                summary.ceiling.flops_s / 1e9, core::name_of(summary.ceiling.dtype),
                                                summary.ceiling.size, summary.ceiling.size));
    }
    text += validation_text(summary);
    if (summary.skipped_steps > 0) text += line("skipped", fmt::format("{} steps", summary.skipped_steps));
    text += line("peak memory", fmt::format("{} of tensors, {} resident", mib_text(summary.profile.memory.peak_bytes),
                                            mib_text(summary.profile.peak_resident_bytes)));
    if (!summary.loss_curve.empty()) text += line("loss curve", summary.loss_curve);
    if (!summary.checkpoint.empty()) text += line("checkpoint", summary.checkpoint);
    if (!summary.tensorboard.empty()) text += line("TensorBoard", summary.tensorboard);
    return text;
}

std::string profile_text(const RunSummary& summary) {
    if (summary.steps == 0) return {};
    std::string text = "\n" + operation_table(summary.profile) + "\n" + memory_table(summary.profile) + "\n";
    text += fmt::format("{:<36} {:>11} {:>7}\n", "time of the run", "s", "share");
    const auto row = [&](std::string_view name, double seconds) {
        text += fmt::format("{:<36} {:>11.2f} {:>6.1f}%\n", name, seconds, percent(seconds, summary.wall_seconds));
    };
    row("steps", summary.seconds);
    row("evaluation", summary.evaluation_seconds);
    row("saving", summary.saving_seconds);
    row("other: starting, logging, drawing", rest_seconds(summary));
    row("whole run", summary.wall_seconds);
    return text;
}

std::optional<EvaluationMetrics> best_evaluation(const MetricsHistory& history) {
    std::optional<EvaluationMetrics> best;
    for (const EvaluationMetrics& metrics : history.evaluations) {
        if (std::isfinite(metrics.loss) && (!best || metrics.loss < best->loss)) best = metrics;
    }
    return best;
}

}  // namespace tessera::train

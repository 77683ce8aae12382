#include "train/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/clock.h"

namespace tessera::train {
namespace {

constexpr double kSecondsBetweenDraws = 0.1;
constexpr std::int64_t kWidestBar = 30;
constexpr std::int64_t kNarrowestBar = 5;

/// Characters, not bytes: continuation bytes of UTF-8 do not count.
std::int64_t width_of(std::string_view text) {
    return std::count_if(text.begin(), text.end(),
                         [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

std::string bar_of(double fraction, std::int64_t width) {
    constexpr std::string_view kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    const auto eighths = static_cast<std::int64_t>(std::floor(fraction * static_cast<double>(width) * 8));
    const std::int64_t full = std::min(eighths / 8, width);
    std::string bar = "▕";
    for (std::int64_t i = 0; i < full; ++i) bar += "█";
    std::int64_t used = full;
    if (full < width && eighths % 8 != 0) {
        bar += kEighths[eighths % 8];
        ++used;
    }
    bar.append(static_cast<std::size_t>(width - used), ' ');
    return bar + "▏";
}

std::string format_rate(double tokens_per_s) {
    if (tokens_per_s >= 1e6) return fmt::format("{:.2f}M tok/s", tokens_per_s / 1e6);
    if (tokens_per_s >= 1e4) return fmt::format("{:.1f}k tok/s", tokens_per_s / 1e3);
    return fmt::format("{:.0f} tok/s", tokens_per_s);
}

std::string first_characters(const std::string& text, std::int64_t count) {
    std::string result;
    for (const char c : text) {
        const bool starts = (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
        if (starts && count-- <= 0) break;
        result += c;
    }
    return result;
}

std::int64_t columns_of(int fd) {
    winsize size{};
    if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    return 80;
}

}  // namespace

std::string format_duration(double seconds) {
    const auto total = static_cast<std::int64_t>(std::llround(std::max(0.0, std::min(seconds, 1e12))));
    const std::int64_t days = total / 86400;
    const std::int64_t hours = total / 3600 % 24;
    const std::int64_t minutes = total / 60 % 60;
    if (days > 0) return fmt::format("{}d {:02}:{:02}", days, hours, minutes);
    if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, total % 60);
    return fmt::format("{}:{:02}", minutes, total % 60);
}

std::string render_progress(const ProgressView& view, std::int64_t columns) {
    const StepMetrics& step = view.step;
    const double fraction =
            step.total_steps > 0
                    ? std::clamp(static_cast<double>(step.step) / static_cast<double>(step.total_steps), 0.0, 1.0)
                    : 0.0;
    const std::int64_t room = std::max<std::int64_t>(columns - 1, 1);
    const std::string head = fmt::format("train {:3d}%", static_cast<int>(std::floor(fraction * 100)));
    const std::string loss = fmt::format("loss {:.4f}", step.loss);
    std::vector<std::string> parts = {fmt::format(" {}/{}", step.step, step.total_steps), loss};
    if (step.tokens_per_s > 0) parts.push_back(format_rate(step.tokens_per_s));
    const bool has_rate = parts.size() > 2;
    if (view.seconds_left >= 0) parts.push_back(fmt::format("left {}", format_duration(view.seconds_left)));
    const auto joined = [&] {
        std::string text;
        for (std::size_t i = 0; i < parts.size(); ++i) text += (i == 0 ? "" : "  ") + parts[i];
        return text;
    };
    const auto fits = [&] { return width_of(head) + width_of(joined()) <= room; };
    if (!fits() && has_rate) parts.erase(parts.begin() + 2);
    if (!fits() && parts.size() > 2) parts.pop_back();
    if (!fits()) parts = {fmt::format("  {}", loss)};
    if (!fits()) return first_characters(fmt::format("{}% {:.3f}", static_cast<int>(fraction * 100), step.loss), room);
    const std::int64_t bar_room = std::min(kWidestBar, room - width_of(head) - width_of(joined()) - 3);
    const std::string bar = bar_room >= kNarrowestBar ? fmt::format(" {}", bar_of(fraction, bar_room)) : std::string();
    return head + bar + joined();
}

ProgressStyle resolve_progress(ProgressStyle style, int fd) {
    if (style != ProgressStyle::automatic) return style;
    return ::isatty(fd) == 1 ? ProgressStyle::bar : ProgressStyle::lines;
}

ProgressBar::ProgressBar(int fd, std::int64_t start_step, std::int64_t total_steps)
    : fd_(fd), start_step_(start_step), start_s_(core::now_s()) {
    view_.step.total_steps = total_steps;
}

ProgressBar::~ProgressBar() {
    finish();
}

void ProgressBar::put(std::string_view text) const {
    while (!text.empty()) {
        const ssize_t written = ::write(fd_, text.data(), text.size());
        if (written <= 0) return;
        text.remove_prefix(static_cast<std::size_t>(written));
    }
}

void ProgressBar::draw() {
    put(fmt::format("\r{}\x1b[K", render_progress(view_, columns_of(fd_))));
    visible_ = true;
    drawn_s_ = core::now_s();
}

void ProgressBar::update(const StepMetrics& metrics) {
    const std::int64_t total = view_.step.total_steps;
    view_.step = metrics;
    view_.step.total_steps = total;
    const std::int64_t done = metrics.step - start_step_;
    if (done > 0) {
        const double elapsed = core::now_s() - start_s_;
        if (start_samples_ < 0) start_samples_ = metrics.consumed_samples - metrics.global_batch_size * done;
        const std::int64_t samples = metrics.consumed_samples - start_samples_;
        const bool by_samples = metrics.total_samples > 0 && samples > 0;
        const double per_unit = elapsed / static_cast<double>(by_samples ? samples : done);
        const std::int64_t left = by_samples ? metrics.total_samples - metrics.consumed_samples : total - metrics.step;
        view_.seconds_left = per_unit * static_cast<double>(std::max<std::int64_t>(0, left));
    }
    has_state_ = true;
    finished_ = false;
    if (!visible_ || core::now_s() - drawn_s_ >= kSecondsBetweenDraws) draw();
}

void ProgressBar::clear() {
    if (!visible_) return;
    put("\r\x1b[K");
    visible_ = false;
}

void ProgressBar::message(std::string_view text) {
    clear();
    put(std::string(text) + "\n");
    if (has_state_ && !finished_) draw();
}

void ProgressBar::log(core::LogLevel level, std::string_view text) {
    clear();
    core::log(level, text);
    if (has_state_ && !finished_) draw();
}

void ProgressBar::finish() {
    if (!has_state_ || finished_) return;
    draw();
    put("\n");
    visible_ = false;
    finished_ = true;
}

}  // namespace tessera::train

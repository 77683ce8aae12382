#include "progress_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "core/clock.h"

namespace tessera::apps {
namespace {

constexpr int kBarWidth = 30;
constexpr double kTerminalInterval_s = 0.1;
constexpr double kLogInterval_s = 10;

}  // namespace

ProgressBar::ProgressBar() : on_terminal_(isatty(STDERR_FILENO) == 1), start_s_(core::now_s()), last_s_(start_s_) {}

void ProgressBar::update(double fraction, const std::string& details) {
    const double now = core::now_s();
    if (now - last_s_ < (on_terminal_ ? kTerminalInterval_s : kLogInterval_s)) return;
    last_s_ = now;
    fraction = std::clamp(fraction, 0.0, 1.0);
    const double left = fraction > 0 ? (now - start_s_) * (1 - fraction) / fraction : 0;
    const auto filled = static_cast<int>(fraction * kBarWidth);
    if (on_terminal_) {
        fmt::print(stderr, "\r[{:#<{}}{:.<{}}] {:3.0f} % {} | {:.0f} s left \x1b[K", "", filled, "", kBarWidth - filled,
                   100 * fraction, details, left);
        line_open_ = true;
    } else {
        fmt::print(stderr, "{:3.0f} % {} | {:.0f} s left\n", 100 * fraction, details, left);
    }
    std::fflush(stderr);
}

void ProgressBar::finish() {
    if (line_open_) fmt::print(stderr, "\r\x1b[K");
    line_open_ = false;
}

}  // namespace tessera::apps

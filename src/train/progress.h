#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "core/log.h"
#include "train/config.h"
#include "train/metrics.h"

namespace tessera::train {

/// What the progress line shows.
struct ProgressView {
    StepMetrics step;
    double seconds_left = -1;  ///< negative: not known yet
};

/// One line of at most `columns` - 1 characters, for example
/// `train  42% ▕████████▏ 420/1000  loss 3.214  12.3k tok/s  left 1:02:03`; on a narrow terminal the bar shrinks, then
/// parts are left out from the right: tokens/s, time left, the step count; loss and percentage last.
std::string render_progress(const ProgressView& view, std::int64_t columns);

/// "3 s" -> "0:03", 3723 -> "1:02:03", days as "2d 03:04".
std::string format_duration(double seconds);

/// `automatic` becomes bar on a terminal and lines elsewhere.
ProgressStyle resolve_progress(ProgressStyle style, int fd);

/// A progress line on a terminal, drawn over itself at most ten times a second. Messages go above it: clear() before
/// anything else writes to the terminal, or message() / log(). The finished line stays.
class ProgressBar {
public:
    /// start_step: steps already done before this process began; the time left is judged from this process's own speed,
    /// evaluation and saving included, by the samples still to come if the metrics know them (batches may grow).
    ProgressBar(int fd, std::int64_t start_step, std::int64_t total_steps);
    ~ProgressBar();
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;

    void update(const StepMetrics& metrics);
    /// A line of text above the bar.
    void message(std::string_view text);
    /// A log message above the bar.
    void log(core::LogLevel level, std::string_view text);
    /// Takes the bar off the screen until the next update.
    void clear();
    /// Draws the last state and moves to the next line. Called by the destructor.
    void finish();

private:
    void draw();
    void put(std::string_view text) const;

    int fd_;
    std::int64_t start_step_;
    std::int64_t start_samples_ = -1;
    ProgressView view_;
    double start_s_;
    double drawn_s_ = -1;
    bool has_state_ = false;
    bool visible_ = false;
    bool finished_ = false;
};

}  // namespace tessera::train

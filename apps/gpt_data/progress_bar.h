#pragma once
#include <cstdint>
#include <string>

namespace tessera::apps {

/// Progress on stderr: one line rewritten on a terminal, a plain line every 10 seconds otherwise.
class ProgressBar {
public:
    ProgressBar();
    ~ProgressBar() { finish(); }
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;
    /// fraction in [0, 1]; `details` follows the bar.
    void update(double fraction, const std::string& details);
    /// Clears the line on a terminal, so that messages start on an empty one.
    void finish();

private:
    bool on_terminal_;
    bool line_open_ = false;
    double start_s_;
    double last_s_;
};

}  // namespace tessera::apps

#pragma once
#include <cstdint>
#include <string>

namespace tessera::apps {

/// Progress on stderr: one line rewritten on a terminal, a plain line every 10 seconds otherwise.
class ProgressBar {
public:
    ProgressBar();
    /// fraction in [0, 1]; `details` follows the bar.
    void update(double fraction, const std::string& details);
    /// Ends the line on a terminal.
    void finish();

private:
    bool on_terminal_;
    bool line_open_ = false;
    double start_s_;
    double last_s_;
};

}  // namespace tessera::apps

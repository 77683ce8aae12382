#include "train/progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

namespace tessera::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

ProgressView view_at(std::int64_t step, double seconds_left) {
    ProgressView view;
    view.step.step = step;
    view.step.total_steps = 1000;
    view.step.loss = 3.21456;
    view.step.tokens_per_s = 12345;
    view.seconds_left = seconds_left;
    return view;
}

std::int64_t characters(const std::string& text) {
    return std::count_if(text.begin(), text.end(),
                         [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

TEST(Progress, ShowsEverythingOnAWideTerminal) {
    EXPECT_EQ(render_progress(view_at(420, 3723), 120),
              "train  42% ▕████████████▌                 ▏ 420/1000  loss 3.2146  12.3k tok/s  left 1:02:03");
    EXPECT_THAT(render_progress(view_at(1000, 0), 100),
                AllOf(HasSubstr("100% ▕██"), HasSubstr("█▏ 1000/1000"), HasSubstr("left 0:00")));
    EXPECT_THAT(render_progress(view_at(0, -1), 100), AllOf(HasSubstr("  0%"), Not(HasSubstr("left"))));
}

TEST(Progress, NeverWiderThanTheTerminal) {
    for (std::int64_t columns = 1; columns <= 200; ++columns) {
        for (const std::int64_t step :
             {std::int64_t{0}, std::int64_t{1}, std::int64_t{420}, std::int64_t{999}, std::int64_t{1000}}) {
            EXPECT_LE(characters(render_progress(view_at(step, 1e6), columns)), std::max<std::int64_t>(columns - 1, 1))
                    << columns;
        }
    }
    EXPECT_EQ(render_progress(view_at(420, 60), 25), "train  42%  loss 3.2146");
    EXPECT_THAT(render_progress(view_at(420, 60), 48), AllOf(HasSubstr("left 1:00"), Not(HasSubstr("tok/s"))));
}

TEST(Progress, Durations) {
    EXPECT_EQ(format_duration(3), "0:03");
    EXPECT_EQ(format_duration(59.6), "1:00");
    EXPECT_EQ(format_duration(3723), "1:02:03");
    EXPECT_EQ(format_duration(2 * 86400 + 3 * 3600 + 4 * 60), "2d 03:04");
    EXPECT_EQ(format_duration(-1), "0:00");
}

TEST(Progress, AutomaticAsksTheTerminal) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    EXPECT_EQ(resolve_progress(ProgressStyle::automatic, ends[1]), ProgressStyle::lines);
    EXPECT_EQ(resolve_progress(ProgressStyle::bar, ends[1]), ProgressStyle::bar);
    ::close(ends[0]);
    ::close(ends[1]);
}

/// A terminal of 60 columns, without a person.
class Terminal {
public:
    Terminal() {
        main_ = ::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
        ::grantpt(main_);
        ::unlockpt(main_);
        fd_ = ::open(::ptsname(main_), O_RDWR | O_NOCTTY);
        const winsize size{.ws_row = 24, .ws_col = 60, .ws_xpixel = 0, .ws_ypixel = 0};
        ::ioctl(fd_, TIOCSWINSZ, &size);
    }
    ~Terminal() {
        ::close(fd_);
        ::close(main_);
    }
    int fd() const { return fd_; }
    /// Everything written so far: what comes before a mark of our own.
    std::string seen() const {
        constexpr char kMark = '\x01';
        std::string text;
        if (::write(fd_, &kMark, 1) != 1) return "no terminal";
        for (char c = 0; c != kMark;) {
            pollfd ready{.fd = main_, .events = POLLIN, .revents = 0};
            if (::poll(&ready, 1, 10000) != 1 || ::read(main_, &c, 1) != 1) return text + "<nothing more>";
            if (c != kMark) text += c;
        }
        return text;
    }

private:
    int main_ = -1;
    int fd_ = -1;
};

TEST(Progress, BarIsDrawnOverItselfAndMessagesGoAboveIt) {
    Terminal terminal;
    if (terminal.fd() < 0) GTEST_SKIP() << "no pseudo-terminals here";
    EXPECT_EQ(resolve_progress(ProgressStyle::automatic, terminal.fd()), ProgressStyle::bar);
    ProgressBar bar(terminal.fd(), 0, 1000);
    bar.message("before any step");
    EXPECT_EQ(terminal.seen(), "before any step\r\n");
    bar.update(view_at(1, 0).step);
    const std::string first = terminal.seen();
    EXPECT_THAT(first, AllOf(testing::StartsWith("\rtrain   0%"), testing::EndsWith("\x1b[K"), Not(HasSubstr("\n"))));
    EXPECT_LE(characters(first), 60 + 4);
    bar.update(view_at(2, 0).step);
    terminal.seen();
    bar.message("saved");
    EXPECT_THAT(terminal.seen(), AllOf(testing::StartsWith("\r\x1b[Ksaved\r\n\rtrain"), HasSubstr("2/1000")));
    bar.clear();
    EXPECT_EQ(terminal.seen(), "\r\x1b[K");
    bar.clear();
    EXPECT_EQ(terminal.seen(), "");
    bar.update(view_at(1000, 0).step);
    terminal.seen();
    bar.finish();
    EXPECT_THAT(terminal.seen(), AllOf(HasSubstr("100%"), testing::EndsWith("\x1b[K\r\n")));
    bar.finish();
    EXPECT_EQ(terminal.seen(), "");
}

/// The first of two sizes is a tenth of the second: half of the steps are far less than half of the time.
TEST(Progress, TimeLeftFollowsTheSamplesOfAGrowingBatch) {
    Terminal terminal;
    if (terminal.fd() < 0) GTEST_SKIP() << "no pseudo-terminals here";
    ProgressBar bar(terminal.fd(), 0, 20);
    std::this_thread::sleep_for(std::chrono::seconds(1));
    StepMetrics step = view_at(10, 0).step;
    step.global_batch_size = 10;
    step.consumed_samples = 100;
    step.total_samples = 1100;
    step.tokens_per_s = 0;
    bar.update(step);
    // A second and a bit for 100 samples: at least ten for the other 1000. By steps it would be one or two.
    const std::string text = terminal.seen();
    const std::size_t at = text.find("left 0:");
    ASSERT_NE(at, std::string::npos) << text;
    EXPECT_GE(std::stoi(text.substr(at + 7, 2)), 10) << text;
}

}  // namespace
}  // namespace tessera::train

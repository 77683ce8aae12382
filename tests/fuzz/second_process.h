#pragma once
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

extern "C" {
// Of the sanitizer's runtime, where there is one.
__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());
__attribute__((weak)) void __sanitizer_set_report_fd(void* descriptor);
}

namespace tessera::fuzz {

/// Runs `body(path)` in a child process that stays for the next call; one that dies of it is replaced.
class SecondProcess {
public:
    SecondProcess(void (*body)(const std::string&), std::string path) : body_(body), path_(std::move(path)) {}
    ~SecondProcess() { end(); }
    SecondProcess(const SecondProcess&) = delete;
    SecondProcess& operator=(const SecondProcess&) = delete;

    /// Whether the child came to the end of it.
    bool survives() {
        if (child_ < 0) start();
        char answer = 0;
        pollfd ready{.fd = answer_[0], .events = POLLIN, .revents = 0};
        const bool done =
                write(ask_[1], "?", 1) == 1 && poll(&ready, 1, kLongestMs) == 1 && read(answer_[0], &answer, 1) == 1;
        if (!done) end();
        return done;
    }

private:
    static constexpr int kLongestMs = 20000;

    void start() {
        // A write to a child that has died is an error like any other.
        signal(SIGPIPE, SIG_IGN);
        if (pipe2(ask_, O_CLOEXEC) != 0 || pipe2(answer_, O_CLOEXEC) != 0) _exit(1);
        child_ = fork();
        if (child_ != 0) {
            close(ask_[0]);
            close(answer_[1]);
            return;
        }
        close(ask_[1]);
        close(answer_[0]);
        // Its end is no finding: neither the fuzzer nor the sanitizer shall report it.
        if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(nullptr);
        if (__sanitizer_set_report_fd != nullptr) {
            __sanitizer_set_report_fd(reinterpret_cast<void*>(open("/dev/null", O_WRONLY)));
        }
        for (const int each : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGALRM}) signal(each, SIG_DFL);
        for (char question = 0; read(ask_[0], &question, 1) == 1;) {
            body_(path_);
            if (write(answer_[1], "!", 1) != 1) break;
        }
        _exit(0);
    }

    void end() {
        if (child_ <= 0) return;
        close(ask_[1]);
        close(answer_[0]);
        kill(child_, SIGKILL);
        waitpid(child_, nullptr, 0);
        child_ = -1;
    }

    void (*body_)(const std::string&);
    std::string path_;
    int ask_[2] = {-1, -1};
    int answer_[2] = {-1, -1};
    int child_ = -1;
};

}  // namespace tessera::fuzz

#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace tessera::fuzz {

/// Bytes as a file, for readers that want a path; in memory where the system has /dev/shm. Removed in the end.
class ScratchFile {
public:
    ScratchFile(const std::uint8_t* data, std::size_t size, const char* extension)
        : path_(std::string(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") + "/tessera_fuzz_" +
                std::to_string(getpid()) + extension) {
        const int file = open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (file < 0 || write(file, data, size) != static_cast<ssize_t>(size)) {
            std::perror(path_.c_str());
            std::abort();
        }
        close(file);
    }
    ~ScratchFile() { unlink(path_.c_str()); }
    ScratchFile(const ScratchFile&) = delete;
    ScratchFile& operator=(const ScratchFile&) = delete;

    const std::string& path() const { return path_; }

private:
    std::string path_;
};

/// A law that the input has broken: says which and ends the program, so that the fuzzer keeps the input.
inline void require(bool holds, const char* law) {
    if (holds) return;
    std::fprintf(stderr, "broken: %s\n", law);
    std::abort();
}

}  // namespace tessera::fuzz

#include "train/durable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <utility>

#include "core/error.h"

namespace tessera::train {
namespace {

using core::EnvironmentError;

/// A file size limit (ulimit -f) kills a process by default; while this lives it makes write() fail with EFBIG instead.
class FileSizeSignalBlock {
public:
    FileSizeSignalBlock() {
        sigemptyset(&signals_);
        sigaddset(&signals_, SIGXFSZ);
        pthread_sigmask(SIG_BLOCK, &signals_, &before_);
    }
    ~FileSizeSignalBlock() {
        if (sigismember(&before_, SIGXFSZ) == 0) {
            const timespec no_time{0, 0};
            while (sigtimedwait(&signals_, nullptr, &no_time) == SIGXFSZ) {
            }
        }
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    FileSizeSignalBlock(const FileSizeSignalBlock&) = delete;
    FileSizeSignalBlock& operator=(const FileSizeSignalBlock&) = delete;

private:
    sigset_t signals_{};
    sigset_t before_{};
};

std::string reason() {
    return std::strerror(errno);
}

std::string folder_of(const std::string& path) {
    const std::string folder = std::filesystem::path(path).parent_path().string();
    return folder.empty() ? "." : folder;
}

}  // namespace

DurableFile::DurableFile(std::string path) : path_(std::move(path)) {
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd_ < 0) core::raise<EnvironmentError>("cannot create '{}': {}", path_, reason());
}

DurableFile::~DurableFile() {
    if (fd_ >= 0) ::close(fd_);
}

void DurableFile::write(std::span<const std::byte> bytes) {
    constexpr std::size_t kMostAtOnce = std::size_t{1} << 28;
    const FileSizeSignalBlock block;
    while (!bytes.empty()) {
        const ssize_t written = ::write(fd_, bytes.data(), std::min(bytes.size(), kMostAtOnce));
        if (written < 0) {
            if (errno == EINTR) continue;
            const int code = errno;
            if (code == ENOSPC || code == EDQUOT || code == EFBIG) {
                core::raise<EnvironmentError>("cannot write '{}': {} ({} bytes written, {} more needed, {} free)",
                                              path_, std::strerror(code), bytes_written_, bytes.size(),
                                              free_bytes(path_));
            }
            core::raise<EnvironmentError>("cannot write '{}' at byte {}: {}", path_, bytes_written_,
                                          std::strerror(code));
        }
        bytes_written_ += written;
        bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
}

void DurableFile::sync_and_close() {
    const int fd = std::exchange(fd_, -1);
    const int synced = ::fsync(fd);
    const int code = errno;
    const int closed = ::close(fd);
    if (synced != 0) core::raise<EnvironmentError>("cannot flush '{}' to the disk: {}", path_, std::strerror(code));
    if (closed != 0) core::raise<EnvironmentError>("cannot close '{}': {}", path_, reason());
}

void sync_folder(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) core::raise<EnvironmentError>("cannot open folder '{}': {}", path, reason());
    const int synced = ::fsync(fd);
    const int code = errno;
    ::close(fd);
    // Some network file systems do not flush folders and say EINVAL; renames are ordered there by the server.
    if (synced != 0 && code != EINVAL) {
        core::raise<EnvironmentError>("cannot flush folder '{}' to the disk: {}", path, std::strerror(code));
    }
}

void replace_file(const std::string& path, std::string_view text) {
    const std::string temporary = path + ".tmp-" + std::to_string(::getpid());
    try {
        DurableFile file(temporary);
        file.write(text);
        file.sync_and_close();
        if (::rename(temporary.c_str(), path.c_str()) != 0) {
            core::raise<EnvironmentError>("cannot rename '{}' to '{}': {}", temporary, path, reason());
        }
    } catch (...) {
        ::unlink(temporary.c_str());
        throw;
    }
    sync_folder(folder_of(path));
}

std::int64_t free_bytes(const std::string& path) {
    struct statvfs status {};
    if (::statvfs(path.c_str(), &status) != 0 && ::statvfs(folder_of(path).c_str(), &status) != 0) {
        core::raise<EnvironmentError>("cannot ask for the free space at '{}': {}", path, reason());
    }
    return static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize);
}

void try_file_size(const std::string& path, std::int64_t bytes) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) core::raise<EnvironmentError>("cannot write to the folder '{}': {}", folder_of(path), reason());
    int result = 0;
    int code = 0;
    if (bytes > 0) {
        const FileSizeSignalBlock block;
        result = ::fallocate(fd, 0, 0, bytes);
        code = errno;
    }
    ::close(fd);
    ::unlink(path.c_str());
    if (result == 0 || code == EOPNOTSUPP || code == ENOSYS || code == EINTR) return;
    core::raise<EnvironmentError>("no room for a file of {} bytes in '{}': {} ({} bytes free)", bytes, folder_of(path),
                                  std::strerror(code), free_bytes(folder_of(path)));
}

std::string read_text_file(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) core::raise<EnvironmentError>("cannot open '{}': {}", path, reason());
    std::string text;
    std::string buffer(std::size_t{1} << 16, '\0');
    for (;;) {
        const ssize_t count = ::read(fd, buffer.data(), buffer.size());
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) {
            const int code = errno;
            ::close(fd);
            core::raise<EnvironmentError>("cannot read '{}': {}", path, std::strerror(code));
        }
        if (count == 0) break;
        text.append(buffer, 0, static_cast<std::size_t>(count));
    }
    ::close(fd);
    return text;
}

}  // namespace tessera::train

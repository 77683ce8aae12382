#include "train/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace tessera::train {

AppendFile::AppendFile(std::string path, OpenMode mode) : path_(std::move(path)) {
    const int more = mode == OpenMode::must_make ? O_EXCL : 0;
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | more, 0666);
    if (fd_ < 0) core::raise<core::EnvironmentError>("cannot open '{}' for writing: {}", path_, std::strerror(errno));
}

AppendFile::AppendFile(AppendFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

AppendFile::~AppendFile() {
    if (fd_ >= 0) ::close(fd_);
}

void AppendFile::write(std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
        if (written < 0) {
            if (errno == EINTR) continue;
            core::raise<core::EnvironmentError>("cannot write '{}': {}", path_, std::strerror(errno));
        }
        bytes.remove_prefix(static_cast<std::size_t>(written));
    }
}

}  // namespace tessera::train

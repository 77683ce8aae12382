#include "data/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "core/error.h"

namespace tessera::data {

std::string temporary_name(const std::string& path) {
    const std::filesystem::path name(path);
    return (name.parent_path() / fmt::format(".{}.{}.partial", name.filename().string(), getpid())).string();
}

void publish_file(const std::string& temporary_path, const std::string& path) {
    const int descriptor = open(temporary_path.c_str(), O_RDONLY | O_CLOEXEC);
    const bool flushed = descriptor >= 0 && fsync(descriptor) == 0;
    if (descriptor >= 0) close(descriptor);
    if (!flushed) core::raise<core::EnvironmentError>("flushing {} failed: {}", temporary_path, std::strerror(errno));
    if (std::rename(temporary_path.c_str(), path.c_str()) != 0) {
        core::raise<core::EnvironmentError>("renaming {} to {} failed: {}", temporary_path, path, std::strerror(errno));
    }
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), temporary_path_(temporary_name(path_)) {
    std::error_code code;
    const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
    if (!folder.empty()) std::filesystem::create_directories(folder, code);
    descriptor_ = open(temporary_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (descriptor_ < 0) core::raise<core::UserError>("cannot write {}: {}", path_, std::strerror(errno));
}

AtomicFile::~AtomicFile() {
    if (descriptor_ < 0) return;
    close(descriptor_);
    unlink(temporary_path_.c_str());
}

void AtomicFile::write(const void* bytes, std::size_t count) {
    const char* at = static_cast<const char*>(bytes);
    while (count > 0) {
        const ssize_t written = ::write(descriptor_, at, count);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) core::raise<core::EnvironmentError>("writing {} failed: {}", path_, std::strerror(errno));
        at += written;
        count -= static_cast<std::size_t>(written);
    }
}

void AtomicFile::commit() {
    publish_file(temporary_path_, path_);
    close(descriptor_);
    descriptor_ = -1;
}

}  // namespace tessera::data

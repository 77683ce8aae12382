#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::train {

enum class OpenMode : std::uint8_t {
    append,    ///< the file is made if it is not there
    must_make  ///< the file must not be there yet
};

/// A record of a run while it goes on: each write is one call to the system, so that whoever reads along sees it at
/// once and a kill leaves at most the last record cut short. Throws EnvironmentError with the path and the reason.
class AppendFile {
public:
    AppendFile(std::string path, OpenMode mode);
    ~AppendFile();
    AppendFile(AppendFile&& other) noexcept;
    AppendFile(const AppendFile&) = delete;
    AppendFile& operator=(const AppendFile&) = delete;

    void write(std::string_view bytes);
    const std::string& path() const { return path_; }

private:
    std::string path_;
    int fd_ = -1;
};

}  // namespace tessera::train

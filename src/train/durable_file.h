#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tessera::train {

/// A new file that is on the disk before anyone relies on it. Every failure throws EnvironmentError with the path, the
/// call and the reason; a full disk names the bytes that were wanted and those that are free.
class DurableFile {
public:
    /// Creates or empties `path`.
    explicit DurableFile(std::string path);
    ~DurableFile();
    DurableFile(const DurableFile&) = delete;
    DurableFile& operator=(const DurableFile&) = delete;

    void write(std::span<const std::byte> bytes);
    void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
    /// Flushes to the disk and closes.
    void sync_and_close();
    std::int64_t bytes_written() const { return bytes_written_; }

private:
    std::string path_;
    int fd_ = -1;
    std::int64_t bytes_written_ = 0;
};

/// Flushes a folder's entries to the disk.
void sync_folder(const std::string& path);

/// Replaces `path` by `text` as one step: temporary file, flush, rename, flush of the folder.
void replace_file(const std::string& path, std::string_view text);

/// Bytes an ordinary user may still write to the file system that holds `path`.
std::int64_t free_bytes(const std::string& path);

/// Asks whether a file of this size may be made, without writing it: quotas, size limits and a full disk answer now.
/// `path` is created and removed again. A file system that cannot tell says yes.
/// Throws EnvironmentError with the folder, the bytes needed and those free.
void try_file_size(const std::string& path, std::int64_t bytes);

/// The whole file. Throws EnvironmentError if it cannot be read.
std::string read_text_file(const std::string& path);

}  // namespace tessera::train

#pragma once
#include <cstddef>
#include <string>

namespace tessera::data {

/// A file that appears under its name only when complete: written beside it under a temporary name, flushed to the disk
/// and renamed by commit(); removed by the destructor otherwise. Makes the folder if there is none. Throws UserError if
/// the file cannot be made, otherwise EnvironmentError with the call and its reason.
class AtomicFile {
public:
    explicit AtomicFile(std::string path);
    ~AtomicFile();
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;

    void write(const void* bytes, std::size_t count);
    void commit();

private:
    std::string path_;
    std::string temporary_path_;
    int descriptor_ = -1;
};

/// The name under which `path` is written before it is complete: in the same folder, hidden, one per process.
std::string temporary_name(const std::string& path);

/// Flushes the file to the disk and gives it its final name.
void publish_file(const std::string& temporary_path, const std::string& path);

}  // namespace tessera::data

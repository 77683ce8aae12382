#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tessera::data {

enum class Compression { none, gzip, zstd };

/// "gzip", "zstd" or "none".
std::string_view name_of(Compression compression);

/// The content of a file, unpacked while it is read if its first bytes are those of gzip (RFC 1952) or zstd (RFC 8878),
/// whatever its name. Several gzip members or zstd frames in one file are one text; zeros after the last gzip member
/// and skippable zstd frames are passed over. Memory: one input buffer and the decoder's window (at most 128 MiB).
class ByteSource {
public:
    /// Throws DataError if the file cannot be opened or is packed with xz, bzip2, lz4 or zip.
    explicit ByteSource(const std::string& path);
    ~ByteSource();
    ByteSource(const ByteSource&) = delete;
    ByteSource& operator=(const ByteSource&) = delete;

    /// Fills a part of `out`, which must not be empty, and returns how much; 0 only at the end of the content.
    /// Throws DataError (path, byte offset in the packed file) if the packed data is damaged or cut off, and
    /// EnvironmentError if the disk refuses to read.
    std::size_t read(std::span<char> out);

    Compression compression() const;
    /// Bytes of the file, as it is packed, that were read so far.
    std::int64_t file_bytes_read() const;

private:
    class File;
    class Unpacker;
    class Plain;
    class Gzip;
    class Zstd;

    std::unique_ptr<File> file_;
    std::unique_ptr<Unpacker> unpacker_;
    Compression compression_ = Compression::none;
};

/// Bytes of the content of a file: its size, or what it unpacks to, for which it is read to the end.
std::int64_t unpacked_bytes(const std::string& path);

}  // namespace tessera::data

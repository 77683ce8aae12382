#include "data/byte_source.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

#include "core/error.h"

namespace tessera::data {
namespace {

constexpr std::size_t kInputBytes = std::size_t{256} << 10;
/// zlib's largest window, and its sign for a gzip header and trailer around the data.
constexpr int kGzipWindowBits = 15 + 16;

struct UnsupportedFormat {
    std::string_view first_bytes;
    const char* name;
    const char* unpack_with;
};

constexpr UnsupportedFormat kUnsupported[] = {{{"\xFD\x37\x7A\x58\x5A\x00", 6}, "xz", "unxz"},
                                              {"\x04\x22\x4D\x18", "lz4", "unlz4"},
                                              {"PK\x03\x04", "zip", "unzip"}};
/// "BZh", the block size as a digit, and the mark of the first block.
constexpr std::string_view kBzip2Block = "\x31\x41\x59\x26\x53\x59";

bool is_bzip2(std::string_view head) {
    return head.starts_with("BZh") && head.size() > 4 && head.substr(4).starts_with(kBzip2Block);
}

Compression compression_of(std::string_view head) {
    if (head.starts_with("\x1F\x8B")) return Compression::gzip;
    if (head.starts_with("\x28\xB5\x2F\xFD")) return Compression::zstd;
    // A skippable frame, with which parallel zstd writers begin: 0x184D2A50 to 0x184D2A5F.
    const bool skippable = head.size() >= 4 && (head[0] & 0xF0) == 0x50 && head.substr(1, 3) == "\x2A\x4D\x18";
    return skippable ? Compression::zstd : Compression::none;
}

[[noreturn]] void raise_damaged(const std::string& path, Compression compression, std::int64_t offset,
                                const char* reason) {
    core::raise<core::DataError>("{} holds damaged {} data at byte {} ({}); fetch the file again", path,
                                 name_of(compression), offset, reason);
}

[[noreturn]] void raise_truncated(const std::string& path, Compression compression, std::int64_t offset) {
    core::raise<core::DataError>(
            "{} is cut off: it ends at byte {}, in the middle of its {} data; fetch the file again", path, offset,
            name_of(compression));
}

}  // namespace

std::string_view name_of(Compression compression) {
    if (compression == Compression::gzip) return "gzip";
    return compression == Compression::zstd ? "zstd" : "none";
}

/// The file as it lies on the disk, through one buffer.
class ByteSource::File {
public:
    explicit File(std::string path) : path_(std::move(path)), buffer_(kInputBytes) {
        stream_.reset(std::fopen(path_.c_str(), "rb"));
        if (stream_ == nullptr) core::raise<core::DataError>("cannot open {}: {}", path_, std::strerror(errno));
    }

    const std::string& path() const { return path_; }
    std::span<const char> unread() const { return std::span(buffer_).subspan(begin_, end_ - begin_); }
    void consume(std::size_t count) { begin_ += count; }
    /// Offset in the file of the first byte of unread().
    std::int64_t position() const { return read_ - static_cast<std::int64_t>(end_ - begin_); }
    std::int64_t bytes_read() const { return read_; }

    /// Reads on if unread() is empty; false at the end of the file.
    bool fill() {
        if (begin_ < end_) return true;
        begin_ = 0;
        end_ = std::fread(buffer_.data(), 1, buffer_.size(), stream_.get());
        if (std::ferror(stream_.get()) != 0)
            core::raise<core::EnvironmentError>("reading {} failed at byte {}: {}", path_, read_, std::strerror(errno));
        read_ += static_cast<std::int64_t>(end_);
        return end_ > 0;
    }

private:
    struct Close {
        void operator()(std::FILE* stream) const { std::fclose(stream); }
    };
    std::string path_;
    std::unique_ptr<std::FILE, Close> stream_;
    std::vector<char> buffer_;
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
    std::int64_t read_ = 0;
};

class ByteSource::Unpacker {
public:
    Unpacker() = default;
    Unpacker(const Unpacker&) = delete;
    Unpacker& operator=(const Unpacker&) = delete;
    virtual ~Unpacker() = default;
    virtual std::size_t read(File& file, std::span<char> out) = 0;
};

class ByteSource::Plain : public Unpacker {
public:
    std::size_t read(File& file, std::span<char> out) override {
        if (!file.fill()) return 0;
        const std::size_t count = std::min(out.size(), file.unread().size());
        std::memcpy(out.data(), file.unread().data(), count);
        file.consume(count);
        return count;
    }
};

class ByteSource::Gzip : public Unpacker {
public:
    Gzip() {
        if (inflateInit2(&stream_, kGzipWindowBits) != Z_OK)
            core::raise<core::EnvironmentError>("zlib cannot start unpacking: {}", reason());
    }
    ~Gzip() override { inflateEnd(&stream_); }

    std::size_t read(File& file, std::span<char> out) override {
        std::size_t produced = 0;
        while (produced == 0) {
            if (!file.fill()) {
                if (in_member_) raise_truncated(file.path(), Compression::gzip, file.bytes_read());
                return 0;
            }
            if (!in_member_ && !begin_member(file)) continue;
            produced = inflate_some(file, out);
        }
        return produced;
    }

private:
    const char* reason() const { return stream_.msg != nullptr ? stream_.msg : "no reason given"; }

    /// False if there was nothing but padding.
    bool begin_member(File& file) {
        if (members_ > 0 && file.unread().front() == '\0') {
            const auto unread = file.unread();
            const auto zeros = std::find_if(unread.begin(), unread.end(), [](char c) { return c != '\0'; });
            file.consume(static_cast<std::size_t>(zeros - unread.begin()));
            return false;
        }
        inflateReset(&stream_);
        in_member_ = true;
        ++members_;
        return true;
    }

    std::size_t inflate_some(File& file, std::span<char> out) {
        const std::size_t space = std::min(out.size(), kInputBytes);
        // zlib does not write through next_in; its type is older than const.
        stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(file.unread().data()));
        stream_.avail_in = static_cast<uInt>(file.unread().size());
        stream_.next_out = reinterpret_cast<Bytef*>(out.data());
        stream_.avail_out = static_cast<uInt>(space);
        const int code = inflate(&stream_, Z_NO_FLUSH);
        file.consume(file.unread().size() - stream_.avail_in);
        if (code == Z_STREAM_END) {
            in_member_ = false;
        } else if (code == Z_MEM_ERROR) {
            core::raise<core::EnvironmentError>("no memory to unpack {}", file.path());
        } else if (code != Z_OK && code != Z_BUF_ERROR) {
            raise_damaged(file.path(), Compression::gzip, file.position(), reason());
        }
        return space - stream_.avail_out;
    }

    z_stream stream_{};
    bool in_member_ = false;
    std::int64_t members_ = 0;
};

class ByteSource::Zstd : public Unpacker {
public:
    Zstd() : stream_(ZSTD_createDStream()) {
        if (stream_ == nullptr) core::raise<core::EnvironmentError>("no memory to unpack zstd data");
        first_input_ = ZSTD_initDStream(stream_.get());
    }

    std::size_t read(File& file, std::span<char> out) override {
        ZSTD_outBuffer output{out.data(), out.size(), 0};
        while (output.pos == 0) {
            const bool ended = !file.fill();
            if (ended && wanted_ == 0) return 0;
            // Not more than the decoder asks for: then the place of a damage is that of its block.
            const std::size_t count = std::min(file.unread().size(), wanted_ == 0 ? first_input_ : wanted_);
            ZSTD_inBuffer input{file.unread().data(), count, 0};
            wanted_ = ZSTD_decompressStream(stream_.get(), &output, &input);
            if (ZSTD_isError(wanted_) != 0)
                raise_damaged(file.path(), Compression::zstd, file.position(), ZSTD_getErrorName(wanted_));
            file.consume(input.pos);
            if (ended && output.pos == 0 && wanted_ != 0)
                raise_truncated(file.path(), Compression::zstd, file.bytes_read());
        }
        return output.pos;
    }

private:
    struct Free {
        void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
    };
    std::unique_ptr<ZSTD_DStream, Free> stream_;
    std::size_t first_input_ = 0;
    /// What the decoder would like to have next; 0 between frames.
    std::size_t wanted_ = 0;
};

ByteSource::ByteSource(const std::string& path) : file_(std::make_unique<File>(path)) {
    file_->fill();
    const std::string_view head(file_->unread().data(), file_->unread().size());
    for (const UnsupportedFormat& format : kUnsupported) {
        if (!head.starts_with(format.first_bytes)) continue;
        core::raise<core::DataError>("{} is packed with {}; unpack it with {}, or pack it with gzip or zstd", path,
                                     format.name, format.unpack_with);
    }
    if (is_bzip2(head)) {
        core::raise<core::DataError>("{} is packed with bzip2; unpack it with bunzip2, or pack it with gzip or zstd",
                                     path);
    }
    compression_ = compression_of(head);
    if (compression_ == Compression::gzip) {
        unpacker_ = std::make_unique<Gzip>();
    } else if (compression_ == Compression::zstd) {
        unpacker_ = std::make_unique<Zstd>();
    } else {
        unpacker_ = std::make_unique<Plain>();
    }
}

ByteSource::~ByteSource() = default;

std::size_t ByteSource::read(std::span<char> out) {
    TESSERA_INVARIANT(!out.empty());
    return unpacker_->read(*file_, out);
}

Compression ByteSource::compression() const {
    return compression_;
}

std::int64_t ByteSource::file_bytes_read() const {
    return file_->position();
}

std::int64_t unpacked_bytes(const std::string& path) {
    ByteSource source(path);
    if (source.compression() == Compression::none) return static_cast<std::int64_t>(std::filesystem::file_size(path));
    std::vector<char> block(kInputBytes);
    std::int64_t bytes = 0;
    for (std::size_t count = source.read(block); count > 0; count = source.read(block))
        bytes += static_cast<std::int64_t>(count);
    return bytes;
}

}  // namespace tessera::data

#pragma once
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "data/byte_source.h"
#include "data/utf8.h"

namespace tessera::data {

/// by_name: .jsonl, .ndjson and .json, also followed by .gz or .zst, are JSON lines, everything else is plain text.
enum class TextFormat { by_name, text, jsonl };
enum class InvalidUtf8 { replace, refuse };
enum class MalformedJsonl { refuse, skip };

struct TextSourceArgs {
    std::vector<std::string> paths = {};
    TextFormat format = TextFormat::by_name;
    /// Plain text: what stands between two documents. Empty: one document per file.
    std::string separator = "\n\n";
    /// JSON lines: the key whose string is the document.
    std::string text_key = "text";
    InvalidUtf8 invalid_utf8 = InvalidUtf8::replace;
    MalformedJsonl malformed_jsonl = MalformedJsonl::refuse;
};

struct TextCounts {
    std::int64_t documents = 0;
    std::int64_t empty_documents = 0;
    std::int64_t text_bytes = 0;
    std::int64_t invalid_utf8 = 0;
    /// "PATH at byte N" (of the text, where the file is packed) or "PATH in line N" of the first ill-formed UTF-8;
    /// empty if there was none.
    std::string first_invalid_utf8;
    std::int64_t malformed_lines = 0;
    std::int64_t lines_without_key = 0;
};

/// The documents of text files, in order; files packed with gzip or zstd are unpacked (ByteSource). A byte order mark
/// at the start of a file is dropped; ill-formed UTF-8 becomes U+FFFD and is counted, or is refused; documents that are
/// empty or blank are skipped and counted. In plain text with a separator that starts with a line break, the one line
/// break that ends a file is not part of its last document. In JSON lines, blank lines are skipped; a lone surrogate
/// escape counts as ill-formed UTF-8; a line without the key (or with null) is counted. The constructor throws
/// DataError naming every path that is missing, is no file or is packed in another way. next() throws DataError for
/// refused text (path and byte offset), for malformed JSON lines (path, line, column), for damaged packed files (path,
/// byte offset) and, at the end, if lines were read and none had the key (the keys found).
class TextSource {
public:
    explicit TextSource(TextSourceArgs args);

    /// Replaces `document`; false at the end of the last file.
    bool next(std::string& document);

    const TextCounts& counts() const { return counts_; }
    /// Bytes of all files as they lie on the disk, and how many of them were read: the progress.
    std::int64_t total_bytes() const { return total_bytes_; }
    std::int64_t bytes_read() const;

private:
    bool open_next_file();
    bool read_more();
    bool next_raw(std::string& raw);
    bool text_of_line(const std::string& line, std::string& document);
    void malformed(std::int64_t column, const std::string& why);
    void count_invalid(std::int64_t count, const std::string& place);
    void finish_file();

    TextSourceArgs args_;
    TextCounts counts_;
    std::int64_t total_bytes_ = 0;
    std::int64_t bytes_of_ended_files_ = 0;

    std::size_t file_index_ = 0;
    std::unique_ptr<ByteSource> file_;
    bool file_ended_ = false;
    bool is_jsonl_ = false;
    std::string separator_;
    Utf8Repair repair_;
    std::int64_t repaired_in_file_ = 0;
    std::string buffer_;
    std::size_t buffer_start_ = 0;
    std::size_t search_from_ = 0;
    std::int64_t line_ = 0;

    std::int64_t lines_read_ = 0;
    std::int64_t lines_with_key_ = 0;
    std::set<std::string> keys_seen_;
};

/// "\n", "\t", "\r", "\0", "\\" and "\xHH" written with a backslash become the characters; anything else after a
/// backslash is a UsageError naming it. For separators given on a command line.
std::string unescaped(const std::string& text);

}  // namespace tessera::data

#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/integer_array.h"

namespace tessera::data {

inline constexpr std::int64_t kShardFormatVersion = 1;

/// What the tokens of a shard are: written by gpt_data as attributes of the file's root, absent in shards of other
/// programs.
struct ShardIdentity {
    std::optional<std::int64_t> vocab_size = {};
    std::optional<std::int32_t> eod_id = {};
    std::string tokenizer_sha256 = {};
};

/// automatic: 16 bits if every id of the vocabulary fits.
enum class TokenStorage { automatic, u16, u32 };

struct ShardWriterArgs {
    std::string path = {};
    ShardIdentity identity = {};
    TokenStorage storage = TokenStorage::automatic;
};

/// Writes one token shard (docs/data.md): tokens, document_offsets, document_bytes and the attributes. Tokens are held
/// in memory until close(), which writes them contiguously under a temporary name; publish() gives the file its name.
/// Without publish() the destructor removes what was written. Throws EnvironmentError if HDF5 or the disk refuses.
class ShardWriter {
public:
    /// Throws DataError if the vocabulary size or the end-of-document id is missing.
    explicit ShardWriter(ShardWriterArgs args);
    ~ShardWriter();
    ShardWriter(const ShardWriter&) = delete;
    ShardWriter& operator=(const ShardWriter&) = delete;

    /// Appends a document and its end-of-document token. text_bytes: UTF-8 bytes the tokens stand for.
    /// Throws DataError if an id is outside the vocabulary or does not fit the storage; nothing is appended then.
    void append_document(std::span<const std::int32_t> tokens, std::int64_t text_bytes);

    std::int64_t num_tokens() const { return static_cast<std::int64_t>(document_offsets_.back()); }
    std::int64_t num_documents() const { return static_cast<std::int64_t>(document_bytes_.size()); }
    const std::string& path() const { return args_.path; }

    void close();
    void publish();

private:
    void write_file() const;

    ShardWriterArgs args_;
    std::string temporary_path_;
    bool wide_ = false;
    bool closed_ = false;
    bool published_ = false;
    std::vector<std::uint16_t> narrow_tokens_;
    std::vector<std::uint32_t> wide_tokens_;
    std::vector<std::uint64_t> document_offsets_ = {0};
    std::vector<std::uint64_t> document_bytes_;
    std::uint64_t text_bytes_ = 0;
};

/// Dataset names in shards. An empty `tokens` means: tokens, or else input_ids.
struct ShardNames {
    std::string tokens = {};
    std::string document_offsets = "document_offsets";
};

/// Where a token stands, for messages. document is -1 if the shard has no document offsets.
struct TokenPlace {
    std::int64_t document = -1;
    std::int64_t offset = 0;
};

/// A shard opened for reading: ours, or any HDF5 file with a 1-D or 2-D integer dataset. Safe for several threads.
class ShardReader {
public:
    /// Throws DataError "PATH reason" if the file is missing, empty, truncated, no HDF5 file, has no such dataset, has
    /// no tokens, is of a newer format, or its document offsets do not start at 0 and end at the number of tokens.
    static ShardReader open(const std::string& path, const ShardNames& names,
                            std::shared_ptr<OpenDatasets> open_datasets);

    const std::string& path() const { return path_; }
    std::int64_t num_tokens() const { return tokens_.size(); }
    const ShardIdentity& identity() const { return identity_; }
    const std::string& storage_name() const { return tokens_.type_name(); }
    bool is_mapped() const { return tokens_.is_mapped(); }
    /// -1 if the shard does not say where documents start.
    std::int64_t num_documents() const { return document_offsets_ ? document_offsets_->size() - 1 : -1; }
    bool has_document_offsets() const { return document_offsets_.has_value(); }
    /// UTF-8 bytes the tokens stand for, if the shard says so.
    std::optional<std::int64_t> text_bytes() const { return text_bytes_; }

    /// A number that tells the tokens of one shard from those of another: the checksum that is stored with them, or a
    /// hash of the first and last tokens where none is. Throws EnvironmentError if reading fails.
    std::uint64_t content_hash() const;

    /// out[k] = token first + k. Throws DataError (shard, document, offset, id, limit) if an id is outside [0,
    /// vocab_size).
    void read(std::int64_t first, std::span<std::int32_t> out, std::int64_t vocab_size) const;

    /// Token offsets in [first, last) at which a document starts, ascending. Needs document offsets.
    std::vector<std::int64_t> document_starts(std::int64_t first, std::int64_t last) const;
    /// First token of document d; d = num_documents() gives the number of tokens.
    std::int64_t document_offset(std::int64_t document) const;
    TokenPlace place_of(std::int64_t token) const;

    /// Reads everything: ids in range (where the vocabulary size is known), offsets ascending, in our own shards each
    /// document ending in its only end-of-document token, and the stored checksum. Throws DataError naming the first
    /// fault.
    void check() const;

private:
    std::int64_t first_document_at_or_after(std::int64_t token) const;
    void check_documents() const;
    void check_document(std::int64_t document, std::int64_t begin, std::int64_t end) const;
    void check_checksum() const;

    std::string path_;
    IntegerArray tokens_;
    std::optional<IntegerArray> document_offsets_;
    ShardIdentity identity_;
    std::optional<std::int64_t> format_version_;
    std::optional<std::int64_t> text_bytes_;
    std::optional<std::uint64_t> tokens_xxh64_;
};

/// Opens all; if any cannot be opened, one DataError lists every bad path with its reason.
std::vector<ShardReader> open_shards(const std::vector<std::string>& paths, const ShardNames& names);

}  // namespace tessera::data

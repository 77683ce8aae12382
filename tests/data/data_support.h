#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/shard.h"
#include "data/tokenizer.h"

namespace tessera::data::test {

/// A folder of its own, removed at the end.
class TemporaryFolder {
public:
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    std::string path(const std::string& name) const { return path_ + "/" + name; }
    /// Writes a file and returns its path.
    std::string file(const std::string& name, const std::string& content) const;
    /// Names of all files, hidden ones included, sorted.
    std::vector<std::string> names() const;

private:
    std::string path_;
};

std::string read_file(const std::string& path);

/// A few kilobytes of English-like text with indented lines, the same for the same number of paragraphs.
std::string sample_text(int paragraphs);

/// A byte-fallback model of `vocab_size` pieces learned from sample_text, written into the folder.
Tokenizer small_tokenizer(const TemporaryFolder& folder, std::int64_t vocab_size = 400);

/// How a foreign program might store tokens.
enum class Layout { contiguous, chunked, compressed };
struct ForeignShard {
    std::string dataset = "tokens";
    std::string type = "u16";  ///< u8 u16 i32 i64 u32be i16be f32
    Layout layout = Layout::contiguous;
    std::int64_t row_length = 0;  ///< > 0: two dimensions
    std::vector<std::int64_t> document_offsets = {};
};
/// Writes `tokens` with plain HDF5 calls, as programs other than ours would.
void write_foreign(const std::string& path, const std::vector<std::int64_t>& tokens, const ForeignShard& how = {});

/// One shard of ours: documents without their end-of-document token.
void write_shard(const std::string& path, const std::vector<std::vector<std::int32_t>>& documents,
                 std::int64_t vocab_size, std::int32_t eod_id, const std::string& sha256 = std::string(64, 'a'));

/// 0, 1, 2, ... modulo `modulus`.
std::vector<std::int64_t> counting(std::int64_t count, std::int64_t modulus = 1000);

/// The message of the error of type E that `action` throws; empty if it throws none.
template <typename E, typename Action>
std::string message_of(Action&& action) {
    try {
        action();
    } catch (const E& error) {
        return error.what();
    }
    return {};
}

}  // namespace tessera::data::test

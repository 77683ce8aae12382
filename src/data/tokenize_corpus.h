#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/text_source.h"

namespace tessera::data {

/// Whether shards of an earlier run under the same prefix are an error or are replaced.
enum class ExistingShards { refuse, replace };

struct TokenizeProgress {
    std::int64_t bytes_read = 0;   ///< of the files as they lie on the disk
    std::int64_t total_bytes = 0;  ///< likewise
    std::int64_t text_bytes = 0;   ///< of the documents that were tokenized
    std::int64_t documents = 0;
    std::int64_t tokens = 0;
};

struct TokenizeArgs {
    TextSourceArgs source = {};
    std::string tokenizer_path = {};
    /// Shards are PREFIX_train_00000.h5, ... and PREFIX_validation_00000.h5, ...
    std::string output_prefix = {};
    double validation_fraction = 0;
    /// If not empty: the held-out documents as text, joined by the separator.
    std::string validation_text_path = {};
    std::uint64_t seed = 1;
    int num_threads = 1;
    std::int64_t max_tokens_per_shard = std::int64_t{1} << 26;
    ExistingShards existing = ExistingShards::refuse;
    std::function<void(const TokenizeProgress&)> on_progress = {};
    /// Set (by a signal) to give up: a RunError follows and nothing is left behind.
    const std::atomic<bool>* stop = nullptr;
};

struct CorpusPart {
    std::vector<std::string> shards;
    std::int64_t documents = 0;
    std::int64_t tokens = 0;
    std::int64_t text_bytes = 0;
};

struct TokenizeSummary {
    TextCounts counts;
    CorpusPart train;
    CorpusPart validation;
};

/// Text to shards. Document d belongs to the validation part if a random number keyed by (seed, d) is below
/// validation_fraction: the split does not depend on the number of threads, nor do the shards. Every document gets one
/// end-of-document token. Text is read ahead while the threads encode. Shards appear under their names only when all
/// are complete; on any error none do. Throws DataError if a part is empty (naming the counts), UsageError for a
/// fraction outside [0, 1) and for shards that exist already, and what TextSource throws.
TokenizeSummary tokenize_corpus(const TokenizeArgs& args);

}  // namespace tessera::data

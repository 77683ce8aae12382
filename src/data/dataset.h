#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/batch.h"
#include "data/blend.h"
#include "data/blend_state.h"
#include "data/shard.h"

namespace tessera::data {

/// Shards that together are one body of text: their tokens in the order of the paths, so that cutting the same tokens
/// into other shards changes no sample. A path may be a pattern (* ? [ ]), which stands for its matches in sorted
/// order.
struct DataSource {
    std::vector<std::string> paths = {};
    double weight = 1.0;
    /// For messages; the first path if empty.
    std::string name = {};
};

/// shuffled: endless, every epoch of a source in its own keyed order (training). ordered: sample k at position k, once,
/// all sources one after the other, weights unused (evaluation).
enum class SampleOrder { shuffled, ordered };

/// on: targets across a document border carry no loss and Batch::document_borders is filled.
enum class DocumentMask { off, on };

struct TokenDatasetArgs {
    std::vector<DataSource> sources = {};
    std::uint64_t seed = 0;
    std::int64_t seq_length = 0;
    std::int64_t vocab_size = 0;
    SampleOrder order = SampleOrder::shuffled;
    DocumentMask document_mask = DocumentMask::off;
    ShardNames names = {};
    /// For shards that do not name it and have no document offsets.
    std::optional<std::int32_t> eod_id = {};
    /// SHA-256 of the run's tokenizer; shards that name another are refused. Empty: the shards must agree with each
    /// other.
    std::string tokenizer_sha256 = {};
};

/// Which sample stands at a position: sample k of a source is its tokens [k·s, k·s + s], s = seq_length.
struct SamplePlace {
    std::int64_t source = 0;
    std::int64_t epoch = 0;
    std::int64_t sample = 0;
};

/// The samples of a run. What stands at a position is a function of (shards, seed, position) and, if the blend was
/// changed between runs, of blend_state(), and of nothing else. Each source has floor((tokens - 1) / seq_length)
/// samples; the tokens after its last whole sample are never read. Safe for several threads.
class TokenDataset {
public:
    /// Opens and checks every shard. Throws DataError: one message for all shards that cannot be opened; a pattern
    /// without match; a source shorter than one sample (both numbers); shards of a larger vocabulary or another
    /// tokenizer; bad weights (see Blend); a document mask where a shard has neither document offsets nor an
    /// end-of-document id.
    explicit TokenDataset(TokenDatasetArgs args);

    /// Fills `batch` with the samples at positions [position, position + count). Throws DataError for a token outside
    /// the vocabulary (shard, document, offset, id, limit) and, in ordered mode, for positions from num_samples() on.
    void read_samples(std::int64_t position, std::int64_t count, Batch& batch) const;
    SamplePlace place_of(std::int64_t position) const;

    /// The blend and what its sources gave before it began: what a checkpoint must hold so that another run can go on
    /// with another blend. It does not change while samples are read. For shuffled datasets only, as is resume().
    const BlendState& blend_state() const { return state_; }
    /// Goes on at `position` after a run that was saved with the blend `saved` (see continued_blend()). Positions
    /// before it cannot be read any more if the blend changed. Returns what changed, a line each; nothing if nothing
    /// did. Not while another thread reads.
    std::vector<std::string> resume(const BlendState& saved, std::int64_t position);

    /// Samples of one epoch, all sources together.
    std::int64_t num_samples() const { return num_samples_; }
    std::int64_t num_tokens() const { return num_tokens_; }
    std::int64_t seq_length() const { return args_.seq_length; }
    /// UTF-8 bytes that num_tokens() tokens stand for, document ends counting nothing; absent if a shard does not say.
    /// For bits per byte over part of the tokens, scale by the share of the tokens.
    std::optional<std::int64_t> text_bytes() const { return text_bytes_; }

    /// Passes over source `source` that a run of `samples` samples makes.
    double epochs(std::int64_t source, std::int64_t samples) const;
    /// The largest epochs() of all sources.
    double most_epochs(std::int64_t samples) const;
    /// One line per source: shards, tokens, samples, effective share, epochs for a run of `samples` samples.
    std::string describe(std::int64_t samples) const;

private:
    struct Source {
        std::string name;
        std::vector<ShardReader> shards;
        std::vector<std::int64_t> shard_start;
        std::int64_t num_tokens = 0;
        std::int64_t num_samples = 0;
    };
    struct Sample;

    void open_sources();
    void begin_blend();
    void check_shard(const ShardReader& shard) const;
    void check_tokenizers(const std::vector<ShardReader>& shards) const;
    void read_sample(const Source& source, std::int64_t sample, Sample& out) const;
    void find_borders(const ShardReader& shard, std::int64_t first, std::int64_t last, std::int64_t at,
                      Sample& out) const;

    TokenDatasetArgs args_;
    std::vector<Source> sources_;
    std::unique_ptr<Blend> blend_;
    BlendState state_;
    std::int64_t num_samples_ = 0;
    std::int64_t num_tokens_ = 0;
    std::optional<std::int64_t> text_bytes_;
};

/// The files a pattern stands for, sorted; a path without * ? [ stands for itself. Throws DataError if nothing matches.
std::vector<std::string> matching_paths(const std::string& pattern);

}  // namespace tessera::data

#include "data/tokenize_corpus.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>

#include "core/error.h"
#include "core/parallel.h"
#include "core/philox.h"
#include "data/atomic_file.h"
#include "data/dataset.h"
#include "data/shard.h"
#include "data/tokenizer.h"

namespace tessera::data {
namespace {

/// Text that is encoded at once: enough for every thread, but bounded.
constexpr std::size_t kBlockBytesPerThread = std::size_t{1} << 20;
constexpr std::size_t kLeastBlockBytes = std::size_t{4} << 20;
constexpr std::size_t kMostBlockBytes = std::size_t{64} << 20;
constexpr const char* kPartNames[] = {"train", "validation"};
constexpr std::int64_t kDocumentsAtATime = 1;
constexpr std::uint32_t kSplitStream = 0x73706C74;

/// The shards of one part, published together.
class ShardSet {
public:
    ShardSet(const TokenizeArgs& args, const char* part, const Tokenizer& tokenizer)
        : prefix_(fmt::format("{}_{}_", args.output_prefix, part)), max_tokens_(args.max_tokens_per_shard) {
        identity_ = {.vocab_size = tokenizer.vocab_size(),
                     .eod_id = tokenizer.eod_id(),
                     .tokenizer_sha256 = tokenizer.sha256()};
    }

    void append_document(std::span<const std::int32_t> tokens, std::int64_t text_bytes) {
        const auto more = static_cast<std::int64_t>(tokens.size()) + 1;
        if (!shards_.empty() && shards_.back()->num_tokens() + more > max_tokens_) shards_.back()->close();
        if (shards_.empty() || shards_.back()->num_tokens() + more > max_tokens_) {
            const std::string path = fmt::format("{}{:05}.h5", prefix_, shards_.size());
            shards_.push_back(std::make_unique<ShardWriter>(ShardWriterArgs{.path = path, .identity = identity_}));
            part_.shards.push_back(path);
        }
        shards_.back()->append_document(tokens, text_bytes);
        ++part_.documents;
        part_.tokens += more;
        part_.text_bytes += text_bytes;
    }

    void close() {
        if (!shards_.empty()) shards_.back()->close();
    }
    void publish() {
        for (const auto& shard : shards_) shard->publish();
    }
    const CorpusPart& part() const { return part_; }
    std::string pattern() const { return prefix_ + "[0-9][0-9][0-9][0-9][0-9].h5"; }

private:
    std::string prefix_;
    std::int64_t max_tokens_;
    ShardIdentity identity_;
    std::vector<std::unique_ptr<ShardWriter>> shards_;
    CorpusPart part_;
};

std::vector<std::string> existing_shards(const ShardSet& set) try {
    return matching_paths(set.pattern());
} catch (const core::DataError&) {
    return {};
}

void check_args(const TokenizeArgs& args) {
    if (!(args.validation_fraction >= 0 && args.validation_fraction < 1)) {
        core::raise<core::UsageError>("the validation fraction must be at least 0 and below 1, not {}",
                                      args.validation_fraction);
    }
    if (!args.validation_text_path.empty() && args.validation_fraction == 0) {
        core::raise<core::UsageError>("a file for the validation text was named ({}), but the validation fraction is 0",
                                      args.validation_text_path);
    }
    if (args.max_tokens_per_shard < 1) {
        core::raise<core::UsageError>("a shard must hold at least 1 token, not {}", args.max_tokens_per_shard);
    }
    if (args.num_threads < 1)
        core::raise<core::UsageError>("the number of threads must be at least 1, not {}", args.num_threads);
}

/// Makes the folder the shards go to, before hours are spent on filling them.
void prepare_folder(const TokenizeArgs& args) {
    const std::filesystem::path folder = std::filesystem::absolute(args.output_prefix).parent_path();
    std::error_code code;
    std::filesystem::create_directories(folder, code);
    if (code || access(folder.c_str(), W_OK) != 0) {
        core::raise<core::UsageError>("cannot write shards to {}: {}", folder.string(),
                                      code ? code.message() : std::strerror(errno));
    }
}

std::size_t block_bytes(int num_threads) {
    return std::clamp(static_cast<std::size_t>(num_threads) * kBlockBytesPerThread, kLeastBlockBytes, kMostBlockBytes);
}

/// Documents in their order, and how far the files were read by then.
struct Block {
    std::vector<std::string> documents;
    std::int64_t bytes_read = 0;
};

Block read_block(TextSource& source, std::size_t least_bytes) {
    Block block;
    std::size_t bytes = 0;
    std::string document;
    while (bytes < least_bytes && source.next(document)) {
        bytes += document.size();
        block.documents.push_back(std::move(document));
    }
    block.bytes_read = source.bytes_read();
    return block;
}

/// Encodes every document; out[d] belongs to documents[d]. The first error in document order is thrown.
void encode_all(const Tokenizer& tokenizer, const std::vector<std::string>& documents, int num_threads,
                std::vector<std::vector<std::int32_t>>& out) {
    out.resize(documents.size());
    std::vector<std::exception_ptr> failures(documents.size());
    core::parallel_items(static_cast<std::int64_t>(documents.size()), kDocumentsAtATime, num_threads,
                         [&](std::int64_t document) {
                             const auto d = static_cast<std::size_t>(document);
                             try {
                                 out[d] = tokenizer.encode(documents[d]);
                             } catch (...) {
                                 failures[d] = std::current_exception();
                             }
                         });
    for (const std::exception_ptr& failure : failures) {
        if (failure != nullptr) std::rethrow_exception(failure);
    }
}

bool is_validation(const TokenizeArgs& args, std::int64_t document) {
    if (args.validation_fraction == 0) return false;
    const auto index = static_cast<std::uint64_t>(document);
    const auto words = core::philox4x32_10({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                                            kSplitStream, static_cast<std::uint32_t>(core::RandomPurpose::data_order)},
                                           core::philox_key(args.seed));
    return core::uniform_open_closed(words[0]) <= args.validation_fraction;
}

void check_parts(const TokenizeArgs& args, const TextCounts& counts, const CorpusPart& train,
                 const CorpusPart& validation) {
    if (counts.documents == 0) {
        core::raise<core::DataError>(
                "no document holds text: {} empty documents, {} malformed lines, {} lines without the key in {} files",
                counts.empty_documents, counts.malformed_lines, counts.lines_without_key, args.source.paths.size());
    }
    if (train.documents > 0 && (validation.documents > 0 || args.validation_fraction == 0)) return;
    core::raise<core::DataError>(
            "the {} part is empty: of {} documents {} went to training and {} to validation (--validation {}); give "
            "more documents, another separator or another fraction",
            train.documents == 0 ? "training" : "validation", counts.documents, train.documents, validation.documents,
            args.validation_fraction);
}

}  // namespace

TokenizeSummary tokenize_corpus(const TokenizeArgs& args) {
    check_args(args);
    prepare_folder(args);
    const Tokenizer tokenizer = Tokenizer::load(args.tokenizer_path);
    ShardSet sets[] = {{args, kPartNames[0], tokenizer}, {args, kPartNames[1], tokenizer}};
    std::vector<std::string> old_shards;
    for (const ShardSet& set : sets) {
        for (std::string& path : existing_shards(set)) old_shards.push_back(std::move(path));
    }
    if (!old_shards.empty() && args.existing == ExistingShards::refuse) {
        core::raise<core::UsageError>(
                "{} and {} other shards with this prefix exist already; choose another prefix or give --overwrite",
                old_shards.front(), old_shards.size() - 1);
    }
    std::optional<AtomicFile> validation_text;
    if (!args.validation_text_path.empty()) validation_text.emplace(args.validation_text_path);

    TextSource source(args.source);
    std::vector<std::vector<std::int32_t>> tokens;
    std::int64_t document_index = 0;
    const std::size_t least_bytes = block_bytes(args.num_threads);
    Block block = read_block(source, least_bytes);
    while (!block.documents.empty()) {
        std::future<Block> ahead =
                std::async(std::launch::async, [&source, least_bytes] { return read_block(source, least_bytes); });
        const std::vector<std::string>& documents = block.documents;
        encode_all(tokenizer, documents, args.num_threads, tokens);
        for (std::size_t d = 0; d < documents.size(); ++d, ++document_index) {
            const bool held_out = is_validation(args, document_index);
            if (held_out && validation_text) {
                if (sets[1].part().documents > 0)
                    validation_text->write(args.source.separator.data(), args.source.separator.size());
                validation_text->write(documents[d].data(), documents[d].size());
            }
            sets[held_out ? 1 : 0].append_document(tokens[d], static_cast<std::int64_t>(documents[d].size()));
        }
        if (args.stop != nullptr && args.stop->load())
            core::raise<core::RunError>("stopped by a signal; no shard was written");
        if (args.on_progress) {
            args.on_progress({.bytes_read = block.bytes_read,
                              .total_bytes = source.total_bytes(),
                              .text_bytes = sets[0].part().text_bytes + sets[1].part().text_bytes,
                              .documents = document_index,
                              .tokens = sets[0].part().tokens + sets[1].part().tokens});
        }
        block = ahead.get();
    }
    check_parts(args, source.counts(), sets[0].part(), sets[1].part());
    for (ShardSet& set : sets) set.close();
    for (const std::string& path : old_shards) std::filesystem::remove(path);
    for (ShardSet& set : sets) set.publish();
    if (validation_text) validation_text->commit();
    return {.counts = source.counts(), .train = sets[0].part(), .validation = sets[1].part()};
}

}  // namespace tessera::data

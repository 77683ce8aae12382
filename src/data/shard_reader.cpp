#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "data/hdf5_handle.h"
#include "data/hdf5_header_check.h"
#include "data/shard.h"
#include "data/shard_layout.h"

namespace tessera::data {
namespace {

constexpr std::int64_t kCheckBlock = std::int64_t{1} << 20;
/// So many at either end stand for the content of a shard without a checksum.
constexpr std::int64_t kHashedTokens = 4096;

}  // namespace

ShardReader ShardReader::open(const std::string& path, const ShardNames& names,
                              std::shared_ptr<OpenDatasets> open_datasets) try {
    check_shard_file(path);
    if (const std::string fault = hdf5_header_fault(path); !fault.empty()) {
        core::raise<core::DataError>("is damaged: {} in the header of its root group", fault);
    }
    ShardReader shard;
    shard.path_ = path;
    const Hdf5Lock lock;
    const Hdf5Handle file = open_hdf5_read_only(path);
    shard.tokens_ = IntegerArray::open(path, tokens_dataset_name(file.get(), names), open_datasets);
    if (shard.tokens_.size() == 0) core::raise<core::DataError>("holds no tokens");
    if (!names.document_offsets.empty() && H5Lexists(file.get(), names.document_offsets.c_str(), H5P_DEFAULT) > 0) {
        shard.document_offsets_ = IntegerArray::open(path, names.document_offsets, open_datasets);
        if (shard.document_offsets_->size() < 1) core::raise<core::DataError>("'{}' is empty", names.document_offsets);
        const std::int64_t first = shard.document_offset(0);
        const std::int64_t last = shard.document_offset(shard.num_documents());
        if (first != 0 || last != shard.num_tokens()) {
            core::raise<core::DataError>("'{}' goes from {} to {}, but must go from 0 to the number of tokens, {}",
                                         names.document_offsets, first, last, shard.num_tokens());
        }
    }
    shard.format_version_ = read_integer_attribute(file.get(), "format_version");
    if (shard.format_version_.value_or(1) > kShardFormatVersion) {
        core::raise<core::DataError>("has format version {}, this program reads up to {}", *shard.format_version_,
                                     kShardFormatVersion);
    }
    shard.identity_.vocab_size = read_integer_attribute(file.get(), "vocab_size");
    if (const auto eod_id = read_integer_attribute(file.get(), "eod_id")) {
        shard.identity_.eod_id = static_cast<std::int32_t>(std::clamp<std::int64_t>(*eod_id, INT32_MIN, INT32_MAX));
    }
    shard.identity_.tokenizer_sha256 = read_string_attribute(file.get(), "tokenizer_sha256");
    shard.text_bytes_ = read_integer_attribute(file.get(), "text_bytes");
    shard.tokens_xxh64_ = read_unsigned_attribute(file.get(), "tokens_xxh64");
    return shard;
} catch (const core::Error& error) {
    throw core::DataError(fmt::format("{} {}", path, error.what()));
}

std::uint64_t ShardReader::content_hash() const {
    if (tokens_xxh64_) return *tokens_xxh64_;
    const std::int64_t count = std::min(num_tokens(), kHashedTokens);
    std::vector<std::int64_t> ends(static_cast<std::size_t>(2 * count));
    tokens_.read(0, std::span(ends).first(static_cast<std::size_t>(count)));
    tokens_.read(num_tokens() - count, std::span(ends).last(static_cast<std::size_t>(count)));
    return XXH64(ends.data(), ends.size() * sizeof(std::int64_t), 0);
}

void ShardReader::read(std::int64_t first, std::span<std::int32_t> out, std::int64_t vocab_size) const {
    std::vector<std::int64_t> wide(out.size());
    tokens_.read(first, wide);
    const std::int64_t limit = std::min<std::int64_t>(vocab_size, std::numeric_limits<std::int32_t>::max());
    for (std::size_t k = 0; k < wide.size(); ++k) {
        if (wide[k] < 0 || wide[k] >= limit) {
            const TokenPlace place = place_of(first + static_cast<std::int64_t>(k));
            const std::string where = place.document < 0
                                              ? fmt::format("offset {}", place.offset)
                                              : fmt::format("document {}, offset {}", place.document, place.offset);
            core::raise<core::DataError>(
                    "token id {} in shard {}, {} (token {} of the shard), is outside the vocabulary of {}; use the "
                    "tokenizer and vocabulary size that the shard was made with",
                    wide[k], path_, where, first + static_cast<std::int64_t>(k), vocab_size);
        }
        out[k] = static_cast<std::int32_t>(wide[k]);
    }
}

std::int64_t ShardReader::document_offset(std::int64_t document) const {
    std::int64_t offset = 0;
    document_offsets_->read(document, {&offset, 1});
    return offset;
}

std::int64_t ShardReader::first_document_at_or_after(std::int64_t token) const {
    std::int64_t low = 0;
    std::int64_t high = num_documents();
    while (low < high) {
        const std::int64_t middle = low + (high - low) / 2;
        if (document_offset(middle) < token) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

std::vector<std::int64_t> ShardReader::document_starts(std::int64_t first, std::int64_t last) const {
    const std::int64_t begin = first_document_at_or_after(first);
    const std::int64_t end = first_document_at_or_after(last);
    std::vector<std::int64_t> starts(static_cast<std::size_t>(std::max<std::int64_t>(end - begin, 0)));
    document_offsets_->read(begin, starts);
    return starts;
}

TokenPlace ShardReader::place_of(std::int64_t token) const {
    if (!document_offsets_) return {-1, token};
    const std::int64_t document = std::max<std::int64_t>(first_document_at_or_after(token + 1) - 1, 0);
    return {document, token - document_offset(document)};
}

/// Offsets and tokens pass through in blocks: a damaged shard may claim any number of either.
void ShardReader::check_documents() const {
    const std::int64_t count = num_documents();
    std::vector<std::int64_t> offsets;
    for (std::int64_t first = 0; first < count; first += kCheckBlock) {
        offsets.resize(static_cast<std::size_t>(std::min(kCheckBlock, count - first) + 1));
        document_offsets_->read(first, offsets);
        for (std::size_t at = 0; at + 1 < offsets.size(); ++at) {
            check_document(first + static_cast<std::int64_t>(at), offsets[at], offsets[at + 1]);
        }
    }
}

void ShardReader::check_document(std::int64_t document, std::int64_t begin, std::int64_t end) const {
    if (begin < 0 || end < begin || end > num_tokens()) {
        core::raise<core::DataError>("{}: document {} goes from token {} to {} of {}", path_, document, begin, end,
                                     num_tokens());
    }
    if (!format_version_ || !identity_.eod_id) return;
    std::int64_t ends = 0;
    std::int64_t last = -1;
    std::vector<std::int64_t> tokens;
    for (std::int64_t first = begin; first < end; first += kCheckBlock) {
        tokens.resize(static_cast<std::size_t>(std::min(kCheckBlock, end - first)));
        tokens_.read(first, tokens);
        ends += std::count(tokens.begin(), tokens.end(), *identity_.eod_id);
        last = tokens.back();
    }
    if (ends != 1 || last != *identity_.eod_id) {
        core::raise<core::DataError>(
                "{}: document {} holds {} end-of-document tokens (id {}), one at its end is expected", path_, document,
                ends, *identity_.eod_id);
    }
}

void ShardReader::check_checksum() const {
    if (!tokens_xxh64_ || tokens_.mapped_bytes().empty()) return;
    const std::uint64_t found = XXH64(tokens_.mapped_bytes().data(), tokens_.mapped_bytes().size(), 0);
    if (found == *tokens_xxh64_) return;
    core::raise<core::DataError>(
            "{}: the tokens have checksum {:016x}, but {:016x} was stored when they were written: the file is damaged",
            path_, found, *tokens_xxh64_);
}

void ShardReader::check() const {
    check_checksum();
    const std::int64_t vocab_size = identity_.vocab_size.value_or(std::numeric_limits<std::int32_t>::max());
    std::vector<std::int32_t> block;
    for (std::int64_t first = 0; first < num_tokens(); first += kCheckBlock) {
        block.resize(static_cast<std::size_t>(std::min(kCheckBlock, num_tokens() - first)));
        read(first, block, vocab_size);
    }
    if (document_offsets_) check_documents();
}

std::vector<ShardReader> open_shards(const std::vector<std::string>& paths, const ShardNames& names) {
    const auto open_datasets = std::make_shared<OpenDatasets>();
    std::vector<ShardReader> shards;
    std::vector<std::string> reasons;
    for (const std::string& path : paths) {
        try {
            shards.push_back(ShardReader::open(path, names, open_datasets));
        } catch (const core::DataError& error) {
            reasons.emplace_back(error.what());
        }
    }
    if (!reasons.empty()) {
        core::raise<core::DataError>("{} of {} shards cannot be used: {}", reasons.size(), paths.size(),
                                     fmt::join(reasons, "; "));
    }
    return shards;
}

}  // namespace tessera::data

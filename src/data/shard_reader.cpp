#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "core/error.h"
#include "data/hdf5_handle.h"
#include "data/shard.h"

namespace tessera::data {
namespace {

constexpr std::int64_t kCheckBlock = std::int64_t{1} << 20;
constexpr std::size_t kLongestString = 4096;

template <typename T>
std::optional<T> read_attribute(hid_t file, const char* name, hid_t memory_type) {
    if (H5Aexists(file, name) <= 0) return std::nullopt;
    const Hdf5Handle attribute(H5Aopen(file, name, H5P_DEFAULT), H5Aclose);
    const Hdf5Handle type(H5Aget_type(attribute.get()), H5Tclose);
    const Hdf5Handle space(H5Aget_space(attribute.get()), H5Sclose);
    T value{};
    if (H5Tget_class(type.get()) != H5T_INTEGER || H5Sget_simple_extent_npoints(space.get()) != 1 ||
        H5Aread(attribute.get(), memory_type, &value) < 0) {
        core::raise<core::DataError>("attribute '{}' is not one integer", name);
    }
    return value;
}

std::string read_string_attribute(hid_t file, const char* name) {
    if (H5Aexists(file, name) <= 0) return {};
    const Hdf5Handle attribute(H5Aopen(file, name, H5P_DEFAULT), H5Aclose);
    const Hdf5Handle type(H5Aget_type(attribute.get()), H5Tclose);
    const Hdf5Handle space(H5Aget_space(attribute.get()), H5Sclose);
    if (H5Tget_class(type.get()) != H5T_STRING || H5Sget_simple_extent_npoints(space.get()) != 1 ||
        H5Tget_size(type.get()) > kLongestString) {
        core::raise<core::DataError>("attribute '{}' is not one string of at most {} bytes", name, kLongestString);
    }
    if (H5Tis_variable_str(type.get()) > 0) {
        char* text = nullptr;
        if (H5Aread(attribute.get(), type.get(), &text) < 0 || text == nullptr) return {};
        std::string value = text;
        H5free_memory(text);
        return value;
    }
    std::string value(H5Tget_size(type.get()), '\0');
    if (H5Aread(attribute.get(), type.get(), value.data()) < 0) return {};
    return value.substr(0, value.find('\0'));
}

std::string tokens_name(hid_t file, const ShardNames& names) {
    if (!names.tokens.empty()) return names.tokens;
    for (const char* name : {"tokens", "input_ids"}) {
        if (H5Lexists(file, name, H5P_DEFAULT) > 0) return name;
    }
    core::raise<core::DataError>("has neither a dataset 'tokens' nor 'input_ids'; name the one that holds the tokens");
}

void check_file(const std::string& path) {
    std::error_code code;
    if (!std::filesystem::exists(path, code)) core::raise<core::DataError>("does not exist");
    if (!std::filesystem::is_regular_file(path, code)) core::raise<core::DataError>("is not a file");
    if (std::filesystem::file_size(path, code) == 0) core::raise<core::DataError>("is empty (0 bytes)");
}

}  // namespace

ShardReader ShardReader::open(const std::string& path, const ShardNames& names,
                              std::shared_ptr<OpenDatasets> open_datasets) try {
    check_file(path);
    ShardReader shard;
    shard.path_ = path;
    const Hdf5Lock lock;
    const Hdf5Handle file = open_hdf5_read_only(path);
    shard.tokens_ = IntegerArray::open(path, tokens_name(file.get(), names), open_datasets);
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
    shard.format_version_ = read_attribute<std::int64_t>(file.get(), "format_version", H5T_NATIVE_INT64);
    if (shard.format_version_.value_or(1) > kShardFormatVersion) {
        core::raise<core::DataError>("has format version {}, this program reads up to {}", *shard.format_version_,
                                     kShardFormatVersion);
    }
    shard.identity_.vocab_size = read_attribute<std::int64_t>(file.get(), "vocab_size", H5T_NATIVE_INT64);
    shard.identity_.eod_id = read_attribute<std::int32_t>(file.get(), "eod_id", H5T_NATIVE_INT32);
    shard.identity_.tokenizer_sha256 = read_string_attribute(file.get(), "tokenizer_sha256");
    shard.text_bytes_ = read_attribute<std::int64_t>(file.get(), "text_bytes", H5T_NATIVE_INT64);
    shard.tokens_xxh64_ = read_attribute<std::uint64_t>(file.get(), "tokens_xxh64", H5T_NATIVE_UINT64);
    return shard;
} catch (const core::Error& error) {
    throw core::DataError(fmt::format("{} {}", path, error.what()));
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

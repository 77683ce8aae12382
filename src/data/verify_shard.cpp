#include "data/verify_shard.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "core/error.h"
#include "data/hdf5_handle.h"
#include "data/shard_layout.h"

namespace tessera::data {
namespace {

constexpr std::int64_t kBlockTokens = std::int64_t{1} << 20;

struct FreeXxh64 {
    void operator()(XXH64_state_t* state) const { XXH64_freeState(state); }
};

class Verification {
public:
    explicit Verification(const VerifyShardArgs& args) : args_(args) {}
    ShardReport run();

private:
    void open();
    void read_attributes(hid_t file);
    void check_identity();
    void check_offsets();
    void check_document_bytes();
    void check_tokens();
    void check_token(std::int64_t token, std::int64_t id);
    void end_documents_before(std::int64_t token);
    void end_run_of_bad_ids();
    void hash(std::span<const std::int64_t> tokens);

    void fault(ShardFault found) {
        ++report_.num_faults;
        if (args_.on_fault) args_.on_fault(found);
    }
    void fault_of_shard(std::string what) { fault({.what = std::move(what)}); }
    ShardFault at(std::int64_t token, std::string what) const;

    const VerifyShardArgs& args_;
    ShardReport report_;
    std::optional<IntegerArray> tokens_;
    std::optional<IntegerArray> document_offsets_;
    std::optional<IntegerArray> document_bytes_;
    std::optional<std::int64_t> format_version_;
    std::optional<std::int64_t> vocab_size_;
    std::optional<std::int64_t> eod_id_;
    std::optional<std::int64_t> text_bytes_;
    std::optional<std::uint64_t> tokens_xxh64_;
    std::string tokenizer_sha256_;

    std::vector<std::int64_t> offsets_;  ///< empty unless sound
    bool ends_are_checked_ = false;
    std::int64_t document_ = 0;
    std::int64_t last_id_ = -1;
    std::int64_t bad_ids_begin_ = -1;
    std::int64_t bad_ids_end_ = -1;
    std::int64_t first_bad_id_ = 0;
    std::unique_ptr<XXH64_state_t, FreeXxh64> hash_state_;
    std::vector<unsigned char> stored_bytes_;
};

void Verification::read_attributes(hid_t file) {
    const auto read = [&](auto& target, auto reader, const char* name) {
        try {
            target = reader(file, name);
        } catch (const core::DataError& error) {
            fault_of_shard(error.what());
        }
    };
    read(format_version_, read_integer_attribute, "format_version");
    read(vocab_size_, read_integer_attribute, "vocab_size");
    read(eod_id_, read_integer_attribute, "eod_id");
    read(text_bytes_, read_integer_attribute, "text_bytes");
    read(tokens_xxh64_, read_unsigned_attribute, "tokens_xxh64");
    read(tokenizer_sha256_, read_string_attribute, "tokenizer_sha256");
}

void Verification::open() {
    check_shard_file(args_.path);
    const auto open_datasets = std::make_shared<OpenDatasets>();
    const Hdf5Lock lock;
    const Hdf5Handle file = open_hdf5_read_only(args_.path);
    read_attributes(file.get());
    const auto open_part = [&](std::optional<IntegerArray>& part, const std::string& name) {
        if (name.empty() || H5Lexists(file.get(), name.c_str(), H5P_DEFAULT) <= 0) return;
        try {
            part = IntegerArray::open(args_.path, name, open_datasets);
        } catch (const core::DataError& error) {
            fault_of_shard(error.what());
        }
    };
    open_part(document_offsets_, args_.names.document_offsets);
    open_part(document_bytes_, "document_bytes");
    tokens_ = IntegerArray::open(args_.path, tokens_dataset_name(file.get(), args_.names), open_datasets);
    report_.num_tokens = tokens_->size();
    if (report_.num_tokens == 0) fault_of_shard("holds no tokens");
    if (format_version_.value_or(1) > kShardFormatVersion) {
        fault_of_shard(fmt::format("has format version {}, this program knows up to {}", *format_version_,
                                   kShardFormatVersion));
    }
}

void Verification::check_identity() {
    if (vocab_size_ && *vocab_size_ < 1) {
        fault_of_shard(fmt::format("vocab_size is {}, it must be positive", *vocab_size_));
        vocab_size_.reset();
    }
    if (eod_id_ && vocab_size_ && (*eod_id_ < 0 || *eod_id_ >= *vocab_size_)) {
        fault_of_shard(fmt::format("eod_id {} is outside the vocabulary of {}", *eod_id_, *vocab_size_));
    }
    if (args_.tokenizer == nullptr) return;
    const Tokenizer& tokenizer = *args_.tokenizer;
    if (tokenizer_sha256_.empty()) {
        report_.not_checked.emplace_back("the tokenizer: the shard does not name the one it was made with");
    } else if (tokenizer_sha256_ != tokenizer.sha256()) {
        fault_of_shard(fmt::format("was made with the tokenizer {:.12}..., but {} is {:.12}...", tokenizer_sha256_,
                                   tokenizer.path(), tokenizer.sha256()));
    }
    if (vocab_size_ && *vocab_size_ != tokenizer.vocab_size()) {
        fault_of_shard(fmt::format("vocab_size is {}, but {} has {} pieces", *vocab_size_, tokenizer.path(),
                                   tokenizer.vocab_size()));
    }
    if (eod_id_ && *eod_id_ != tokenizer.eod_id()) {
        fault_of_shard(
                fmt::format("eod_id is {}, but that of {} is {}", *eod_id_, tokenizer.path(), tokenizer.eod_id()));
    }
    if (!vocab_size_) vocab_size_ = tokenizer.vocab_size();
}

void Verification::check_offsets() {
    if (!document_offsets_) {
        report_.not_checked.push_back(
                fmt::format("documents: there is no usable dataset '{}'", args_.names.document_offsets));
        return;
    }
    if (document_offsets_->size() == 0) return fault_of_shard("'" + args_.names.document_offsets + "' is empty");
    std::vector<std::int64_t> offsets(static_cast<std::size_t>(document_offsets_->size()));
    document_offsets_->read(0, offsets);
    report_.num_documents = document_offsets_->size() - 1;
    const std::int64_t before = report_.num_faults;
    if (offsets.front() != 0)
        fault_of_shard(fmt::format("the first document starts at token {}, not 0", offsets.front()));
    for (std::size_t d = 0; d + 1 < offsets.size(); ++d) {
        if (offsets[d + 1] >= offsets[d] && offsets[d + 1] <= report_.num_tokens) continue;
        fault({.document = static_cast<std::int64_t>(d),
               .what = fmt::format("goes from token {} to {} of {}", offsets[d], offsets[d + 1], report_.num_tokens)});
    }
    if (offsets.back() != report_.num_tokens) {
        fault_of_shard(fmt::format("the last document ends at token {}, but there are {}", offsets.back(),
                                   report_.num_tokens));
    }
    if (report_.num_faults == before) offsets_ = std::move(offsets);
}

void Verification::check_document_bytes() {
    if (!document_bytes_) {
        if (text_bytes_) report_.not_checked.emplace_back("text bytes: there is no usable dataset 'document_bytes'");
        return;
    }
    if (report_.num_documents >= 0 && document_bytes_->size() != report_.num_documents) {
        fault_of_shard(fmt::format("document_bytes holds {} numbers for {} documents", document_bytes_->size(),
                                   report_.num_documents));
    }
    if (!text_bytes_) {
        report_.not_checked.emplace_back("text bytes: there is no attribute text_bytes");
        return;
    }
    std::vector<std::int64_t> bytes(static_cast<std::size_t>(document_bytes_->size()));
    document_bytes_->read(0, bytes);
    std::uint64_t sum = 0;
    for (const std::int64_t count : bytes) sum += static_cast<std::uint64_t>(count);
    if (sum != static_cast<std::uint64_t>(*text_bytes_)) {
        fault_of_shard(fmt::format("document_bytes add up to {}, but text_bytes is {}", sum, *text_bytes_));
    }
}

ShardFault Verification::at(std::int64_t token, std::string what) const {
    if (offsets_.empty()) return {.token = token, .what = std::move(what)};
    const auto after = std::upper_bound(offsets_.begin(), offsets_.end() - 1, token);
    const std::int64_t document = after - offsets_.begin() - 1;
    return {.document = document,
            .offset = token - offsets_[static_cast<std::size_t>(document)],
            .token = token,
            .what = std::move(what)};
}

void Verification::end_run_of_bad_ids() {
    if (bad_ids_begin_ < 0) return;
    const std::int64_t count = bad_ids_end_ - bad_ids_begin_;
    const std::string more = count > 1 ? fmt::format(", and so are the {} ids after it", count - 1) : "";
    const std::string limit = vocab_size_ ? fmt::format("outside the vocabulary of {}", *vocab_size_) : "negative";
    fault(at(bad_ids_begin_, fmt::format("token id {} is {}{}", first_bad_id_, limit, more)));
    bad_ids_begin_ = -1;
}

void Verification::end_documents_before(std::int64_t token) {
    const std::int64_t count = report_.num_documents;
    while (document_ < count && offsets_[static_cast<std::size_t>(document_) + 1] <= token) {
        const std::int64_t begin = offsets_[static_cast<std::size_t>(document_)];
        const std::int64_t end = offsets_[static_cast<std::size_t>(document_) + 1];
        const std::int64_t document = document_++;
        if (begin == end) {
            fault({.document = document,
                   .what = fmt::format("is empty, without its end-of-document token {}", *eod_id_)});
        } else if (last_id_ != *eod_id_) {
            fault({.document = document,
                   .offset = end - 1 - begin,
                   .token = end - 1,
                   .what = fmt::format("ends in token id {}, not in the end-of-document token {}", last_id_,
                                       *eod_id_)});
        }
    }
}

void Verification::check_token(std::int64_t token, std::int64_t id) {
    if (ends_are_checked_) {
        end_documents_before(token);
        if (id == *eod_id_ && token + 1 != offsets_[static_cast<std::size_t>(document_) + 1]) {
            fault(at(token, fmt::format("the end-of-document token {} stands before the end", id)));
        }
        last_id_ = id;
    }
    const std::int64_t limit = vocab_size_.value_or(std::numeric_limits<std::int64_t>::max());
    if (id >= 0 && id < limit) return end_run_of_bad_ids();
    if (bad_ids_begin_ < 0) {
        bad_ids_begin_ = token;
        first_bad_id_ = id;
    }
    bad_ids_end_ = token + 1;
}

void Verification::hash(std::span<const std::int64_t> tokens) {
    if (hash_state_ == nullptr) return;
    const auto width = static_cast<std::size_t>(tokens_->element_bytes());
    stored_bytes_.resize(tokens.size() * width);
    for (std::size_t k = 0; k < tokens.size(); ++k) {
        for (std::size_t b = 0; b < width; ++b) {
            stored_bytes_[k * width + b] = static_cast<unsigned char>(static_cast<std::uint64_t>(tokens[k]) >> (8 * b));
        }
    }
    XXH64_update(hash_state_.get(), stored_bytes_.data(), stored_bytes_.size());
}

void Verification::check_tokens() {
    if (!vocab_size_)
        report_.not_checked.emplace_back(
                "the upper bound of ids: neither the shard nor a tokenizer names a vocabulary");
    if (tokens_xxh64_) {
        hash_state_.reset(XXH64_createState());
        XXH64_reset(hash_state_.get(), 0);
    } else {
        report_.not_checked.emplace_back("the checksum: none is stored");
    }
    ends_are_checked_ = format_version_ && eod_id_ && !offsets_.empty();
    if (!ends_are_checked_) {
        report_.not_checked.emplace_back(
                !format_version_ ? "ends of documents: the shard is not of gpt_data, whose rule they would follow"
                : !eod_id_       ? "ends of documents: the shard does not say which token ends one"
                                 : "ends of documents: it is not sound where they start");
    }
    std::vector<std::int64_t> block;
    for (std::int64_t first = 0; first < report_.num_tokens; first += kBlockTokens) {
        block.resize(static_cast<std::size_t>(std::min(kBlockTokens, report_.num_tokens - first)));
        tokens_->read(first, block);
        hash(block);
        for (std::size_t k = 0; k < block.size(); ++k) check_token(first + static_cast<std::int64_t>(k), block[k]);
    }
    end_run_of_bad_ids();
    if (ends_are_checked_) end_documents_before(report_.num_tokens);
    if (hash_state_ == nullptr) return;
    const std::uint64_t found = XXH64_digest(hash_state_.get());
    if (found != *tokens_xxh64_) {
        fault_of_shard(fmt::format("the tokens have checksum {:016x}, but {:016x} was stored when they were written",
                                   found, *tokens_xxh64_));
    }
}

ShardReport Verification::run() {
    try {
        open();
        check_identity();
        check_offsets();
        check_document_bytes();
        check_tokens();
    } catch (const core::Error& error) {
        fault_of_shard(error.what());
        report_.not_checked.emplace_back("everything that follows");
    }
    return report_;
}

}  // namespace

std::string to_string(const ShardFault& fault) {
    std::string place;
    if (fault.document >= 0) place = fmt::format("document {}", fault.document);
    if (fault.document >= 0 && fault.offset >= 0) place += fmt::format(", offset {}", fault.offset);
    if (fault.token >= 0) {
        place += fault.document >= 0 ? fmt::format(" (token {} of the shard)", fault.token)
                                     : fmt::format("token {} of the shard", fault.token);
    }
    return place.empty() ? fault.what : place + ": " + fault.what;
}

ShardReport verify_shard(const VerifyShardArgs& args) {
    return Verification(args).run();
}

}  // namespace tessera::data

#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "core/error.h"
#include "data/atomic_file.h"
#include "data/hdf5_handle.h"
#include "data/shard.h"

namespace tessera::data {
namespace {

constexpr std::int64_t kNarrowVocabulary = std::int64_t{1} << 16;
/// Datasets from this size on start at a multiple of a page, which suits mapping.
constexpr hsize_t kAlignFromBytes = 65536;
constexpr hsize_t kAlignment = 4096;

void check_call(bool succeeded, const char* what, const std::string& path) {
    if (!succeeded) core::raise<core::EnvironmentError>("writing {} of {} failed: {}", what, path, hdf5_reason());
}

template <typename T>
void write_dataset(hid_t file, const char* name, hid_t stored_type, hid_t memory_type, const std::vector<T>& values,
                   const std::string& path) {
    const hsize_t size = values.size();
    const Hdf5Handle space(H5Screate_simple(1, &size, nullptr), H5Sclose);
    // Without times in the file the same tokens give the same bytes.
    const Hdf5Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    H5Pset_obj_track_times(creation.get(), 0);
    const Hdf5Handle data(H5Dcreate2(file, name, stored_type, space.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT),
                          H5Dclose);
    check_call(data.valid() && H5Dwrite(data.get(), memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0,
               name, path);
}

template <typename T>
void write_attribute(hid_t file, const char* name, hid_t stored_type, hid_t memory_type, const T* value,
                     const std::string& path) {
    const Hdf5Handle space(H5Screate(H5S_SCALAR), H5Sclose);
    const Hdf5Handle attribute(H5Acreate2(file, name, stored_type, space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
    check_call(attribute.valid() && H5Awrite(attribute.get(), memory_type, value) >= 0, name, path);
}

void write_integer(hid_t file, const char* name, std::int64_t value, const std::string& path) {
    write_attribute(file, name, H5T_STD_I64LE, H5T_NATIVE_INT64, &value, path);
}

void write_unsigned(hid_t file, const char* name, std::uint64_t value, const std::string& path) {
    write_attribute(file, name, H5T_STD_U64LE, H5T_NATIVE_UINT64, &value, path);
}

void write_string(hid_t file, const char* name, const std::string& value, const std::string& path) {
    const Hdf5Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
    H5Tset_size(type.get(), std::max<std::size_t>(value.size(), 1));
    H5Tset_strpad(type.get(), H5T_STR_NULLPAD);
    write_attribute(file, name, type.get(), type.get(), value.c_str(), path);
}

template <typename T>
std::uint64_t checksum(const std::vector<T>& tokens) {
    return XXH64(tokens.data(), tokens.size() * sizeof(T), 0);
}

}  // namespace

ShardWriter::ShardWriter(ShardWriterArgs args) : args_(std::move(args)), temporary_path_(temporary_name(args_.path)) {
    const ShardIdentity& identity = args_.identity;
    if (!identity.vocab_size || !identity.eod_id || *identity.vocab_size < 1 || *identity.eod_id < 0 ||
        *identity.eod_id >= *identity.vocab_size) {
        core::raise<core::DataError>(
                "shard {} needs a vocabulary size and an end-of-document id inside it, got {} and {}", args_.path,
                identity.vocab_size.value_or(-1), identity.eod_id.value_or(-1));
    }
    wide_ = args_.storage == TokenStorage::u32 ||
            (args_.storage == TokenStorage::automatic && *identity.vocab_size > kNarrowVocabulary);
}

ShardWriter::~ShardWriter() {
    if (closed_ && !published_) unlink(temporary_path_.c_str());
}

void ShardWriter::append_document(std::span<const std::int32_t> tokens, std::int64_t text_bytes) {
    TESSERA_INVARIANT(!closed_);
    const std::int64_t vocab_size = *args_.identity.vocab_size;
    const std::int64_t limit = wide_ ? vocab_size : std::min(vocab_size, kNarrowVocabulary);
    for (std::size_t k = 0; k < tokens.size(); ++k) {
        if (tokens[k] >= 0 && tokens[k] < limit) continue;
        core::raise<core::DataError>(
                "token id {} at token {} of document {} does not fit shard {}: ids must be below {} ({})", tokens[k], k,
                num_documents(), args_.path, limit,
                limit == vocab_size ? "the vocabulary size" : "16-bit storage; use 32-bit storage");
    }
    const std::int32_t eod = *args_.identity.eod_id;
    if (wide_) {
        wide_tokens_.insert(wide_tokens_.end(), tokens.begin(), tokens.end());
        wide_tokens_.push_back(static_cast<std::uint32_t>(eod));
    } else {
        narrow_tokens_.insert(narrow_tokens_.end(), tokens.begin(), tokens.end());
        narrow_tokens_.push_back(static_cast<std::uint16_t>(eod));
    }
    document_offsets_.push_back(document_offsets_.back() + tokens.size() + 1);
    document_bytes_.push_back(static_cast<std::uint64_t>(text_bytes));
    text_bytes_ += static_cast<std::uint64_t>(text_bytes);
}

void ShardWriter::write_file() const {
    const Hdf5Lock lock;
    const std::string& path = args_.path;
    const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
    H5Pset_file_locking(access.get(), 0, 1);
    H5Pset_alignment(access.get(), kAlignFromBytes, kAlignment);
    Hdf5Handle file(H5Fcreate(temporary_path_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), H5Fclose);
    check_call(file.valid(), "the file", path);
    if (wide_) {
        write_dataset(file.get(), "tokens", H5T_STD_U32LE, H5T_NATIVE_UINT32, wide_tokens_, path);
    } else {
        write_dataset(file.get(), "tokens", H5T_STD_U16LE, H5T_NATIVE_UINT16, narrow_tokens_, path);
    }
    write_dataset(file.get(), "document_offsets", H5T_STD_U64LE, H5T_NATIVE_UINT64, document_offsets_, path);
    write_dataset(file.get(), "document_bytes", H5T_STD_U64LE, H5T_NATIVE_UINT64, document_bytes_, path);
    write_integer(file.get(), "format_version", kShardFormatVersion, path);
    write_integer(file.get(), "vocab_size", *args_.identity.vocab_size, path);
    write_integer(file.get(), "eod_id", *args_.identity.eod_id, path);
    write_string(file.get(), "tokenizer_sha256", args_.identity.tokenizer_sha256, path);
    write_unsigned(file.get(), "tokens_xxh64", wide_ ? checksum(wide_tokens_) : checksum(narrow_tokens_), path);
    write_unsigned(file.get(), "text_bytes", text_bytes_, path);
    check_call(H5Fflush(file.get(), H5F_SCOPE_GLOBAL) >= 0, "the end", path);
}

void ShardWriter::close() {
    TESSERA_INVARIANT(!closed_);
    closed_ = true;
    write_file();
    narrow_tokens_ = {};
    wide_tokens_ = {};
}

void ShardWriter::publish() {
    TESSERA_INVARIANT(closed_ && !published_);
    publish_file(temporary_path_, args_.path);
    published_ = true;
}

}  // namespace tessera::data

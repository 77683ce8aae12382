#include "data/shard_layout.h"

#include <filesystem>

#include "core/error.h"
#include "data/hdf5_handle.h"

namespace tessera::data {
namespace {

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

}  // namespace

void check_shard_file(const std::string& path) {
    std::error_code code;
    if (!std::filesystem::exists(path, code)) core::raise<core::DataError>("does not exist");
    if (!std::filesystem::is_regular_file(path, code)) core::raise<core::DataError>("is not a file");
    if (std::filesystem::file_size(path, code) == 0) core::raise<core::DataError>("is empty (0 bytes)");
}

std::string tokens_dataset_name(hid_t file, const ShardNames& names) {
    if (!names.tokens.empty()) return names.tokens;
    for (const char* name : {"tokens", "input_ids"}) {
        if (H5Lexists(file, name, H5P_DEFAULT) > 0) return name;
    }
    core::raise<core::DataError>("has neither a dataset 'tokens' nor 'input_ids'; name the one that holds the tokens");
}

std::optional<std::int64_t> read_integer_attribute(hid_t file, const char* name) {
    return read_attribute<std::int64_t>(file, name, H5T_NATIVE_INT64);
}

std::optional<std::uint64_t> read_unsigned_attribute(hid_t file, const char* name) {
    return read_attribute<std::uint64_t>(file, name, H5T_NATIVE_UINT64);
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

}  // namespace tessera::data

#include "data/integer_array.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#include "core/error.h"
#include "data/hdf5_handle.h"

namespace tessera::data {
namespace {

/// Bytes; HDF5 converts what is wider than a machine's integers.
constexpr std::size_t kWidestInteger = 16;

}  // namespace

struct OpenDatasets::Entry {
    std::string path;
    std::string name;
    Hdf5Handle file;
    Hdf5Handle dataset;
};

OpenDatasets::OpenDatasets(std::size_t capacity) : capacity_(capacity) {}
OpenDatasets::~OpenDatasets() = default;

const OpenDatasets::Entry& OpenDatasets::get(const std::string& path, const std::string& dataset) {
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
        if (entry->path != path || entry->name != dataset) continue;
        entries_.splice(entries_.begin(), entries_, entry);
        return entries_.front();
    }
    while (entries_.size() >= capacity_) entries_.pop_back();
    Hdf5Handle file;
    try {
        file = open_hdf5_read_only(path);
    } catch (const core::DataError& error) {
        core::raise<core::EnvironmentError>("shard {} could be opened before, but now {}", path, error.what());
    }
    Hdf5Handle data(H5Dopen2(file.get(), dataset.c_str(), H5P_DEFAULT), H5Dclose);
    if (!data.valid()) {
        core::raise<core::EnvironmentError>("cannot open dataset {} of {} again: {}", dataset, path, hdf5_reason());
    }
    Entry entry{path, dataset, std::move(file), std::move(data)};
    return entries_.emplace_front(std::move(entry));
}

struct IntegerArray::Mapping {
    void* base = nullptr;
    std::size_t mapped_bytes = 0;
    const unsigned char* data = nullptr;

    Mapping() = default;
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping() {
        if (base != nullptr) munmap(base, mapped_bytes);
    }
    bool map(const std::string& path, std::uint64_t offset, std::uint64_t bytes);
};

bool IntegerArray::Mapping::map(const std::string& path, std::uint64_t offset, std::uint64_t bytes) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return false;
    struct stat status {};
    const std::uint64_t page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    const std::uint64_t start = offset / page * page;
    const bool known = fstat(descriptor, &status) == 0;
    const auto file_bytes = static_cast<std::uint64_t>(known ? status.st_size : 0);
    const bool inside = bytes <= file_bytes && offset <= file_bytes - bytes;
    void* address =
            inside ? mmap(nullptr, offset - start + bytes, PROT_READ, MAP_SHARED, descriptor, static_cast<off_t>(start))
                   : MAP_FAILED;
    close(descriptor);
    if (address == MAP_FAILED) return false;
    base = address;
    mapped_bytes = offset - start + bytes;
    data = static_cast<const unsigned char*>(address) + (offset - start);
    return true;
}

IntegerArray IntegerArray::open(const std::string& path, const std::string& dataset,
                                std::shared_ptr<OpenDatasets> open_datasets) {
    const Hdf5Lock lock;
    const Hdf5Handle file = open_hdf5_read_only(path);
    const Hdf5Handle data(H5Dopen2(file.get(), dataset.c_str(), H5P_DEFAULT), H5Dclose);
    if (!data.valid()) core::raise<core::DataError>("has no dataset '{}'", dataset);
    const Hdf5Handle type(H5Dget_type(data.get()), H5Tclose);
    const Hdf5Handle space(H5Dget_space(data.get()), H5Sclose);
    if (H5Tget_class(type.get()) != H5T_INTEGER) {
        core::raise<core::DataError>("dataset '{}' does not hold integers", dataset);
    }
    const int dimensions = H5Sget_simple_extent_ndims(space.get());
    if (dimensions != 1 && dimensions != 2) {
        core::raise<core::DataError>("dataset '{}' has {} dimensions, 1 or 2 are expected", dataset, dimensions);
    }
    std::array<hsize_t, 2> extent = {1, 1};
    H5Sget_simple_extent_dims(space.get(), extent.data(), nullptr);

    IntegerArray array;
    array.path_ = path;
    array.dataset_ = dataset;
    array.open_datasets_ = std::move(open_datasets);
    array.num_dimensions_ = dimensions;
    const std::size_t element_bytes = H5Tget_size(type.get());
    if (element_bytes > kWidestInteger) {
        core::raise<core::DataError>("dataset '{}' holds integers of {} bytes, at most {} are expected", dataset,
                                     element_bytes, kWidestInteger);
    }
    hsize_t size = 0;
    hsize_t bytes = 0;
    if (__builtin_mul_overflow(extent[0], extent[1], &size) || __builtin_mul_overflow(size, element_bytes, &bytes) ||
        bytes > static_cast<hsize_t>(std::numeric_limits<std::int64_t>::max())) {
        core::raise<core::DataError>("dataset '{}' claims {} x {} elements of {} bytes, more than 2^63 bytes", dataset,
                                     extent[0], extent[1], element_bytes);
    }
    const Hdf5Handle creation(H5Dget_create_plist(data.get()), H5Pclose);
    const H5D_layout_t layout = H5Pget_layout(creation.get());
    // The library believes a compact dataset's extent and reads past its end.
    if (layout == H5D_COMPACT && H5Dget_storage_size(data.get()) < bytes) {
        core::raise<core::DataError>("dataset '{}' claims {} bytes, but the file has {} of them", dataset, bytes,
                                     H5Dget_storage_size(data.get()));
    }
    array.row_length_ = dimensions == 1 ? 1 : static_cast<std::int64_t>(extent[1]);
    array.size_ = static_cast<std::int64_t>(size);
    array.element_bytes_ = static_cast<int>(element_bytes);
    array.is_signed_ = H5Tget_sign(type.get()) == H5T_SGN_2;
    const bool big_endian = H5Tget_order(type.get()) == H5T_ORDER_BE && array.element_bytes_ > 1;
    array.type_name_ = fmt::format("{}int{}{}", array.is_signed_ ? "" : "u", 8 * array.element_bytes_,
                                   big_endian ? " big-endian" : "");

    const bool plain_type = big_endian == (std::endian::native == std::endian::big && array.element_bytes_ > 1) &&
                            std::has_single_bit(static_cast<unsigned>(array.element_bytes_)) &&
                            array.element_bytes_ <= 8 && H5Tget_precision(type.get()) == 8 * H5Tget_size(type.get());
    const haddr_t offset = H5Dget_offset(data.get());
    if (plain_type && array.size_ > 0 && offset != HADDR_UNDEF && layout == H5D_CONTIGUOUS &&
        H5Pget_external_count(creation.get()) == 0) {
        auto mapping = std::make_shared<Mapping>();
        if (mapping->map(path, offset, static_cast<std::uint64_t>(array.size_ * array.element_bytes_))) {
            array.mapping_ = std::move(mapping);
        }
    }
    return array;
}

namespace {

template <typename T>
void widen(const unsigned char* bytes, std::span<std::int64_t> out) {
    for (std::size_t k = 0; k < out.size(); ++k) {
        T value;
        std::memcpy(&value, bytes + k * sizeof(T), sizeof(T));
        if constexpr (std::is_same_v<T, std::uint64_t>) {
            value = std::min(value, static_cast<T>(std::numeric_limits<std::int64_t>::max()));
        }
        out[k] = static_cast<std::int64_t>(value);
    }
}

void widen_any(const unsigned char* bytes, int element_bytes, bool is_signed, std::span<std::int64_t> out) {
    switch (is_signed ? -element_bytes : element_bytes) {
        case 1:
            return widen<std::uint8_t>(bytes, out);
        case 2:
            return widen<std::uint16_t>(bytes, out);
        case 4:
            return widen<std::uint32_t>(bytes, out);
        case 8:
            return widen<std::uint64_t>(bytes, out);
        case -1:
            return widen<std::int8_t>(bytes, out);
        case -2:
            return widen<std::int16_t>(bytes, out);
        case -4:
            return widen<std::int32_t>(bytes, out);
        default:
            return widen<std::int64_t>(bytes, out);
    }
}

}  // namespace

void IntegerArray::read(std::int64_t first, std::span<std::int64_t> out) const {
    TESSERA_INVARIANT(first >= 0 && first + static_cast<std::int64_t>(out.size()) <= size_);
    if (out.empty()) return;
    if (mapping_ != nullptr) {
        widen_any(mapping_->data + first * element_bytes_, element_bytes_, is_signed_, out);
    } else {
        read_hyperslab(first, out);
    }
}

std::span<const unsigned char> IntegerArray::mapped_bytes() const {
    if (mapping_ == nullptr) return {};
    return {mapping_->data, static_cast<std::size_t>(size_ * element_bytes_)};
}

void IntegerArray::read_hyperslab(std::int64_t first, std::span<std::int64_t> out) const {
    const Hdf5Lock lock;
    const OpenDatasets::Entry& entry = open_datasets_->get(path_, dataset_);
    const Hdf5Handle space(H5Dget_space(entry.dataset.get()), H5Sclose);
    // The rest of the first row, whole rows, the start of the last: each of them is one rectangle.
    while (!out.empty()) {
        const std::int64_t column = first % row_length_;
        const auto count = static_cast<std::int64_t>(out.size());
        const bool whole_rows = column == 0 && count >= row_length_;
        const std::int64_t rows = whole_rows ? count / row_length_ : 1;
        const std::int64_t columns = whole_rows ? row_length_ : std::min(row_length_ - column, count);
        const std::array<hsize_t, 2> start = {static_cast<hsize_t>(first / row_length_), static_cast<hsize_t>(column)};
        const std::array<hsize_t, 2> extent = {static_cast<hsize_t>(rows), static_cast<hsize_t>(columns)};
        const Hdf5Handle memory(H5Screate_simple(num_dimensions_, extent.data(), nullptr), H5Sclose);
        if (H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, extent.data(), nullptr) < 0 ||
            H5Dread(entry.dataset.get(), H5T_NATIVE_INT64, memory.get(), space.get(), H5P_DEFAULT, out.data()) < 0) {
            core::raise<core::EnvironmentError>("reading {} elements at {} of dataset '{}' of {} failed: {}",
                                                rows * columns, first, dataset_, path_, hdf5_reason());
        }
        first += rows * columns;
        out = out.subspan(static_cast<std::size_t>(rows * columns));
    }
}

}  // namespace tessera::data

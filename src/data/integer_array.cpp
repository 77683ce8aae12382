#include "data/integer_array.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#include "core/error.h"
#include "data/hdf5_handle.h"

namespace tessera::data {

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
    const bool inside = fstat(descriptor, &status) == 0 && offset + bytes <= static_cast<std::uint64_t>(status.st_size);
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
    array.row_length_ = dimensions == 1 ? 1 : static_cast<std::int64_t>(extent[1]);
    array.size_ = static_cast<std::int64_t>(extent[0]) * array.row_length_;
    array.element_bytes_ = static_cast<int>(H5Tget_size(type.get()));
    array.is_signed_ = H5Tget_sign(type.get()) == H5T_SGN_2;
    const bool big_endian = H5Tget_order(type.get()) == H5T_ORDER_BE && array.element_bytes_ > 1;
    array.type_name_ = fmt::format("{}int{}{}", array.is_signed_ ? "" : "u", 8 * array.element_bytes_,
                                   big_endian ? " big-endian" : "");

    const Hdf5Handle creation(H5Dget_create_plist(data.get()), H5Pclose);
    const bool plain_type = big_endian == (std::endian::native == std::endian::big && array.element_bytes_ > 1) &&
                            std::has_single_bit(static_cast<unsigned>(array.element_bytes_)) &&
                            array.element_bytes_ <= 8 && H5Tget_precision(type.get()) == 8 * H5Tget_size(type.get());
    const haddr_t offset = H5Dget_offset(data.get());
    if (plain_type && array.size_ > 0 && offset != HADDR_UNDEF && H5Pget_layout(creation.get()) == H5D_CONTIGUOUS &&
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
    const auto count = static_cast<std::int64_t>(out.size());
    const std::int64_t first_row = first / row_length_;
    const std::int64_t rows = (first + count - 1) / row_length_ - first_row + 1;
    const std::array<hsize_t, 2> start = {static_cast<hsize_t>(first_row), 0};
    const std::array<hsize_t, 2> extent = {static_cast<hsize_t>(rows), static_cast<hsize_t>(row_length_)};
    const Hdf5Handle memory(H5Screate_simple(num_dimensions_, extent.data(), nullptr), H5Sclose);

    std::vector<std::int64_t> whole_rows;
    std::int64_t* target = out.data();
    if (rows * row_length_ != count) {
        whole_rows.resize(static_cast<std::size_t>(rows * row_length_));
        target = whole_rows.data();
    }
    if (H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, extent.data(), nullptr) < 0 ||
        H5Dread(entry.dataset.get(), H5T_NATIVE_INT64, memory.get(), space.get(), H5P_DEFAULT, target) < 0) {
        core::raise<core::EnvironmentError>("reading {} elements at {} of dataset '{}' of {} failed: {}", count, first,
                                            dataset_, path_, hdf5_reason());
    }
    if (!whole_rows.empty()) {
        std::memcpy(out.data(), whole_rows.data() + (first - first_row * row_length_),
                    out.size() * sizeof(std::int64_t));
    }
}

}  // namespace tessera::data

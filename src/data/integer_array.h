#pragma once
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>

namespace tessera::data {

/// Datasets read through HDF5, of which at most `capacity` are kept open: descriptors do not grow with the shards.
class OpenDatasets {
public:
    explicit OpenDatasets(std::size_t capacity = 16);
    ~OpenDatasets();

private:
    friend class IntegerArray;
    struct Entry;
    /// The open dataset, opened again if it was closed meanwhile. The caller holds the HDF5 lock.
    const Entry& get(const std::string& path, const std::string& dataset);

    std::size_t capacity_;
    std::list<Entry> entries_;
};

/// A one- or two-dimensional HDF5 dataset of integers of any size, sign, byte order and layout, read as one flat
/// row-major array. Where the file holds the numbers plainly (contiguous, in this machine's byte order) the file is
/// mapped and closed; otherwise they are read through hyperslabs. Safe to read from several threads.
class IntegerArray {
public:
    /// Throws DataError (without the path, which the caller adds) if there is no such dataset or it is no integer
    /// array.
    static IntegerArray open(const std::string& path, const std::string& dataset,
                             std::shared_ptr<OpenDatasets> open_datasets);

    std::int64_t size() const { return size_; }
    bool is_mapped() const { return mapping_ != nullptr; }
    /// For people: "uint16", "int64 big-endian".
    const std::string& type_name() const { return type_name_; }
    int element_bytes() const { return element_bytes_; }

    /// out[k] = element first + k. Elements above int64's range read as its largest value.
    /// The range must lie in [0, size()). Throws EnvironmentError if reading fails.
    void read(std::int64_t first, std::span<std::int64_t> out) const;

    /// The bytes as the file holds them; empty unless mapped.
    std::span<const unsigned char> mapped_bytes() const;

private:
    struct Mapping;
    void read_hyperslab(std::int64_t first, std::span<std::int64_t> out) const;

    std::string path_;
    std::string dataset_;
    std::shared_ptr<OpenDatasets> open_datasets_;
    std::shared_ptr<const Mapping> mapping_;
    std::string type_name_;
    std::int64_t size_ = 0;
    std::int64_t row_length_ = 0;
    int num_dimensions_ = 1;
    int element_bytes_ = 0;
    bool is_signed_ = false;
};

}  // namespace tessera::data

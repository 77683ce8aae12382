#pragma once
#include <hdf5.h>

#include <mutex>
#include <string>
#include <utility>

namespace tessera::data {

/// Held around every call of the HDF5 library, which is not safe for threads as distributions build it; keeps the
/// library from printing its error stack meanwhile.
class Hdf5Lock {
public:
    Hdf5Lock();
    ~Hdf5Lock();
    Hdf5Lock(const Hdf5Lock&) = delete;
    Hdf5Lock& operator=(const Hdf5Lock&) = delete;

private:
    std::unique_lock<std::recursive_mutex> lock_;
    H5E_auto2_t print_ = nullptr;
    void* print_argument_ = nullptr;
};

/// An HDF5 identifier that closes itself. Valid if get() >= 0.
class Hdf5Handle {
public:
    Hdf5Handle() = default;
    Hdf5Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
    Hdf5Handle(Hdf5Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
    Hdf5Handle& operator=(Hdf5Handle&& other) noexcept {
        std::swap(id_, other.id_);
        std::swap(close_, other.close_);
        return *this;
    }
    ~Hdf5Handle();

    hid_t get() const { return id_; }
    bool valid() const { return id_ >= 0; }

private:
    hid_t id_ = -1;
    herr_t (*close_)(hid_t) = nullptr;
};

/// The innermost reason of the last failed call, e.g. "truncated file: eof = 5120, sblock->base_addr = 0, ...".
std::string hdf5_reason();

/// Opens a file for reading without asking the file system for locks. Throws DataError "is not a readable HDF5 file:
/// REASON".
Hdf5Handle open_hdf5_read_only(const std::string& path);

}  // namespace tessera::data

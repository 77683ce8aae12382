#include "data/hdf5_handle.h"

#include "core/error.h"

namespace tessera::data {
namespace {

/// Made before the first call of the library. What is open is closed by its handle; the library's own tidying at the
/// end of the process would find what it lost in damaged files and complain about it.
struct Library {
    Library() { H5dont_atexit(); }
    std::recursive_mutex mutex;
};

std::recursive_mutex& library_mutex() {
    static Library library;
    return library.mutex;
}

herr_t keep_first(unsigned position, const H5E_error2_t* error, void* reason) {
    if (position == 0 && error->desc != nullptr) *static_cast<std::string*>(reason) = error->desc;
    return 0;
}

}  // namespace

Hdf5Lock::Hdf5Lock() : lock_(library_mutex()) {
    H5Eget_auto2(H5E_DEFAULT, &print_, &print_argument_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Hdf5Lock::~Hdf5Lock() {
    H5Eset_auto2(H5E_DEFAULT, print_, print_argument_);
}

Hdf5Handle::~Hdf5Handle() {
    if (id_ < 0) return;
    const Hdf5Lock lock;
    close_(id_);
}

std::string hdf5_reason() {
    std::string reason;
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &reason);
    if (reason.find("lock") != std::string::npos) {
        reason += " (set HDF5_USE_FILE_LOCKING=FALSE where the file system has no locks)";
    }
    return reason.empty() ? "unknown HDF5 error" : reason;
}

Hdf5Handle open_hdf5_read_only(const std::string& path) {
    const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
    H5Pset_file_locking(access.get(), 0, 1);
    Hdf5Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose);
    if (!file.valid()) core::raise<core::DataError>("is not a readable HDF5 file: {}", hdf5_reason());
    return file;
}

}  // namespace tessera::data

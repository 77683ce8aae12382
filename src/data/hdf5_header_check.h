#pragma once
#include <string>

namespace tessera::data {

/// What HDF5 itself does not check before it follows the sizes in a file: each attribute of the root group must lie
/// inside the message that holds it. Looks at object headers of version 1 behind a superblock of version 0 (HDF5 File
/// Format Specification 3.0, IV.A.1.a and IV.A.2.m), which is what the library writes if it is not asked for another;
/// newer headers carry checksums. Returns what is wrong, for people; empty if nothing is, or if the file is of another
/// kind, cut short or no HDF5 file: that the library says well.
std::string hdf5_header_fault(const std::string& path);

}  // namespace tessera::data

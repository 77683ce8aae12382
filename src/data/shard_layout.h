#pragma once
#include <hdf5.h>

#include <cstdint>
#include <optional>
#include <string>

#include "data/shard.h"

// The parts of a shard's file that both reading and verifying look up. The caller holds the HDF5 lock.

namespace tessera::data {

/// Throws DataError "does not exist", "is not a file" or "is empty (0 bytes)".
void check_shard_file(const std::string& path);

/// The dataset that holds the tokens. Throws DataError if none was named and there is neither tokens nor input_ids.
std::string tokens_dataset_name(hid_t file, const ShardNames& names);

/// An attribute of the root; nothing if there is no such attribute. Throws DataError if it is not one integer.
std::optional<std::int64_t> read_integer_attribute(hid_t file, const char* name);
std::optional<std::uint64_t> read_unsigned_attribute(hid_t file, const char* name);

/// Empty if there is no such attribute. Throws DataError if it is not a string.
std::string read_string_attribute(hid_t file, const char* name);

}  // namespace tessera::data

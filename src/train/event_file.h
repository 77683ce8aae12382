#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

// TensorBoard's event files, byte by byte: TFRecord framing around protocol buffers of the message Event.

namespace tessera::train {

/// CRC-32C (Castagnoli; RFC 3720, appendix B.4): reflected polynomial 0x82f63b78, start and final xor all ones.
std::uint32_t crc32c(std::string_view bytes);

/// One record of a TFRecord file, all numbers little-endian:
/// u64 length, u32 masked CRC of the length's 8 bytes, data, u32 masked CRC of the data,
/// where masked(c) = rotate_right(c, 15) + 0xa282ead8.
std::string tf_record(std::string_view data);

struct Scalar {
    std::string_view tag;
    double value = 0;  ///< written as f32, the only width the field has
};

/// The serialized Event that begins every file: file_version "brain.Event:2".
std::string file_version_event(double wall_time_s);

/// The serialized Event with session_log.status = START: a reader forgets every point it has at this step or later.
std::string session_start_event(double wall_time_s, std::int64_t step);

/// The serialized Event with a summary of these scalars.
std::string scalars_event(double wall_time_s, std::int64_t step, std::span<const Scalar> scalars);

}  // namespace tessera::train

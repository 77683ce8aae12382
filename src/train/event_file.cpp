#include "train/event_file.h"

#include <array>
#include <bit>

namespace tessera::train {
namespace {

constexpr std::array<std::uint32_t, 256> make_crc_table() {
    constexpr std::uint32_t kPolynomial = 0x82f63b78U;
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
        std::uint32_t crc = byte;
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? kPolynomial : 0U);
        table[byte] = crc;
    }
    return table;
}

constexpr std::array<std::uint32_t, 256> kCrcTable = make_crc_table();

std::uint32_t masked_crc(std::string_view bytes) {
    return std::rotr(crc32c(bytes), 15) + 0xa282ead8U;
}

template <typename T>
std::string little_endian(T value) {
    std::string bytes;
    for (std::size_t i = 0; i < sizeof(T); ++i) bytes += static_cast<char>((value >> (8 * i)) & 0xffU);
    return bytes;
}

/// A field of a protocol buffer begins with its number and how its value is laid out.
enum class WireType : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

std::string varint(std::uint64_t value) {
    std::string bytes;
    for (; value >= 0x80; value >>= 7U) bytes += static_cast<char>((value & 0x7fU) | 0x80U);
    return bytes + static_cast<char>(value);
}

std::string key(std::uint32_t number, WireType type) {
    return varint((number << 3U) | static_cast<std::uint32_t>(type));
}

std::string varint_field(std::uint32_t number, std::int64_t value) {
    return key(number, WireType::varint) + varint(static_cast<std::uint64_t>(value));
}

std::string double_field(std::uint32_t number, double value) {
    return key(number, WireType::fixed64) + little_endian(std::bit_cast<std::uint64_t>(value));
}

std::string float_field(std::uint32_t number, float value) {
    return key(number, WireType::fixed32) + little_endian(std::bit_cast<std::uint32_t>(value));
}

std::string bytes_field(std::uint32_t number, std::string_view bytes) {
    return key(number, WireType::bytes) + varint(bytes.size()) + std::string(bytes);
}

// Field numbers of tensorflow/core/util/event.proto and framework/summary.proto.
constexpr std::uint32_t kEventWallTime = 1;
constexpr std::uint32_t kEventStep = 2;
constexpr std::uint32_t kEventFileVersion = 3;
constexpr std::uint32_t kEventSummary = 5;
constexpr std::uint32_t kEventSessionLog = 7;
constexpr std::uint32_t kSessionLogStatus = 1;
constexpr std::int64_t kSessionStart = 1;
constexpr std::uint32_t kSummaryValue = 1;
constexpr std::uint32_t kValueTag = 1;
constexpr std::uint32_t kValueSimpleValue = 2;

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
    std::uint32_t crc = 0xffffffffU;
    for (const char byte : bytes) {
        crc = (crc >> 8U) ^ kCrcTable[(crc ^ static_cast<unsigned char>(byte)) & 0xffU];
    }
    return crc ^ 0xffffffffU;
}

std::string tf_record(std::string_view data) {
    const std::string length = little_endian(static_cast<std::uint64_t>(data.size()));
    return length + little_endian(masked_crc(length)) + std::string(data) + little_endian(masked_crc(data));
}

std::string file_version_event(double wall_time_s) {
    return double_field(kEventWallTime, wall_time_s) + bytes_field(kEventFileVersion, "brain.Event:2");
}

std::string session_start_event(double wall_time_s, std::int64_t step) {
    return double_field(kEventWallTime, wall_time_s) + varint_field(kEventStep, step) +
           bytes_field(kEventSessionLog, varint_field(kSessionLogStatus, kSessionStart));
}

std::string scalars_event(double wall_time_s, std::int64_t step, std::span<const Scalar> scalars) {
    std::string summary;
    for (const Scalar& scalar : scalars) {
        summary += bytes_field(kSummaryValue, bytes_field(kValueTag, scalar.tag) +
                                                      float_field(kValueSimpleValue, static_cast<float>(scalar.value)));
    }
    return double_field(kEventWallTime, wall_time_s) + varint_field(kEventStep, step) +
           bytes_field(kEventSummary, summary);
}

}  // namespace tessera::train

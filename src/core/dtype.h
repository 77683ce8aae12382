#pragma once
#include <bit>
#include <cstdint>
#include <string_view>

namespace tessera::core {

enum class DType : std::uint8_t { f32, bf16, f16, i32, i64, u16 };

/// Bytes of one element.
constexpr std::int64_t size_of(DType dtype) {
    switch (dtype) {
        case DType::f32:
        case DType::i32:
            return 4;
        case DType::i64:
            return 8;
        case DType::bf16:
        case DType::f16:
        case DType::u16:
            return 2;
    }
    return 0;
}

constexpr bool is_floating(DType dtype) {
    return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

/// "f32", "bf16", ...
std::string_view name_of(DType dtype);
/// The inverse of name_of. Throws ConfigError for an unknown name.
DType dtype_from_name(std::string_view name);

/// Storage types of the 16-bit floats: bits only, arithmetic is f32.
struct bf16 {
    std::uint16_t bits;
};
struct f16 {
    std::uint16_t bits;
};

/// Exact widening.
constexpr float to_f32(bf16 value) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}
/// Round to nearest, ties to even; NaN stays NaN (quiet), overflow becomes infinity.
constexpr bf16 to_bf16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7fffffffU) > 0x7f800000U) return bf16{static_cast<std::uint16_t>((bits >> 16) | 0x40U)};
    return bf16{static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16)};
}
/// Exact widening, subnormals included.
float to_f32(f16 value);
/// Round to nearest, ties to even; overflow becomes infinity, subnormals are kept.
f16 to_f16(float value);
constexpr float to_f32(float value) {
    return value;
}

template <typename T>
T from_f32(float value);
template <>
inline float from_f32<float>(float value) {
    return value;
}
template <>
inline bf16 from_f32<bf16>(float value) {
    return to_bf16(value);
}
template <>
inline f16 from_f32<f16>(float value) {
    return to_f16(value);
}

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
    static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<bf16> {
    static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<f16> {
    static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<std::int32_t> {
    static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<std::int64_t> {
    static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<std::uint16_t> {
    static constexpr DType value = DType::u16;
};

}  // namespace tessera::core

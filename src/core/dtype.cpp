#include "core/dtype.h"

#include <string>

#include "core/error.h"

namespace tessera::core {

std::string_view name_of(DType dtype) {
    switch (dtype) {
        case DType::f32:
            return "f32";
        case DType::bf16:
            return "bf16";
        case DType::f16:
            return "f16";
        case DType::i32:
            return "i32";
        case DType::i64:
            return "i64";
        case DType::u16:
            return "u16";
    }
    return "?";
}

DType dtype_from_name(std::string_view name) {
    for (DType dtype : {DType::f32, DType::bf16, DType::f16, DType::i32, DType::i64, DType::u16}) {
        if (name_of(dtype) == name) return dtype;
    }
    raise<ConfigError>("unknown dtype '{}'; known: f32, bf16, f16, i32, i64, u16", name);
}

float to_f32(f16 value) {
    const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000U) << 16;
    std::uint32_t exponent = (value.bits >> 10) & 0x1fU;
    std::uint32_t mantissa = value.bits & 0x3ffU;
    if (exponent == 0x1fU) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
    if (exponent == 0) {
        if (mantissa == 0) return std::bit_cast<float>(sign);
        exponent = 1;
        while ((mantissa & 0x400U) == 0) {
            mantissa <<= 1;
            --exponent;
        }
        mantissa &= 0x3ffU;
    }
    return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
}

f16 to_f16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    if (magnitude > 0x7f800000U) return f16{static_cast<std::uint16_t>(sign | 0x7e00U)};
    if (magnitude >= 0x477ff000U) return f16{static_cast<std::uint16_t>(sign | 0x7c00U)};
    if (magnitude < 0x38800000U) {
        // Below 2^-14: adding 0.5 places the subnormal's last bit at the last bit of a f32, which rounds to even.
        const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
        return f16{static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U))};
    }
    const std::uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U) - 0x38000000U;
    return f16{static_cast<std::uint16_t>(sign | (rounded >> 13))};
}

}  // namespace tessera::core

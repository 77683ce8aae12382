// Vector pieces that the CPU kernels share; included once per Highway target.
#if defined(TESSERA_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_CPU_SIMD_INL_H_
#undef TESSERA_KERNELS_CPU_SIMD_INL_H_
#else
#define TESSERA_KERNELS_CPU_SIMD_INL_H_
#endif

#include <cstdint>

#include "core/dtype.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;
using HalfTag = hn::Rebind<std::uint16_t, FloatTag>;

inline std::int64_t lanes() {
    return static_cast<std::int64_t>(hn::Lanes(FloatTag()));
}

HWY_INLINE FloatVec load(const float* p) {
    return hn::LoadU(FloatTag(), p);
}

HWY_INLINE FloatVec load(const core::bf16* p) {
    const hn::RebindToUnsigned<FloatTag> du;
    const auto bits = hn::LoadU(HalfTag(), reinterpret_cast<const std::uint16_t*>(p));
    return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
}

HWY_INLINE FloatVec load(const core::f16* p) {
#if HWY_TARGET <= HWY_AVX2
    const hn::Rebind<hwy::float16_t, FloatTag> dh;
    return hn::PromoteTo(FloatTag(), hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(p)));
#else
    HWY_ALIGN float wide[HWY_MAX_BYTES / 4] = {};
    for (std::int64_t i = 0; i < lanes(); ++i) wide[i] = core::to_f32(p[i]);
    return hn::Load(FloatTag(), wide);
#endif
}

HWY_INLINE void store(FloatVec v, float* p) {
    hn::StoreU(v, FloatTag(), p);
}

// Round to nearest even: Highway's own demotion truncates.
HWY_INLINE void store(FloatVec v, core::bf16* p) {
    const hn::RebindToUnsigned<FloatTag> du;
    const hn::RebindToSigned<FloatTag> di;
    const auto bits = hn::BitCast(du, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1U));
    const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7fffU)), odd);
    const auto quiet = hn::Or(bits, hn::Set(du, 0x400000U));
    const auto chosen = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded);
    const auto high = hn::BitCast(di, hn::ShiftRight<16>(chosen));
    hn::StoreU(hn::DemoteTo(HalfTag(), high), HalfTag(), reinterpret_cast<std::uint16_t*>(p));
}

HWY_INLINE void store(FloatVec v, core::f16* p) {
#if HWY_TARGET <= HWY_AVX2
    const hn::Rebind<hwy::float16_t, FloatTag> dh;
    hn::StoreU(hn::DemoteTo(dh, v), dh, reinterpret_cast<hwy::float16_t*>(p));
#else
    HWY_ALIGN float wide[HWY_MAX_BYTES / 4] = {};
    hn::Store(v, FloatTag(), wide);
    for (std::int64_t i = 0; i < lanes(); ++i) p[i] = core::to_f16(wide[i]);
#endif
}

/// The first n (< lanes) elements, zeros after them.
template <typename T>
HWY_INLINE FloatVec load_n(const T* p, std::int64_t n) {
    if (n >= lanes()) __builtin_unreachable();
    HWY_ALIGN float wide[HWY_MAX_BYTES / 4] = {};
    for (std::int64_t i = 0; i < n; ++i) wide[i] = core::to_f32(p[i]);
    return hn::Load(FloatTag(), wide);
}

template <typename T>
HWY_INLINE void store_n(FloatVec v, T* p, std::int64_t n) {
    HWY_ALIGN float wide[HWY_MAX_BYTES / 4] = {};
    hn::Store(v, FloatTag(), wide);
    for (std::int64_t i = 0; i < n; ++i) p[i] = core::from_f32<T>(wide[i]);
}

/// Calls body(i, n) for i = 0, lanes, 2·lanes, … with n = lanes, and once with the rest if there is one. Inside,
/// load_at and store_at take the same n.
template <typename Body>
HWY_INLINE void for_lanes(std::int64_t count, const Body& body) {
    const std::int64_t step = lanes();
    std::int64_t i = 0;
    for (; i + step <= count; i += step) body(i, step);
    if (i < count) body(i, count - i);
}

template <typename T>
HWY_INLINE FloatVec load_at(const T* p, std::int64_t n) {
    return n == lanes() ? load(p) : load_n(p, n);
}

template <typename T>
HWY_INLINE void store_at(FloatVec v, T* p, std::int64_t n) {
    if (n == lanes()) {
        store(v, p);
    } else {
        store_n(v, p, n);
    }
}

/// Elements between what is read and what the second cache is asked for. The processor's own prefetcher stops at every
/// page; a stream of bytes from memory is up to twice as fast with this.
inline constexpr std::int64_t kAhead = 1024;

/// To be called once a vector with its address. Past the end of an array it does nothing.
template <typename T>
HWY_INLINE void prefetch_ahead(const T* p) {
    __builtin_prefetch(p + kAhead, 0, 2);
}

/// min(max(x, low), high); NaN stays NaN.
HWY_INLINE FloatVec clamp(FloatVec x, float low, float high) {
    const FloatTag d;
    const auto lower = hn::Set(d, low);
    const auto upper = hn::Set(d, high);
    return hn::IfThenElse(hn::Gt(x, upper), upper, hn::IfThenElse(hn::Lt(x, lower), lower, x));
}

/// 2^t: exactly 0 up to -127 and infinity from 128 on; results below the smallest normal number are of its size, not
/// exact. NaN stays NaN, which Highway's own function turns into 0.
/// t = k + f with |f| <= 1/2; 1 + f·Q(f) approximates 2^f, Q of degree 5 fitted to the least largest relative error
/// (2e-9); 2^k is added to the exponent. Adding 1.5·2^23 rounds t to k and leaves k in the low bits.
HWY_INLINE FloatVec exp2(FloatVec t) {
    const FloatTag d;
    const hn::RebindToSigned<FloatTag> di;
    // The second operand is what x86's minimum and maximum return for NaN.
    const auto bounded = hn::Min(hn::Set(d, 128.0F), hn::Max(hn::Set(d, -127.0F), t));
    const auto magic = hn::Set(d, 12582912.0F);
    const auto shifted = hn::Add(bounded, magic);
    const auto f = hn::Sub(bounded, hn::Sub(shifted, magic));
    auto series = hn::MulAdd(f, hn::Set(d, 1.53533620e-4F), hn::Set(d, 1.33988739e-3F));
    series = hn::MulAdd(series, f, hn::Set(d, 9.61843692e-3F));
    series = hn::MulAdd(series, f, hn::Set(d, 5.55033237e-2F));
    series = hn::MulAdd(series, f, hn::Set(d, 2.40226477e-1F));
    series = hn::MulAdd(series, f, hn::Set(d, 6.93147182e-1F));
    series = hn::MulAdd(series, f, hn::Set(d, 1.0F));
    const auto exponent = hn::ShiftLeft<23>(hn::BitCast(di, shifted));
    return hn::BitCast(d, hn::Add(hn::BitCast(di, series), exponent));
}

inline constexpr float kLog2E = 1.44269504F;

/// e^x = 2^(x·log2 e); the relative error is 1.3·2^-24 + 2^-24·|x|.
HWY_INLINE FloatVec exp(FloatVec x) {
    return exp2(hn::Mul(x, hn::Set(FloatTag(), kLog2E)));
}

/// 1 / (1 + e^-x)
HWY_INLINE FloatVec sigmoid(FloatVec x) {
    const auto one = hn::Set(FloatTag(), 1.0F);
    return hn::Div(one, hn::Add(one, exp2(hn::Mul(x, hn::Set(FloatTag(), -kLog2E)))));
}

inline constexpr float kGeluScale = 0.7978845608028654F;  // sqrt(2/pi)
inline constexpr float kGeluCubic = 0.044715F;
/// Beyond this, gelu' is 0 or 1 to the last bit of f32.
inline constexpr float kGeluFlat = 8.0F;

/// gelu(u) = u/2·(1 + tanh(z)) = u·sigmoid(2z), z = sqrt(2/pi)·(u + 0.044715u³).
HWY_INLINE FloatVec gelu(FloatVec u) {
    const FloatTag d;
    const auto inner = hn::MulAdd(hn::Mul(hn::Set(d, kGeluCubic), hn::Mul(u, u)), u, u);
    const auto e = exp2(hn::Mul(hn::Set(d, -2.0F * kGeluScale * kLog2E), inner));
    return hn::Div(u, hn::Add(hn::Set(d, 1.0F), e));
}

/// gelu'(u) = s + 2u·s·(1-s)·sqrt(2/pi)·(1 + 3·0.044715u²), s = sigmoid(2z); 1-s = s·e^-2z, which does not cancel.
HWY_INLINE FloatVec gelu_derivative(FloatVec x) {
    const FloatTag d;
    const auto one = hn::Set(d, 1.0F);
    const auto u = clamp(x, -kGeluFlat, kGeluFlat);
    const auto square = hn::Mul(u, u);
    const auto inner = hn::MulAdd(hn::Mul(hn::Set(d, kGeluCubic), square), u, u);
    const auto e = exp2(hn::Mul(hn::Set(d, -2.0F * kGeluScale * kLog2E), inner));
    const auto s = hn::Div(one, hn::Add(one, e));
    const auto slope = hn::Mul(hn::Set(d, 2.0F * kGeluScale), hn::MulAdd(hn::Set(d, 3.0F * kGeluCubic), square, one));
    return hn::MulAdd(hn::Mul(hn::Mul(u, s), hn::Mul(e, s)), slope, s);
}

/// silu'(u) = s·(1 + u·(1 - s)) where s = sigmoid(u)
HWY_INLINE FloatVec silu_derivative(FloatVec u, FloatVec s) {
    const auto one = hn::Set(FloatTag(), 1.0F);
    return hn::Mul(s, hn::MulAdd(u, hn::Sub(one, s), one));
}

/// Sum of the lanes, always in the same order.
HWY_INLINE float sum_lanes(FloatVec v) {
    const FloatTag d;
    return hn::GetLane(hn::SumOfLanes(d, v));
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif

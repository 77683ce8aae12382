// Vector pieces that the CPU kernels share; included once per Highway target.
#if defined(TESSERA_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_CPU_SIMD_INL_H_
#undef TESSERA_KERNELS_CPU_SIMD_INL_H_
#else
#define TESSERA_KERNELS_CPU_SIMD_INL_H_
#endif

#include <cstdint>

#include "core/dtype.h"
#include "hwy/contrib/math/math-inl.h"
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

/// exp(x), about 1 ulp; x above 88 is taken as 88 (no overflow to infinity).
HWY_INLINE FloatVec exp_bounded(FloatVec x) {
    const FloatTag d;
    return hn::Exp(d, hn::Min(x, hn::Set(d, 88.0F)));
}

HWY_INLINE FloatVec sigmoid(FloatVec x) {
    const FloatTag d;
    const auto one = hn::Set(d, 1.0F);
    return hn::Div(one, hn::Add(one, exp_bounded(hn::Neg(x))));
}

inline constexpr float kGeluScale = 0.7978845608028654F;  // sqrt(2/pi)
inline constexpr float kGeluCubic = 0.044715F;

/// gelu(u) = u/2·(1 + tanh(z)) = u·sigmoid(2z), z = sqrt(2/pi)·(u + 0.044715u³).
HWY_INLINE FloatVec gelu(FloatVec u) {
    const FloatTag d;
    const auto inner = hn::MulAdd(hn::Mul(hn::Set(d, kGeluCubic), hn::Mul(u, u)), u, u);
    return hn::Mul(u, sigmoid(hn::Mul(hn::Set(d, 2.0F * kGeluScale), inner)));
}

/// gelu'(u) = s + 2u·s·(1-s)·sqrt(2/pi)·(1 + 3·0.044715u²), s = sigmoid(2z).
HWY_INLINE FloatVec gelu_derivative(FloatVec u) {
    const FloatTag d;
    const auto one = hn::Set(d, 1.0F);
    const auto square = hn::Mul(u, u);
    const auto inner = hn::MulAdd(hn::Mul(hn::Set(d, kGeluCubic), square), u, u);
    const auto s = sigmoid(hn::Mul(hn::Set(d, 2.0F * kGeluScale), inner));
    const auto slope = hn::Mul(hn::Set(d, 2.0F * kGeluScale), hn::MulAdd(hn::Set(d, 3.0F * kGeluCubic), square, one));
    return hn::MulAdd(hn::Mul(hn::Mul(u, s), hn::Sub(one, s)), slope, s);
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

// Dropout masks from Philox4x32-10, many counters at a time; included once per Highway target.
#if defined(TESSERA_KERNELS_CPU_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_CPU_DROPOUT_INL_H_
#undef TESSERA_KERNELS_CPU_DROPOUT_INL_H_
#else
#define TESSERA_KERNELS_CPU_DROPOUT_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/philox.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/token_map.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {

using WordTag = hn::ScalableTag<std::uint32_t>;
using WordVec = hn::Vec<WordTag>;

struct WideProduct {
    WordVec high;
    WordVec low;
};

HWY_INLINE WideProduct multiply_wide(WordVec a, WordVec b) {
    const WordTag d;
    const hn::Repartition<std::uint64_t, WordTag> d64;
    const auto even = hn::MulEven(a, b);
    const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, a))), b);
    return {hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even))),
            hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even))};
}

/// The parts of the counter that a token fixes (token_map.h, Dropout).
struct DropoutRow {
    std::uint32_t offset = 0;
    std::uint32_t sample = 0;
    std::uint32_t site = 0;
    std::uint32_t key0 = 0;
    std::uint32_t key1 = 0;
    std::uint32_t threshold = 0;  ///< kept iff word >= threshold
    float scale = 1;              ///< 1 / (1 - p)
};

inline DropoutRow dropout_row(const Dropout& dropout, std::int64_t sample, std::int32_t offset) {
    const auto key = core::philox_key(dropout.seed);
    const auto wide = static_cast<std::uint64_t>(sample);
    return {.offset = static_cast<std::uint32_t>(offset),
            .sample = static_cast<std::uint32_t>(wide),
            .site = dropout.site ^ static_cast<std::uint32_t>(wide >> 32),
            .key0 = key[0],
            .key1 = key[1],
            .threshold = static_cast<std::uint32_t>(
                    std::min(std::ceil(static_cast<double>(dropout.probability) * 0x1p32), 0x1p32 - 1)),
            .scale = 1.0F / (1.0F - dropout.probability)};
}

/// Words of the counters first, first+1, … (one a lane): out[4·lane + w] = word w.
HWY_INLINE void philox_block(const DropoutRow& row, std::uint32_t first, std::uint32_t* HWY_RESTRICT out) {
    const WordTag d;
    auto c0 = hn::Add(hn::Iota(d, 0), hn::Set(d, first));
    auto c1 = hn::Set(d, row.offset);
    auto c2 = hn::Set(d, row.sample);
    auto c3 = hn::Set(d, row.site);
    std::uint32_t key0 = row.key0;
    std::uint32_t key1 = row.key1;
    const auto multiplier0 = hn::Set(d, 0xD2511F53U);
    const auto multiplier1 = hn::Set(d, 0xCD9E8D57U);
    for (int round = 0; round < 10; ++round) {
        const WideProduct p0 = multiply_wide(c0, multiplier0);
        const WideProduct p1 = multiply_wide(c2, multiplier1);
        c0 = hn::Xor(hn::Xor(p1.high, c1), hn::Set(d, key0));
        c1 = p1.low;
        c2 = hn::Xor(hn::Xor(p0.high, c3), hn::Set(d, key1));
        c3 = p0.low;
        key0 += 0x9E3779B9U;
        key1 += 0xBB67AE85U;
    }
    hn::StoreInterleaved4(c0, c1, c2, c3, d, out);
}

/// mask[i] = 0 or 1/(1-p) for the features first .. first+count-1 of one token; first is a multiple of 4. Writes up to
/// 4·lanes elements beyond count: mask has room for dropout_room(count).
inline std::int64_t dropout_room(std::int64_t count) {
    return count + 4 * (HWY_MAX_BYTES / 4);
}

HWY_INLINE void dropout_mask(const DropoutRow& row, std::int64_t first, std::int64_t count, float* HWY_RESTRICT mask) {
    const WordTag d;
    const std::int64_t step = lanes();
    HWY_ALIGN std::uint32_t words[HWY_MAX_BYTES];
    const auto threshold = hn::Set(d, row.threshold);
    const auto scale = hn::Set(FloatTag(), row.scale);
    for (std::int64_t done = 0; done < count; done += 4 * step) {
        philox_block(row, static_cast<std::uint32_t>((first + done) / 4), words);
        for (std::int64_t part = 0; part < 4; ++part) {
            const auto keep = hn::Not(hn::Lt(hn::Load(d, words + part * step), threshold));
            hn::StoreU(hn::IfThenElseZero(hn::RebindMask(FloatTag(), keep), scale), FloatTag(),
                       mask + done + part * step);
        }
    }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif

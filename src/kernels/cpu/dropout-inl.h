// Dropout masks from Philox4x32-10, many counters at a time; included once per Highway target.
#if defined(TESSERA_KERNELS_CPU_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_CPU_DROPOUT_INL_H_
#undef TESSERA_KERNELS_CPU_DROPOUT_INL_H_
#else
#define TESSERA_KERNELS_CPU_DROPOUT_INL_H_
#endif

#include <algorithm>
#include <array>
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

/// The parts of the counter that a token fixes (token_map.h, Dropout).
struct DropoutRow {
    std::uint32_t offset = 0;
    std::uint32_t sample = 0;
    std::uint32_t site = 0;
    std::array<std::uint32_t, 10> key0 = {};  ///< of each round
    std::array<std::uint32_t, 10> key1 = {};
    std::uint32_t threshold = 0;  ///< kept iff word >= threshold
    float scale = 1;              ///< 1 / (1 - p)
};

inline DropoutRow dropout_row(const Dropout& dropout, std::int64_t sample, std::int32_t offset) {
    const auto key = core::philox_key(dropout.seed);
    const auto wide = static_cast<std::uint64_t>(sample);
    DropoutRow row{.offset = static_cast<std::uint32_t>(offset),
                   .sample = static_cast<std::uint32_t>(wide),
                   .site = dropout.site ^ static_cast<std::uint32_t>(wide >> 32),
                   .threshold = static_cast<std::uint32_t>(
                           std::min(std::ceil(static_cast<double>(dropout.probability) * 0x1p32), 0x1p32 - 1)),
                   .scale = 1.0F / (1.0F - dropout.probability)};
    for (std::uint32_t round = 0; round < 10; ++round) {
        row.key0[round] = key[0] + round * 0x9E3779B9U;
        row.key1[round] = key[1] + round * 0xBB67AE85U;
    }
    return row;
}

/// mask[i] = 0 or 1/(1-p) for the features first .. first+count-1 of one token; first is a multiple of 4. Writes up to
/// 4·lanes elements beyond count: mask has room for dropout_room(count).
inline std::int64_t dropout_room(std::int64_t count) {
    return count + 4 * (HWY_MAX_BYTES / 4);
}

/// Ten rounds on the even lanes of c[0..3], whose odd lanes hold anything: a product's low half is where the next round
/// wants it, its high half is one shift away.
HWY_INLINE void philox_even(const DropoutRow& row, WordVec (&c)[4]) {
    const WordTag d;
    const hn::Repartition<std::uint64_t, WordTag> d64;
    const auto multiplier0 = hn::Set(d, 0xD2511F53U);
    const auto multiplier1 = hn::Set(d, 0xCD9E8D57U);
    for (std::size_t round = 0; round < 10; ++round) {
        const auto p0 = hn::MulEven(c[0], multiplier0);
        const auto p1 = hn::MulEven(c[2], multiplier1);
        const auto high0 = hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, p0)));
        const auto high1 = hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, p1)));
        c[0] = hn::Xor(hn::Xor(c[1], hn::Set(d, row.key0[round])), high1);
        c[2] = hn::Xor(hn::Xor(c[3], hn::Set(d, row.key1[round])), high0);
        c[1] = hn::BitCast(d, p1);
        c[3] = hn::BitCast(d, p0);
    }
}

/// The masks of 4·lanes features from counter `first` on.
HWY_INLINE void dropout_mask_block(const DropoutRow& row, std::uint32_t first, float* HWY_RESTRICT mask) {
    const WordTag d;
    const hn::Repartition<std::uint64_t, WordTag> d64;
    const auto counter = hn::Add(hn::Iota(d, 0), hn::Set(d, first));
    const auto offset = hn::Set(d, row.offset);
    const auto sample = hn::Set(d, row.sample);
    const auto site = hn::Set(d, row.site);
    WordVec even[4] = {counter, offset, sample, site};
    WordVec odd[4] = {hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, counter))), offset, sample, site};
    philox_even(row, even);
    philox_even(row, odd);
    const FloatTag df;
    const auto threshold = hn::Set(d, row.threshold);
    const auto scale = hn::Set(df, row.scale);
    FloatVec kept[4];
    for (int w = 0; w < 4; ++w) {
        const auto high = hn::BitCast(d, hn::ShiftLeft<32>(hn::BitCast(d64, odd[w])));
        const auto word = hn::OddEven(high, even[w]);
        kept[w] = hn::IfThenZeroElse(hn::RebindMask(df, hn::Lt(word, threshold)), scale);
    }
    hn::StoreInterleaved4(kept[0], kept[1], kept[2], kept[3], df, mask);
}

HWY_INLINE void dropout_mask(const DropoutRow& row, std::int64_t first, std::int64_t count, float* HWY_RESTRICT mask) {
    for (std::int64_t done = 0; done < count; done += 4 * lanes()) {
        dropout_mask_block(row, static_cast<std::uint32_t>((first + done) / 4), mask + done);
    }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif

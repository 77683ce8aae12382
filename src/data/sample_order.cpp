#include "data/sample_order.h"

#include <bit>

#include "core/error.h"
#include "core/philox.h"

namespace tessera::data {
namespace {

constexpr std::uint32_t kFeistelRounds = 6;

}  // namespace

KeyedPermutation::KeyedPermutation(const KeyedPermutationArgs& args) : args_(args) {
    TESSERA_INVARIANT(args.size >= 1 && args.size <= (std::int64_t{1} << 62));
    const int bits = std::bit_width(static_cast<std::uint64_t>(args.size - 1));
    half_bits_ = bits < 2 ? 1 : (bits + 1) / 2;
}

std::uint64_t KeyedPermutation::network(std::uint64_t value) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
    std::uint64_t left = value >> half_bits_;
    std::uint64_t right = value & mask;
    for (std::uint32_t k = 0; k < kFeistelRounds; ++k) {
        const std::uint32_t tag = static_cast<std::uint32_t>(core::RandomPurpose::data_order) << 16 | k;
        const auto words = core::philox4x32_10({static_cast<std::uint32_t>(right), args_.stream, args_.round, tag},
                                               core::philox_key(args_.seed));
        const std::uint64_t mixed = left ^ (words[0] & mask);
        left = right;
        right = mixed;
    }
    return left << half_bits_ | right;
}

std::int64_t KeyedPermutation::operator()(std::int64_t index) const {
    TESSERA_INVARIANT(index >= 0 && index < args_.size);
    auto value = static_cast<std::uint64_t>(index);
    do {
        value = network(value);
    } while (value >= static_cast<std::uint64_t>(args_.size));
    return static_cast<std::int64_t>(value);
}

}  // namespace tessera::data

#pragma once
#include <cstdint>

namespace tessera::data {

struct KeyedPermutationArgs {
    std::int64_t size = 1;
    std::uint64_t seed = 0;
    /// Which source, and which epoch of it.
    std::uint32_t stream = 0;
    std::uint32_t round = 0;
};

/// A permutation of [0, size) computed element by element, without a table: a balanced Feistel network over the
/// smallest even number of bits that holds size - 1, whose round function is Philox4x32-10, walked along its cycle
/// until the value lies inside (Black and Rogaway: "Ciphers with arbitrary finite domains", CT-RSA 2002). A function of
/// its arguments only.
class KeyedPermutation {
public:
    /// size in [1, 2^62].
    explicit KeyedPermutation(const KeyedPermutationArgs& args);
    /// The element at place `index` of [0, size).
    std::int64_t operator()(std::int64_t index) const;

private:
    std::uint64_t network(std::uint64_t value) const;

    KeyedPermutationArgs args_;
    int half_bits_ = 1;
};

}  // namespace tessera::data

#pragma once
#include <array>
#include <cstdint>

namespace tessera::core {

/// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a bijection of
/// the 128-bit counter for each 64-bit key. No state: the same (counter, key) always gives the same four words.
constexpr std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter,
                                                     std::array<std::uint32_t, 2> key) {
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t product0 = std::uint64_t{0xD2511F53U} * counter[0];
        const std::uint64_t product1 = std::uint64_t{0xCD9E8D57U} * counter[2];
        counter = {
                static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
                static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
        key[0] += 0x9E3779B9U;
        key[1] += 0xBB67AE85U;
    }
    return counter;
}

constexpr std::array<std::uint32_t, 2> philox_key(std::uint64_t seed) {
    return {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
}

/// What a random number is for: part of the counter, so that no two purposes share numbers.
enum class RandomPurpose : std::uint32_t {
    dropout = 1,
    attention_dropout = 2,
    initialisation = 3,
    sampling = 4,
    data_order = 5
};

/// Uniform in (0, 1]: never 0, so that a logarithm is safe.
constexpr double uniform_open_closed(std::uint32_t bits) {
    return (static_cast<double>(bits) + 1.0) * 0x1p-32;
}

/// Element `index` of the logical tensor whose name hashes to `tensor_hash`, drawn from N(0, 1) by Box-Muller in f64.
/// A function of its arguments only: any rank may draw any part of any matrix.
double normal_at(std::uint64_t seed, std::uint64_t tensor_hash, std::uint64_t index);

/// FNV-1a of 64 bits, for names in random counters (not for checksums).
constexpr std::uint64_t name_hash(const char* text) {
    std::uint64_t hash = 0xcbf29ce484222325ULL;
    for (; *text != 0; ++text) hash = (hash ^ static_cast<unsigned char>(*text)) * 0x100000001b3ULL;
    return hash;
}

}  // namespace tessera::core

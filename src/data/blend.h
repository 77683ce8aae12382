#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace tessera::data {

inline constexpr std::int64_t kBlendSlots = 65536;

/// Which source gives the sample at a position, and which of that source's samples it is, counted from 0 over the run.
struct BlendPlace {
    std::int64_t source = 0;
    std::int64_t index = 0;
};

/// A mixture of sources: every block of 65536 positions holds each source exactly quota times, the quotas being the
/// normalised weights rounded by largest remainder (at least one slot each); the order inside block b is the
/// permutation keyed by (seed, b). Source indices ascend with the position, so a source is read epoch after epoch. A
/// function of (seed, position); one block's table is cached. Safe for several threads.
class Blend {
public:
    /// Throws DataError if there are no weights, more than 65536, or one is zero, negative or not finite; `names` are
    /// for the message and as many as the weights.
    Blend(const std::vector<double>& weights, const std::vector<std::string>& names, std::uint64_t seed);

    BlendPlace at(std::int64_t position) const;
    const std::vector<std::int64_t>& quotas() const { return quotas_; }
    /// Samples of `source` among the first `positions` positions.
    std::int64_t count(std::int64_t source, std::int64_t positions) const;

private:
    struct Block;
    std::shared_ptr<const Block> block(std::int64_t number) const;

    std::vector<std::int64_t> quotas_;
    std::uint64_t seed_;
    mutable std::mutex mutex_;
    mutable std::shared_ptr<const Block> cached_;
};

}  // namespace tessera::data

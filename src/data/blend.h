#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tessera::data {

inline constexpr std::int64_t kBlendSlots = 65536;

/// Which source gives the sample at a position, and which of that source's samples it is, counted from 0.
struct BlendPlace {
    std::int64_t source = 0;
    std::int64_t index = 0;
};

/// A mixture of sources. Every block of 65536 positions is the same table, which holds each source exactly quota times,
/// the quotas being the normalised weights rounded by largest remainder (at least one slot each). Inside it the m-th
/// sample of a source (from 0) is given at a slot in [floor(m·65536/quota), ceil((m + 1)·65536/quota)), of all that may
/// come the one that must come first (Baruah, Cohen, Plaxton, Varvel: "Proportionate progress", Algorithmica 15, 1996,
/// whose windows one server meets by earliest deadline). So at every prefix of the run, whatever its length, a source
/// has given less than one sample more or less than its share. A function of the weights only. Safe for several
/// threads.
class Blend {
public:
    /// Throws DataError if there are no weights, more than 65536, or one is zero, negative or not finite; `names` are
    /// for the message and as many as the weights.
    Blend(const std::vector<double>& weights, const std::vector<std::string>& names);

    BlendPlace at(std::int64_t position) const;
    const std::vector<std::int64_t>& quotas() const { return quotas_; }
    /// Samples of `source` among the first `positions` positions.
    std::int64_t count(std::int64_t source, std::int64_t positions) const;

private:
    void fill_table();

    std::vector<std::int64_t> quotas_;
    std::vector<std::uint16_t> source_of_slot_;  ///< [kBlendSlots]; empty if there is one source
    std::vector<std::uint16_t> rank_of_slot_;    ///< [kBlendSlots]: how many slots of the same source come before
    std::vector<std::uint16_t> slots_;           ///< [kBlendSlots]: the slots of source 0, ascending, of source 1, ...
    std::vector<std::int64_t> first_of_source_;  ///< where those of each source begin
};

}  // namespace tessera::data

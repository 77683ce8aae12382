#include "data/blend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <queue>

#include "core/error.h"

namespace tessera::data {

namespace {

void check_weights(const std::vector<double>& weights, const std::vector<std::string>& names) {
    if (weights.empty() || static_cast<std::int64_t>(weights.size()) > kBlendSlots) {
        core::raise<core::DataError>("a blend needs 1 to {} sources, got {}", kBlendSlots, weights.size());
    }
    if (weights.size() != names.size()) {
        core::raise<core::DataError>("{} weights were given for {} data sources; give one weight for each",
                                     weights.size(), names.size());
    }
    for (std::size_t k = 0; k < weights.size(); ++k) {
        if (std::isfinite(weights[k]) && weights[k] > 0) continue;
        core::raise<core::DataError>(
                "the weight of data source {} ({}) is {}; weights must be positive numbers (leave the source out "
                "to read nothing of it)",
                k, names[k], weights[k]);
    }
}

std::vector<std::int64_t> largest_remainder_quotas(const std::vector<double>& weights) {
    // Dividing by the largest weight first keeps the sum finite.
    const double largest = *std::max_element(weights.begin(), weights.end());
    double total = 0;
    for (const double weight : weights) total += weight / largest;
    std::vector<std::int64_t> quotas(weights.size());
    std::vector<double> remainders(weights.size());
    for (std::size_t k = 0; k < weights.size(); ++k) {
        const double ideal = weights[k] / largest / total * static_cast<double>(kBlendSlots);
        quotas[k] = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::floor(ideal)));
        remainders[k] = ideal - static_cast<double>(quotas[k]);
    }
    std::int64_t missing = kBlendSlots - std::accumulate(quotas.begin(), quotas.end(), std::int64_t{0});
    while (missing > 0) {
        const auto most = std::max_element(remainders.begin(), remainders.end()) - remainders.begin();
        ++quotas[static_cast<std::size_t>(most)];
        remainders[static_cast<std::size_t>(most)] -= 1;
        --missing;
    }
    while (missing < 0) {
        // Slots given to sources of less than one slot are taken from the largest.
        --*std::max_element(quotas.begin(), quotas.end());
        ++missing;
    }
    return quotas;
}

/// A source's next sample in the table: `time` is when it may come first, or when it must have come.
struct Due {
    std::int64_t time = 0;
    std::size_t source = 0;
    auto operator<=>(const Due&) const = default;
};
using EarliestFirst = std::priority_queue<Due, std::vector<Due>, std::greater<>>;

}  // namespace

Blend::Blend(const std::vector<double>& weights, const std::vector<std::string>& names) {
    check_weights(weights, names);
    quotas_ = largest_remainder_quotas(weights);
    if (quotas_.size() > 1) fill_table();
}

void Blend::fill_table() {
    source_of_slot_.resize(kBlendSlots);
    rank_of_slot_.resize(kBlendSlots);
    slots_.resize(kBlendSlots);
    first_of_source_.resize(quotas_.size());
    std::exclusive_scan(quotas_.begin(), quotas_.end(), first_of_source_.begin(), std::int64_t{0});
    std::vector<std::int64_t> given(quotas_.size());
    EarliestFirst waiting;
    EarliestFirst ready;
    for (std::size_t source = 0; source < quotas_.size(); ++source) waiting.push({0, source});
    for (std::int64_t slot = 0; slot < kBlendSlots; ++slot) {
        for (; !waiting.empty() && waiting.top().time <= slot; waiting.pop()) {
            const std::size_t source = waiting.top().source;
            const std::int64_t deadline = ((given[source] + 1) * kBlendSlots + quotas_[source] - 1) / quotas_[source];
            ready.push({deadline, source});
        }
        TESSERA_INVARIANT(!ready.empty() && ready.top().time > slot);
        const std::size_t source = ready.top().source;
        ready.pop();
        const auto at = static_cast<std::size_t>(slot);
        source_of_slot_[at] = static_cast<std::uint16_t>(source);
        rank_of_slot_[at] = static_cast<std::uint16_t>(given[source]);
        slots_[static_cast<std::size_t>(first_of_source_[source] + given[source])] = static_cast<std::uint16_t>(slot);
        if (++given[source] < quotas_[source]) waiting.push({given[source] * kBlendSlots / quotas_[source], source});
    }
}

BlendPlace Blend::at(std::int64_t position) const {
    TESSERA_INVARIANT(position >= 0);
    if (quotas_.size() == 1) return {0, position};
    const auto slot = static_cast<std::size_t>(position % kBlendSlots);
    const std::int64_t source = source_of_slot_[slot];
    return {source, position / kBlendSlots * quotas_[static_cast<std::size_t>(source)] + rank_of_slot_[slot]};
}

std::int64_t Blend::count(std::int64_t source, std::int64_t positions) const {
    if (quotas_.size() == 1) return positions;
    const std::int64_t quota = quotas_[static_cast<std::size_t>(source)];
    const auto begin = slots_.begin() + first_of_source_[static_cast<std::size_t>(source)];
    const auto before = std::lower_bound(begin, begin + quota, positions % kBlendSlots);
    return positions / kBlendSlots * quota + (before - begin);
}

}  // namespace tessera::data

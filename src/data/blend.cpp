#include "data/blend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "data/sample_order.h"

namespace tessera::data {

struct Blend::Block {
    std::int64_t number = 0;
    std::vector<std::uint16_t> source;
    std::vector<std::uint16_t> rank;
};

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

}  // namespace

Blend::Blend(const std::vector<double>& weights, const std::vector<std::string>& names, std::uint64_t seed)
    : seed_(seed) {
    check_weights(weights, names);
    quotas_ = largest_remainder_quotas(weights);
}

std::shared_ptr<const Blend::Block> Blend::block(std::int64_t number) const {
    const std::lock_guard lock(mutex_);
    if (cached_ != nullptr && cached_->number == number) return cached_;
    std::vector<std::uint16_t> slots;
    for (std::size_t k = 0; k < quotas_.size(); ++k) {
        slots.insert(slots.end(), static_cast<std::size_t>(quotas_[k]), static_cast<std::uint16_t>(k));
    }
    const KeyedPermutation order({.size = kBlendSlots,
                                  .seed = seed_,
                                  .purpose = OrderPurpose::blend,
                                  .round = static_cast<std::uint32_t>(number)});
    auto made = std::make_shared<Block>();
    made->number = number;
    made->source.resize(kBlendSlots);
    made->rank.resize(kBlendSlots);
    std::vector<std::uint16_t> seen(quotas_.size(), 0);
    for (std::int64_t k = 0; k < kBlendSlots; ++k) {
        const std::uint16_t source = slots[static_cast<std::size_t>(order(k))];
        made->source[static_cast<std::size_t>(k)] = source;
        made->rank[static_cast<std::size_t>(k)] = seen[source]++;
    }
    cached_ = made;
    return made;
}

BlendPlace Blend::at(std::int64_t position) const {
    TESSERA_INVARIANT(position >= 0);
    if (quotas_.size() == 1) return {0, position};
    const std::int64_t number = position / kBlendSlots;
    const auto slot = static_cast<std::size_t>(position % kBlendSlots);
    const auto table = block(number);
    const std::int64_t source = table->source[slot];
    return {source, number * quotas_[static_cast<std::size_t>(source)] + table->rank[slot]};
}

std::int64_t Blend::count(std::int64_t source, std::int64_t positions) const {
    if (quotas_.size() == 1) return positions;
    const std::int64_t number = positions / kBlendSlots;
    std::int64_t samples = number * quotas_[static_cast<std::size_t>(source)];
    const auto table = block(number);
    for (std::int64_t k = 0; k < positions % kBlendSlots; ++k) {
        samples += table->source[static_cast<std::size_t>(k)] == source ? 1 : 0;
    }
    return samples;
}

}  // namespace tessera::data

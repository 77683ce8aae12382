#include "data/blend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "data/data_support.h"

namespace tessera::data {
namespace {

using test::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> names(std::size_t count) {
    return std::vector<std::string>(count, "source");
}

std::vector<std::int64_t> first_sources(const Blend& blend, std::int64_t count) {
    std::vector<std::int64_t> sources;
    for (std::int64_t k = 0; k < count; ++k) sources.push_back(blend.at(k).source);
    return sources;
}

TEST(Blend, DA_04_weights_are_shares_whatever_they_add_up_to) {
    const Blend a({1, 2}, names(2), 7);
    const Blend b({10, 20}, names(2), 7);
    const Blend c({0.33, 0.67}, names(2), 7);
    EXPECT_EQ(first_sources(a, 3000), first_sources(b, 3000));
    EXPECT_THAT(a.quotas(), ElementsAre(21845, 43691));
    EXPECT_THAT(c.quotas(), ElementsAre(21627, 43909));
    EXPECT_NE(first_sources(a, 3000), first_sources(Blend({1, 2}, names(2), 8), 3000));
}

TEST(Blend, DA_04_bad_weights_are_refused) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (const double bad : {0.0, -1.0, nan, std::numeric_limits<double>::infinity()}) {
        EXPECT_THAT(message_of<core::DataError>([&] {
                        Blend({2, bad}, names(2), 1);
                    }),
                    HasSubstr("data source 1 (source)"))
                << bad;
    }
    EXPECT_THAT(message_of<core::DataError>([&] {
                    Blend({1, 1, 1}, names(2), 1);
                }),
                HasSubstr("3 weights were given for 2 data sources"));
    EXPECT_THROW(Blend({}, {}, 1), core::DataError);
}

TEST(Blend, DA_03_any_positive_weights_work_and_shares_hold) {
    for (const std::vector<double>& weights :
         {std::vector<double>{0.001, 0.999}, {1e-9, 1}, {1e-300, 1e300}, {1, 1, 1}, {3, 1, 4, 1, 5}}) {
        const Blend blend(weights, names(weights.size()), 11);
        EXPECT_EQ(std::accumulate(blend.quotas().begin(), blend.quotas().end(), std::int64_t{0}), kBlendSlots);
        std::vector<std::int64_t> seen(weights.size());
        const std::int64_t length = 2 * kBlendSlots + 500;
        for (std::int64_t k = 0; k < length; ++k) {
            const BlendPlace place = blend.at(k);
            const auto source = static_cast<std::size_t>(place.source);
            ASSERT_EQ(place.index, seen[source]++) << "indices of a source ascend without gaps";
            if (k % 9973 != 0) continue;
            const double share = static_cast<double>(blend.quotas()[source]) / static_cast<double>(kBlendSlots);
            // Five standard deviations of a draw without replacement.
            const double deviation = 5 * std::sqrt(static_cast<double>(k + 1) * share * (1 - share)) + 1;
            EXPECT_NEAR(static_cast<double>(seen[source]), share * static_cast<double>(k + 1), deviation);
        }
        for (std::size_t s = 0; s < weights.size(); ++s) {
            EXPECT_GE(blend.quotas()[s], 1);
            EXPECT_EQ(blend.count(static_cast<std::int64_t>(s), length), seen[s]);
        }
    }
}

TEST(Blend, places_do_not_depend_on_the_order_of_questions) {
    const Blend ascending({1, 3}, names(2), 5);
    const Blend jumping({1, 3}, names(2), 5);
    for (const std::int64_t position :
         {std::int64_t{70000}, std::int64_t{3}, 5 * kBlendSlots, std::int64_t{65535}, std::int64_t{65536}}) {
        const BlendPlace a = jumping.at(position);
        const BlendPlace b = ascending.at(position);
        EXPECT_EQ(a.source, b.source);
        EXPECT_EQ(a.index, b.index);
    }
}

TEST(Blend, one_source_is_read_straight) {
    const Blend blend({0.2}, names(1), 5);
    for (const std::int64_t position : {0, 1, 65536, 1000000}) EXPECT_EQ(blend.at(position).index, position);
    EXPECT_EQ(blend.count(0, 77), 77);
}

}  // namespace
}  // namespace tessera::data

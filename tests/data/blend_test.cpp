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
    const Blend a({1, 2}, names(2));
    const Blend b({10, 20}, names(2));
    const Blend c({0.33, 0.67}, names(2));
    EXPECT_EQ(first_sources(a, 3000), first_sources(b, 3000));
    EXPECT_THAT(a.quotas(), ElementsAre(21845, 43691));
    EXPECT_THAT(c.quotas(), ElementsAre(21627, 43909));
    EXPECT_NE(first_sources(a, 3000), first_sources(c, 3000));
}

TEST(Blend, DA_04_bad_weights_are_refused) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (const double bad : {0.0, -1.0, nan, std::numeric_limits<double>::infinity()}) {
        EXPECT_THAT(message_of<core::DataError>([&] {
                        Blend({2, bad}, names(2));
                    }),
                    HasSubstr("data source 1 (source)"))
                << bad;
    }
    EXPECT_THAT(message_of<core::DataError>([&] {
                    Blend({1, 1, 1}, names(2));
                }),
                HasSubstr("3 weights were given for 2 data sources"));
    EXPECT_THROW(Blend({}, {}), core::DataError);
}

/// |given·65536 - quota·positions| < 65536 means less than one sample away from the share.
std::int64_t scaled_deviation(std::int64_t given, std::int64_t quota, std::int64_t positions) {
    return std::abs(given * kBlendSlots - quota * positions);
}

TEST(Blend, DA_03_at_every_prefix_each_share_holds_within_one_sample) {
    std::vector<double> thousands;
    for (int k = 0; k < 3000; ++k) thousands.push_back(1 + k % 97 + 50.0 * (k % 5));
    for (const std::vector<double>& weights : {std::vector<double>{0.001, 0.999},
                                               {1e-9, 1},
                                               {1e-300, 1e300},
                                               {1, 1, 1},
                                               {3, 1, 4, 1, 5},
                                               {0.45, 0.1, 0.45},
                                               thousands}) {
        const Blend blend(weights, names(weights.size()));
        EXPECT_EQ(std::accumulate(blend.quotas().begin(), blend.quotas().end(), std::int64_t{0}), kBlendSlots);
        std::vector<std::int64_t> seen(weights.size());
        const std::int64_t length = 2 * kBlendSlots + 500;
        std::int64_t worst = 0;
        for (std::int64_t k = 0; k < length; ++k) {
            const BlendPlace place = blend.at(k);
            const auto source = static_cast<std::size_t>(place.source);
            const std::int64_t quota = blend.quotas()[source];
            ASSERT_EQ(place.index, seen[source]) << "indices of a source ascend without gaps";
            // A source is farthest from its share just before and just after it gives a sample.
            worst = std::max({worst, scaled_deviation(seen[source], quota, k),
                              scaled_deviation(seen[source] + 1, quota, k + 1)});
            ++seen[source];
        }
        EXPECT_LT(worst, kBlendSlots) << weights.size() << " sources";
        for (std::size_t s = 0; s < weights.size(); ++s) {
            EXPECT_GE(blend.quotas()[s], 1);
            EXPECT_LT(scaled_deviation(seen[s], blend.quotas()[s], length), kBlendSlots);
            EXPECT_EQ(blend.count(static_cast<std::int64_t>(s), length), seen[s]);
            EXPECT_EQ(blend.count(static_cast<std::int64_t>(s), kBlendSlots), blend.quotas()[s]);
            EXPECT_EQ(blend.count(static_cast<std::int64_t>(s), 0), 0);
        }
    }
}

TEST(Blend, places_do_not_depend_on_the_order_of_questions) {
    const Blend ascending({1, 3}, names(2));
    const Blend jumping({1, 3}, names(2));
    for (const std::int64_t position :
         {std::int64_t{70000}, std::int64_t{3}, 5 * kBlendSlots, std::int64_t{65535}, std::int64_t{65536}}) {
        const BlendPlace a = jumping.at(position);
        const BlendPlace b = ascending.at(position);
        EXPECT_EQ(a.source, b.source);
        EXPECT_EQ(a.index, b.index);
    }
}

TEST(Blend, one_source_is_read_straight) {
    const Blend blend({0.2}, names(1));
    for (const std::int64_t position : {0, 1, 65536, 1000000}) EXPECT_EQ(blend.at(position).index, position);
    EXPECT_EQ(blend.count(0, 77), 77);
}

}  // namespace
}  // namespace tessera::data

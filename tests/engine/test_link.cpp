// The link that is fitted to measured messages is the one that they were made of.
#include "exec/ranks/measure_link.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace pw {

namespace {

TEST(FittedLink, IsTheOneBehindTheTimes) {
    const Link link{50'000, 1e8, 20'000};
    std::vector<SizedTime> times;
    for (const Bytes bytes : {1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22})
        times.push_back({bytes, link.latency + occupation_of(bytes, link)});
    const Link fitted = fitted_link(link.latency, times);
    EXPECT_EQ(fitted.latency, link.latency);
    EXPECT_NEAR(fitted.bandwidth, link.bandwidth, 1e-4 * link.bandwidth);
    EXPECT_NEAR(static_cast<double>(fitted.half_size), 20'000, 20);
}

TEST(FittedLink, WithoutABandwidthWhereLargeMessagesTakeNoLonger) {
    const Link fitted = fitted_link(100, {{1 << 14, 200}, {1 << 20, 200}});
    EXPECT_EQ(fitted.latency, 100);
    EXPECT_TRUE(std::isinf(fitted.bandwidth));
}

}  // namespace

}  // namespace pw

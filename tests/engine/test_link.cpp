// The link that is fitted to measured messages is the link from which their times were made.
#include "exec/ranks/measure_link.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace pw {

namespace {

TEST(FittedLink, IsTheOneOfTheTimes) {
    const Link link{50'000, 1e8, 20'000};
    std::vector<SizedTime> times;
    for (const Bytes bytes : {1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22})
        times.push_back({bytes, link.latency + occupation_of(bytes, link)});
    const Link fitted = fitted_link(link.latency, times);
    EXPECT_EQ(fitted.latency, link.latency);
    EXPECT_NEAR(fitted.bandwidth, link.bandwidth, 1e-4 * link.bandwidth);
    EXPECT_NEAR(static_cast<double>(fitted.half_size), 20'000, 20);
}

TEST(FittedLink, HasNoBandwidthIfLargeMessagesTakeNoLonger) {
    const Link fitted = fitted_link(100, {{1 << 14, 200}, {1 << 20, 200}});
    EXPECT_EQ(fitted.latency, 100);
    EXPECT_TRUE(std::isinf(fitted.bandwidth));
}

constexpr Bytes kMeasured[] = {1, 1 << 10, 1 << 12, 1 << 14, 1 << 15, 1 << 16, 1 << 17, 1 << 18, 1 << 20, 1 << 22};

// The times of messages that ask the receiver first from 64 KiB on, over 1 Gbit/s with 10 ms in each direction.
Ns asked(Bytes bytes) { return (bytes < (1 << 16) ? 10'000'000 : 30'000'000) + bytes * 8; }

TEST(MeasuredLink, IsALineIfOneFits) {
    const Link link{50'000, 1e8, 20'000};
    std::vector<SizedTime> times;
    for (const Bytes bytes : kMeasured)
        times.push_back({bytes, link.latency + (bytes == 1 ? 0 : occupation_of(bytes, link))});
    const Link measured = link_of(times);
    EXPECT_TRUE(measured.by_size.empty());
    EXPECT_NEAR(measured.bandwidth, link.bandwidth, 1e-3 * link.bandwidth);
}

TEST(MeasuredLink, IsATableIfLargeMessagesAskFirst) {
    std::vector<SizedTime> times;
    for (const Bytes bytes : kMeasured)
        times.push_back({bytes, asked(bytes)});
    const Link link = link_of(times);
    ASSERT_FALSE(link.by_size.empty());
    for (const auto& [bytes, time] : times)
        EXPECT_NEAR(static_cast<double>(link.latency + (bytes == 1 ? 0 : occupation_of(bytes, link))),
                    static_cast<double>(time), 10.0)
            << bytes;
    // Between two sizes the time is on the line through both; beyond the last size this line continues.
    for (const Bytes bytes : {Bytes{3} << 18, Bytes{1} << 28})
        EXPECT_NEAR(static_cast<double>(link.latency + occupation_of(bytes, link)), static_cast<double>(asked(bytes)),
                    10.0);
    EXPECT_NEAR(link.bandwidth, 125e6, 1e6);  // not the apparent bandwidth of small messages
}

TEST(MeasuredLink, LargerMessagesTakeLongerInSpiteOfDisturbedMeasurements) {
    std::vector<SizedTime> times;
    for (const Bytes bytes : kMeasured)
        times.push_back({bytes, asked(bytes)});
    times[3].time = 45'000'000;
    times[6].time = 5'000'000;
    Bytes size = 0;
    double longest = 0;
    for (const auto& [bytes, bandwidth] : link_of(times).by_size) {
        EXPECT_GT(bytes, size);
        EXPECT_GT(static_cast<double>(bytes) / bandwidth, longest);
        size = bytes;
        longest = static_cast<double>(bytes) / bandwidth;
    }
    EXPECT_GT(size, 1 << 22);
}

TEST(MeasuredLink, IsFoundFromFewSizes) {
    EXPECT_EQ(link_of({{1, 5'000'000}}), Link{5'000'000});
    const Link link = link_of({{1, 5'000'000}, {1024, 15'000'000}});
    EXPECT_EQ(link.latency, 5'000'000);
    EXPECT_EQ(occupation_of(1024, link), 10'000'000);
}

}  // namespace

}  // namespace pw

// A single process is the only rank: functions that all ranks call together return at once.
#include "exec/ranks/local_ranks.h"
#include "workloads/error.h"

#include <gtest/gtest.h>

#include <vector>

namespace pw {
namespace {

TEST(LocalRanks, ReturnTheirOwnMessages) {
    LocalRanks ranks;
    Message own;
    write(own, 42);
    EXPECT_EQ(gather(ranks, own), std::vector<Message>{own});
    EXPECT_EQ(all_gather(ranks, own), std::vector<Message>{own});
    EXPECT_EQ(broadcast(ranks, own), own);
    EXPECT_TRUE(exchange(ranks, {}, {}, kFirstTag).empty());
    wait_for_first(ranks);
}

TEST(LocalRanks, HaveTheClockOfRankZero) {
    LocalRanks ranks;
    const std::vector<ClockOffset> offsets = measure_clocks(ranks, {});
    ASSERT_EQ(offsets.size(), 1u);
    EXPECT_EQ(offsets[0].ahead, 0);
}

TEST(LocalRanks, HaveAllDevices) {
    const LocalRanks ranks;
    const RankMap map(5, ranks);
    for (int device = 0; device < 5; ++device)
        EXPECT_TRUE(map.is_here(device)) << device;
}

TEST(LocalRanks, RefuseMessagesToOthers) {
    LocalRanks ranks;
    EXPECT_THROW(ranks.send(1, kFirstTag, {}, false), Error);
    EXPECT_THROW(ranks.receive(1, kFirstTag, {}), Error);
}

}  // namespace
}  // namespace pw

// Stages of which a device holds several: against all cuts of small chains, and by hand.
#include "tests/support/dice.h"
#include "workloads/stages/device_balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>

namespace pw {
namespace {

StageHolders looped(int devices, int each) {
    StageHolders holders{{}, std::vector<double>(static_cast<std::size_t>(devices), 1)};
    for (int stage = 0; stage < devices * each; ++stage)
        holders.device_of.push_back(stage % devices);
    return holders;
}

StageHolders v_shaped(int devices) {
    StageHolders holders{{}, std::vector<double>(static_cast<std::size_t>(devices), 1)};
    for (int stage = 0; stage < 2 * devices; ++stage)
        holders.device_of.push_back(stage < devices ? stage : 2 * devices - 1 - stage);
    return holders;
}

struct Balance {
    double busiest = 0;  // time of a device
    double squares = 0;  // of the longest stages of all rounds
    double pace = 0;     // the busiest device and the longest stages of all rounds
};

// From the definitions.
Balance balance_of(const std::vector<Ns>& time, const StageHolders& holders, std::vector<int> cuts) {
    cuts.push_back(static_cast<int>(time.size()));
    const std::size_t devices = holders.speed.size();
    std::vector<double> busy(devices, 0), longest((holders.device_of.size() + devices - 1) / devices, 0);
    for (std::size_t stage = 0; stage < holders.device_of.size(); ++stage) {
        const auto device = static_cast<std::size_t>(holders.device_of[stage]);
        double own = 0;
        for (int layer = cuts[stage]; layer < cuts[stage + 1]; ++layer)
            own += static_cast<double>(time[static_cast<std::size_t>(layer)]) / holders.speed[device];
        busy[device] += own;
        longest[stage / devices] = std::max(longest[stage / devices], own);
    }
    Balance balance{*std::max_element(busy.begin(), busy.end())};
    balance.pace = balance.busiest;
    for (const double stage : longest) {
        balance.squares += stage * stage;
        balance.pace += stage;
    }
    return balance;
}

// The least of each over all cuts; the pace is the worst among the cuts of the least squares.
Balance least_by_trying(const std::vector<Ns>& time, const StageHolders& holders) {
    const auto stages = holders.device_of.size();
    Balance least{std::numeric_limits<double>::infinity(), std::numeric_limits<double>::max(), 0};
    std::vector<int> cuts{0};
    const std::function<void()> extend = [&] {
        if (cuts.size() == stages) {
            const Balance balance = balance_of(time, holders, cuts);
            least.busiest = std::min(least.busiest, balance.busiest);
            if (balance.squares < least.squares * (1 - 1e-9))
                least.pace = balance.pace;
            else if (balance.squares < least.squares * (1 + 1e-9))
                least.pace = std::max(least.pace, balance.pace);
            least.squares = std::min(least.squares, balance.squares);
            return;
        }
        for (int next = cuts.back() + 1; next < static_cast<int>(time.size()); ++next) {
            cuts.push_back(next);
            extend();
            cuts.pop_back();
        }
    };
    extend();
    return least;
}

std::vector<Ns> random_times(Random& random, int layers) {
    const int kind = pick(random, 0, 3);
    std::vector<Ns> times;
    for (int layer = 0; layer < layers; ++layer)
        times.push_back(kind == 0   ? 10
                        : kind == 1 ? pick(random, 1, 20)
                        : kind == 2 ? (pick(random, 0, 4) == 0 ? 90 : 10)
                                    : (pick(random, 0, 2) == 0 ? pick(random, 1, 100) : 10));
    return times;
}

std::vector<int> counts_of(const std::vector<Ns>& time, const StageHolders& holders) {
    std::vector<int> cuts = balance_devices(time, holders);
    cuts.push_back(static_cast<int>(time.size()));
    std::vector<int> counts;
    for (std::size_t stage = 0; stage + 1 < cuts.size(); ++stage)
        counts.push_back(cuts[stage + 1] - cuts[stage]);
    return counts;
}

}  // namespace

// 80 layers on 16 devices are 5 each; the round that comes first has the longer stages.
TEST(DeviceBalance, EqualLayersMakeEqualDevices) {
    std::vector<int> counts(32, 2);
    std::fill_n(counts.begin(), 16, 3);
    EXPECT_EQ(counts_of(std::vector<Ns>(80, 3'000'000), looped(16, 2)), counts);
    for (const int devices : {2, 3, 8, 16, 64})
        for (const int each : {2, 3, 8})
            for (const int layers : {devices * each, devices * each + 1, devices * (each + 1) - 1, 10 * devices + 7}) {
                if (layers < devices * each)
                    continue;
                const std::vector<Ns> time(static_cast<std::size_t>(layers), 7);
                const StageHolders holders = looped(devices, each);
                const int most = (layers + devices - 1) / devices;  // of a device
                EXPECT_EQ(balance_of(time, holders, balance_devices(time, holders)).busiest, 7 * most)
                    << layers << " layers, " << devices << " devices, " << each << " stages each";
                if (each != 2)
                    continue;
                const StageHolders v = v_shaped(devices);
                EXPECT_EQ(balance_of(time, v, balance_devices(time, v)).busiest, 7 * most) << layers << ' ' << devices;
            }
}

TEST(DeviceBalance, LoopedStagesAreAsFastAsThoseOfTheLeastSquaresOfAllCuts) {
    Random random(5);
    for (int instance = 0; instance < 300; ++instance) {
        const int devices = pick(random, 1, 3), each = devices == 3 ? 2 : pick(random, 2, 3);
        const StageHolders holders = looped(devices, each);
        const std::vector<Ns> time = random_times(random, pick(random, devices * each, 12));
        const Balance found = balance_of(time, holders, balance_devices(time, holders));
        EXPECT_LE(found.pace, least_by_trying(time, holders).pace * (1 + 1e-5)) << instance;
    }
}

TEST(DeviceBalance, OtherPlacementsAreNearTheLeastBusyDeviceOfAllCuts) {
    Random random(6);
    for (int instance = 0; instance < 300; ++instance) {
        StageHolders holders = v_shaped(pick(random, 1, 3));
        for (double& speed : holders.speed)
            speed = instance % 2 == 0 ? 1 : pick(random, 1, 3);
        const std::vector<Ns> time = random_times(random, pick(random, static_cast<int>(holders.device_of.size()), 12));
        const Balance found = balance_of(time, holders, balance_devices(time, holders));
        EXPECT_LE(found.busiest * (1 - 0.02), least_by_trying(time, holders).busiest * (1 + 1e-9)) << instance;
    }
}

// One round of 4.5 and 0.75, one of 6.5 and 3 would have the least squares, and all of the work on one device.
TEST(DeviceBalance, FewLayersDoNotCrowdOneDevice) {
    const std::vector<Ns> time{0, 4500, 750, 6500, 3000};
    const StageHolders holders = looped(2, 2);
    EXPECT_EQ(balance_of(time, holders, balance_devices(time, holders)).busiest, 7500);
}

// A fast device gets more: four times as much, of 100 equal layers on speeds 1 and 4 that is 80.
TEST(DeviceBalance, FastDevicesTakeMore) {
    StageHolders holders = looped(2, 2);
    holders.speed = {1, 4};
    const std::vector<Ns> time(100, 8);
    EXPECT_EQ(balance_of(time, holders, balance_devices(time, holders)).busiest, 20 * 8);
}

// Speeds that are no binary fractions: a round of one device takes all of its layers.
TEST(DeviceBalance, RoundedSpeedsLeaveNoLayerOut) {
    Random random(8);
    for (int instance = 0; instance < 200; ++instance) {
        StageHolders holders = looped(pick(random, 1, 2), 3);
        for (double& speed : holders.speed)
            speed = 0.1 * pick(random, 1, 9);
        const std::vector<Ns> time = random_times(random, pick(random, 6, 20));
        EXPECT_EQ(balance_devices(time, holders).size(), holders.device_of.size());
    }
}

TEST(DeviceBalance, EveryStageOfLargeChainsHasALayer) {
    Random random(7);
    for (const auto& [devices, each, layers] :
         std::vector<std::array<int, 3>>{{64, 8, 512}, {64, 8, 600}, {64, 4, 3000}}) {
        const StageHolders holders = looped(devices, each);
        std::vector<Ns> time;
        for (int layer = 0; layer < layers; ++layer)
            time.push_back(pick(random, 1, 100));
        const std::vector<int> counts = counts_of(time, holders);
        EXPECT_EQ(counts.size(), holders.device_of.size());
        EXPECT_GE(*std::min_element(counts.begin(), counts.end()), 1);
        double all = 0;
        for (const Ns one : time)
            all += static_cast<double>(one);
        if (layers >= 3000) {
            EXPECT_LT(balance_of(time, holders, balance_devices(time, holders)).busiest, 1.1 * all / devices);
        }
    }
}

}  // namespace pw

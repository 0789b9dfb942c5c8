// Cutting a chain: against all partitions of small chains, in closed form, and in bounded time.
#include "tests/support/refusal.h"
#include "workloads/stages/chain_partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

using namespace pw;

namespace {

using Starts = std::vector<int>;
constexpr Ns kNone = std::numeric_limits<Ns>::max();

// The cost of a part, from the definition; kNone if it does not fit.
Ns part_cost(const Chain& chain, const ChainDevice& device, int from, int to) {
    const int layers = static_cast<int>(chain.time.size());
    Ns time = 0;
    Bytes bytes = 0;
    for (int layer = from; layer < to; ++layer) {
        time += chain.time[layer];
        bytes += chain.bytes.empty() ? 0 : chain.bytes[layer];
    }
    if (bytes > device.memory)
        return kNone;
    time = std::llround(static_cast<double>(time) / device.speed);
    if (!chain.cut.empty())
        time += (from > 0 ? chain.cut[from] : 0) + (to < layers ? chain.cut[to] : 0);
    return time;
}

// The first of the best cuts, in lexicographic order, by trying all of them.
ChainPartition best_by_trying(const Chain& chain, const std::vector<ChainDevice>& devices) {
    const int layers = static_cast<int>(chain.time.size());
    ChainPartition best{{}, kNone};
    Starts starts{0};
    const std::function<void(Ns)> extend = [&](Ns most) {
        const std::size_t part = starts.size() - 1;
        if (starts.size() == devices.size()) {
            most = std::max(most, part_cost(chain, devices[part], starts.back(), layers));
            if (most < best.bottleneck)
                best = {starts, most};
            return;
        }
        for (int to = starts.back() + 1; to < layers; ++to) {
            const Ns cost = part_cost(chain, devices[part], starts.back(), to);
            starts.push_back(to);
            extend(std::max(most, cost));
            starts.pop_back();
        }
    };
    extend(0);
    return best;
}

struct Kind {
    bool speeds, cuts, memory;
};

struct Instance {
    Chain chain;
    std::vector<ChainDevice> devices;
};

Instance random_instance(std::mt19937& random, const Kind& kind) {
    const auto up_to = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most + 1)); };
    Instance instance;
    const int layers = 1 + up_to(9);
    for (int layer = 0; layer < layers; ++layer) {
        instance.chain.time.push_back(up_to(12) * up_to(3));
        if (kind.cuts)
            instance.chain.cut.push_back(up_to(20));
        if (kind.memory)
            instance.chain.bytes.push_back(up_to(10));
    }
    instance.devices.resize(1 + static_cast<std::size_t>(up_to(std::min(5, layers) - 1)));
    for (ChainDevice& device : instance.devices) {
        if (kind.speeds)
            device.speed = 0.25 * (1 + up_to(7));
        if (kind.memory)
            device.memory = 5 + up_to(25);
    }
    return instance;
}

class AgainstAll : public testing::TestWithParam<Kind> {};

}  // namespace

TEST_P(AgainstAll, IsTheFirstOfTheBest) {
    std::mt19937 random(7);
    int infeasible = 0;
    for (int round = 0; round < 1500; ++round) {
        const auto [chain, devices] = random_instance(random, GetParam());
        const ChainPartition best = best_by_trying(chain, devices), found = partition_chain(chain, devices);
        ASSERT_EQ(found.starts, best.starts) << "round " << round;
        EXPECT_EQ(found.shortage.has_value(), best.starts.empty());
        if (found.shortage) {
            ++infeasible;
            EXPECT_GT(found.shortage->needs, found.shortage->has);
            EXPECT_EQ(found.shortage->has, devices[static_cast<std::size_t>(found.shortage->part)].memory);
        } else {
            EXPECT_EQ(found.bottleneck, best.bottleneck);
        }
    }
    EXPECT_EQ(infeasible > 0, GetParam().memory);
}
INSTANTIATE_TEST_SUITE_P(Kinds, AgainstAll,
                         testing::Values(Kind{false, false, false}, Kind{true, false, false}, Kind{false, true, false},
                                         Kind{false, false, true}, Kind{true, true, false}, Kind{true, false, true},
                                         Kind{false, true, true}, Kind{true, true, true}));

TEST(ChainPartition, SharesEqualLayersEqually) {
    for (int parts = 1; parts <= 50; ++parts)
        for (const int per_part : {1, 2, 7}) {
            const Chain chain{std::vector<Ns>(static_cast<std::size_t>(parts * per_part), 10)};
            EXPECT_EQ(partition_chain(chain, parts).bottleneck, 10 * per_part);
        }
}

TEST(ChainPartition, GivesAFastDeviceMore) {
    const Chain chain{std::vector<Ns>(100, 8)};
    EXPECT_EQ(partition_chain(chain, {{1}, {3}}).starts, (Starts{0, 25}));
    EXPECT_EQ(partition_chain(chain, {{3}, {1}}).bottleneck, 200);
}

TEST(ChainPartition, AvoidsADearCut) {
    const Chain chain{{10, 10, 10, 10}, {0, 5, 100, 5}};
    const ChainPartition found = partition_chain(chain, 2);
    EXPECT_EQ(found.starts, (Starts{0, 1}));
    EXPECT_EQ(found.bottleneck, 35);
}

TEST(ChainPartition, SaysWhichPartNeedsHowMuch) {
    const Chain chain{{1, 1, 1}, {}, {40, 70, 30}};
    const auto shortage = [&](const std::vector<ChainDevice>& devices) {
        const std::optional<ChainShortage> found = partition_chain(chain, devices).shortage;
        EXPECT_TRUE(found);
        return found ? std::vector<Bytes>{found->part, found->needs, found->has} : std::vector<Bytes>{};
    };
    EXPECT_EQ(shortage({{1, 60}, {1, 60}}), (std::vector<Bytes>{1, 70, 60}));   // a layer that fits nowhere
    EXPECT_EQ(shortage({{1, 80}, {1, 90}}), (std::vector<Bytes>{1, 100, 90}));  // the rest is too big
}

TEST(ChainPartition, RefusesEmptyParts) {
    const Chain chain{{1, 1, 1}};
    for (const int parts : {0, -1, 4})
        expect_says(refusal([&] { partition_chain(chain, parts); }), {"3 layers", "1 to 3"});
}

// The bound is loose: shared machines and builds without optimisation.
TEST(ChainPartition, CutsAMillionLayersAtOnce) {
    std::mt19937_64 random(3);
    Chain chain;
    for (int layer = 0; layer < 1'000'000; ++layer)
        chain.time.push_back(static_cast<Ns>(random() % 1'000'000));
    const ChainPartition found = partition_chain(chain, 1000);
    Ns total = 0, most = 0;
    for (const Ns time : chain.time) {
        total += time;
        most = std::max(most, time);
    }
    EXPECT_GE(found.bottleneck, total / 1000);
    EXPECT_LE(found.bottleneck, total / 1000 + most);
}

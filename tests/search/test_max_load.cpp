// Placements of least maximum load: published optima, and every placement tried on small instances.
#include "search/placement/max_load.h"
#include "search/placement/placement_groups.h"
#include "tests/support/dice.h"
#include "tests/support/public_data.h"
#include "tests/support/refusal.h"
#include "tests/support/small_stack.h"
#include "tests/support/thoroughness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>

using namespace pw;

namespace {

// The stage of each node.
using Places = std::vector<int>;

double load_by_nodes(const PlacementInstance& instance, const Places& places, int stage, bool on_cpu) {
    double load = 0;
    std::set<int> crossing;
    for (std::size_t node = 0; node < places.size(); ++node)
        if (places[node] == stage)
            load += on_cpu ? instance.nodes[node].cpu_time : instance.nodes[node].accelerator_time;
    for (const auto& [from, to] : instance.edges)
        if ((places[from] == stage) != (places[to] == stage))
            crossing.insert(from);
    for (const int node : crossing)
        load += on_cpu ? 0 : instance.nodes[node].transfer_time;
    return load;
}

bool has_forward_mate(const PlacementInstance& instance, int node) {
    const int colour = instance.nodes[node].colour;
    return !instance.nodes[node].backward ||
           std::any_of(instance.nodes.begin(), instance.nodes.end(), [&](const PlacementNode& other) {
               return colour >= 0 && other.colour == colour && !other.backward;
           });
}

bool is_contiguous(const PlacementInstance& instance, const Places& places) {
    for (std::size_t a = 0; a < places.size(); ++a)
        for (std::size_t b = 0; b < a; ++b)
            if (instance.nodes[a].colour >= 0 && instance.nodes[a].colour == instance.nodes[b].colour &&
                places[a] != places[b])
                return false;
    for (const auto& [from, to] : instance.edges) {
        if (!instance.nodes[to].backward && places[from] > places[to])
            return false;
        const bool orphan = !has_forward_mate(instance, from) || !has_forward_mate(instance, to);
        if (instance.nodes[from].backward && orphan && places[from] < places[to])
            return false;
    }
    return true;
}

// Infinite where a stage does not fit.
double most_by_nodes(const PlacementInstance& instance, const Places& places, const std::vector<bool>& on_cpu) {
    double most = 0;
    for (std::size_t stage = 0; stage < on_cpu.size(); ++stage) {
        double size = 0;
        for (std::size_t node = 0; node < places.size(); ++node)
            if (places[node] == static_cast<int>(stage) && !on_cpu[stage])
                size += instance.nodes[node].on_accelerator ? instance.nodes[node].size : kNever;
        if (size > instance.memory)
            return kNever;
        most = std::max(most, load_by_nodes(instance, places, static_cast<int>(stage), on_cpu[stage]));
    }
    return most;
}

double least_by_trying(const PlacementInstance& instance) {
    const int stages = instance.accelerators + instance.cpus;
    std::vector<bool> on_cpu(stages);
    std::fill_n(on_cpu.rbegin(), instance.cpus, true);
    double least = kNever;
    Places places(instance.nodes.size());
    while (true) {
        if (is_contiguous(instance, places)) {
            std::vector<bool> kinds = on_cpu;
            do
                least = std::min(least, most_by_nodes(instance, places, kinds));
            while (std::next_permutation(kinds.begin(), kinds.end()));
        }
        auto digit = places.begin();
        while (digit != places.end() && ++*digit == stages)
            *digit++ = 0;
        if (digit == places.end())
            return least;
    }
}

PlacementNode random_node(Dice& dice, bool backward, int colours) {
    PlacementNode node{.name = "node"};
    node.accelerator_time = dice.one_in(4) ? 0 : dice.upto(20);
    node.cpu_time = dice.one_in(4) ? 0 : dice.upto(60);
    node.transfer_time = dice.upto(5);
    node.size = dice.one_in(3) ? 0 : dice.upto(10);
    node.backward = backward;
    node.colour = colours > 0 && !dice.one_in(4) ? dice.upto(colours - 1) : -1;
    node.on_accelerator = !dice.one_in(15);
    return node;
}

PlacementInstance random_placement(unsigned seed) {
    Dice dice{std::mt19937(seed)};
    PlacementInstance instance;
    const int nodes = 2 + dice.upto(6), forward = dice.one_in(2) ? nodes : 1 + nodes / 2;
    for (int node = 0; node < nodes; ++node)
        instance.nodes.push_back(random_node(dice, node >= forward, dice.one_in(2) ? 0 : nodes / 2));
    for (int from = 0; from < nodes; ++from)
        for (int to = from + 1; to < nodes; ++to)
            if (dice.one_in(3))
                instance.edges.push_back({from, to});
    instance.accelerators = 1 + dice.upto(2);
    instance.cpus = dice.upto(1);
    instance.memory = dice.one_in(3) ? 15 + dice.upto(10) : 1000;
    if (instance.cpus == 0)
        for (PlacementNode& node : instance.nodes)
            node.on_accelerator = true;
    return instance;
}

PlacementInstance chain(const std::vector<double>& times, double transfer) {
    PlacementInstance instance;
    for (std::size_t node = 0; node < times.size(); ++node) {
        instance.nodes.push_back({"layer", 10 * times[node], times[node], transfer, 1});
        if (node > 0)
            instance.edges.push_back({static_cast<int>(node) - 1, static_cast<int>(node)});
    }
    instance.memory = 100;
    return instance;
}

Places places_of(const PlacementInstance& instance, const Partition& partition) {
    Places places(instance.nodes.size(), -1);
    for (std::size_t stage = 0; stage < partition.stages.size(); ++stage)
        for (const int node : partition.stages[stage].layers) {
            EXPECT_EQ(places[node], -1) << "a node of two stages";
            places[node] = static_cast<int>(stage);
        }
    EXPECT_EQ(std::count(places.begin(), places.end(), -1), 0);
    return places;
}

// The facts of a partition, computed again from its nodes.
void expect_true(const PlacementInstance& instance, const Partition& partition) {
    const Places places = places_of(instance, partition);
    EXPECT_TRUE(is_contiguous(instance, places));
    double most = 0;
    int cpus = 0;
    for (std::size_t stage = 0; stage < partition.stages.size(); ++stage) {
        const PlannedStage& planned = partition.stages[stage];
        EXPECT_NEAR(planned.time, load_by_nodes(instance, places, static_cast<int>(stage), planned.on_cpu), 1e-9);
        EXPECT_TRUE(planned.on_cpu || static_cast<double>(planned.memory) <= instance.memory);
        most = std::max(most, planned.time);
        cpus += planned.on_cpu ? 1 : 0;
    }
    EXPECT_EQ(partition.objective, most);
    EXPECT_LE(cpus, instance.cpus);
    EXPECT_LE(static_cast<int>(partition.stages.size()) - cpus, instance.accelerators);
}

struct GoldenPlacement {
    const char* file;
    double optimum;
};

class PublicPlacements : public testing::TestWithParam<GoldenPlacement> {};

TEST(MaxLoad, SearchesStagesOfAnyLength) {
    PlacementInstance instance = chain(std::vector<double>(3000, 1), 0);
    instance.memory = 3000;
    instance.accelerators = 2;
    Partition partition;
    on_small_stack([&] { partition = max_load_partition(instance, {.downsets = 1}); });
    EXPECT_EQ(partition.objective, 1500);
}

}  // namespace

TEST(MaxLoad, OneAcceleratorTakesTheSum) {
    const Partition partition = max_load_partition(chain({1, 2, 3}, 10));
    EXPECT_EQ(partition.objective, 6);
    EXPECT_EQ(partition.lower_bound, 6);
    EXPECT_EQ(partition.stages.size(), 1u);
}

TEST(MaxLoad, AChainIsCutWhereItBalances) {
    PlacementInstance instance = chain({4, 1, 1, 2, 4, 4}, 0.5);
    instance.accelerators = 3;
    const Partition partition = max_load_partition(instance);
    EXPECT_EQ(partition.objective, 7);  // 4 1 1 | 2 4 | 4: the middle pays two transfers
    EXPECT_EQ(partition.lower_bound, partition.objective);
    expect_true(instance, partition);
}

TEST(MaxLoad, ATensorWithManyReadersCostsOnce) {
    PlacementInstance instance = chain({5, 5, 5}, 2);
    instance.edges = {{0, 1}, {0, 2}};
    instance.accelerators = 2;
    EXPECT_EQ(max_load_partition(instance).objective, 12);
}

TEST(MaxLoad, ACpuTakesWhatAcceleratorsCannot) {
    PlacementInstance instance = chain({5, 5, 5}, 1);
    instance.cpus = 1;
    instance.nodes[2].on_accelerator = false;
    const Partition partition = max_load_partition(instance);
    EXPECT_EQ(partition.objective, 50);
    ASSERT_EQ(partition.stages.size(), 2u);
    EXPECT_TRUE(partition.stages[1].on_cpu);
    EXPECT_EQ(partition.stages[0].time, 11);
}

TEST(MaxLoad, BackwardNodesFollowTheirForwardMates) {
    PlacementInstance instance = chain({1, 1, 6, 2}, 0);
    instance.accelerators = 2;
    for (std::size_t node = 2; node < 4; ++node) {
        instance.nodes[node].backward = true;
        instance.nodes[node].colour = 3 - static_cast<int>(node);
    }
    instance.nodes[0].colour = 0;
    instance.nodes[1].colour = 1;
    const Partition partition = max_load_partition(instance);
    EXPECT_EQ(partition.objective, 7);
    EXPECT_EQ(partition.stages.front().layers, (std::vector<int>{0, 3}));
}

TEST(MaxLoad, EveryPlacementOfSmallInstancesIsBeaten) {
    int infeasible = 0;
    for (unsigned seed = 0; seed < (soaks() ? 800u : 300u); ++seed) {
        const PlacementInstance instance = random_placement(seed);
        const Partition partition = max_load_partition(instance);
        const double least = least_by_trying(instance);
        EXPECT_EQ(least == kNever, partition.shortage.has_value()) << "seed " << seed;
        if (least == kNever) {
            ++infeasible;
            EXPECT_GT(static_cast<double>(partition.shortage->needs), instance.memory);
            continue;
        }
        EXPECT_NEAR(partition.objective, least, 1e-9) << "seed " << seed;
        EXPECT_EQ(partition.lower_bound, partition.objective);
        expect_true(instance, partition);
    }
    EXPECT_GT(infeasible, 10);
}

TEST(MaxLoad, WhatFitsNowhereNamesTheFullestStage) {
    PlacementInstance instance = chain({1, 1, 1, 1}, 0);
    instance.accelerators = 2;
    instance.nodes[3].size = 5;
    instance.memory = 4;
    const Partition partition = max_load_partition(instance);
    EXPECT_TRUE(partition.stages.empty());
    ASSERT_TRUE(partition.shortage);
    EXPECT_EQ(partition.shortage->stage, 1);
    EXPECT_EQ(partition.shortage->needs, 5);
    EXPECT_EQ(partition.shortage->has, 4);
    instance.memory = 5;
    EXPECT_FALSE(max_load_partition(instance).shortage);
    instance.nodes[0].on_accelerator = false;
    instance.nodes[0].name = "embedding";
    expect_says(refusal([&] { max_load_partition(instance); }), {"'embedding'", "no device", "CPU"});
}

TEST(MaxLoad, ALimitLeavesAnAnswerAndALowerBound) {
    PlacementInstance instance = chain({3, 1, 4, 1, 5, 9, 2, 6}, 1);
    instance.edges = {{0, 7}, {1, 7}, {2, 7}, {3, 7}, {4, 7}, {5, 7}, {6, 7}};
    instance.accelerators = 3;
    const Partition exact = max_load_partition(instance);
    const Partition limited = max_load_partition(instance, {.seconds = 60, .downsets = 10});
    EXPECT_GE(limited.objective, exact.objective);
    EXPECT_LE(limited.lower_bound, exact.objective);
    EXPECT_GT(limited.lower_bound, 10);
    expect_true(instance, limited);
}

TEST(MaxLoad, NoTimeLeavesAnAnswerAndALowerBound) {
    PIPEWRIGHT_NEED_DATA(path, "dnn-partitioning/layer_gnmt_training.json");
    const PlacementInstance instance = read_placement_instance(path);
    const Partition limited = max_load_partition(instance, {.seconds = 0.001});
    EXPECT_LT(limited.lower_bound, limited.objective);
    EXPECT_GT(limited.lower_bound, 85);
    EXPECT_LE(limited.lower_bound, 107.0044140625);
    expect_true(instance, limited);
}

TEST_P(PublicPlacements, HaveTheirPublishedOptimum) {
    PIPEWRIGHT_NEED_DATA(path, std::string("dnn-partitioning/") + GetParam().file + ".json");
    const PlacementInstance instance = read_placement_instance(path);
    const Partition partition = max_load_partition(instance);
    EXPECT_NEAR(partition.objective, GetParam().optimum, 1e-9);
    EXPECT_EQ(partition.lower_bound, partition.objective);
    expect_true(instance, partition);
}
INSTANTIATE_TEST_SUITE_P(Goldens, PublicPlacements,
                         testing::Values(GoldenPlacement{"layer_resnet50_training", 78.6318125},
                                         GoldenPlacement{"layer_gnmt_training", 107.0044140625},
                                         GoldenPlacement{"layer_inceptionv3_inference", 51.55186358642578},
                                         GoldenPlacement{"op_bert_l-3_inference", 27.9185676799125},
                                         GoldenPlacement{"op_bert_l-6_training", 72.86496632241122},
                                         GoldenPlacement{"op_resnet50_inference", 124.34884977404485}),
                         [](const auto& golden) {
                             std::string name = golden.param.file;
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });

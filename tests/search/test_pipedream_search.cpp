// PipeDream's partitioner: the values of its own program on the public profiles, and all partitions of small chains.
#include "search/pipedream/pipedream.h"
#include "tests/support/public_data.h"
#include "workloads/costs/profiled_model.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

namespace pw {
namespace {

using Levels = std::vector<PipedreamOptions::Level>;

PipedreamGraph public_graph(const std::string& path) {
    const ProfiledModel read = read_profiled_model(path, {});
    return pipedream_graph(read.model, read.profile, 1);
}

// Every layer in one stage, no edge backwards, all devices used, and the objective is that of the slowest stage.
void expect_plan(const PipedreamGraph& graph, const PipedreamOptions& options, const Partition& plan) {
    std::vector<int> stage_of(graph.layers.size(), -1);
    double slowest = 0;
    int used = 0;
    for (std::size_t stage = 0; stage < plan.stages.size(); ++stage) {
        EXPECT_TRUE(std::is_sorted(plan.stages[stage].layers.begin(), plan.stages[stage].layers.end()));
        for (const int layer : plan.stages[stage].layers) {
            EXPECT_EQ(stage_of[layer], -1);
            stage_of[layer] = static_cast<int>(stage);
        }
        slowest = std::max(slowest, plan.stages[stage].time);
        used += plan.stages[stage].replicas;
    }
    EXPECT_EQ(std::count(stage_of.begin(), stage_of.end(), -1), 0);
    for (auto [edge, end] = edges(graph.graph); edge != end; ++edge)
        EXPECT_LE(stage_of[source(*edge, graph.graph)], stage_of[target(*edge, graph.graph)]);
    int devices = 1;
    for (const PipedreamOptions::Level& level : options.levels)
        devices *= level.devices;
    EXPECT_EQ(used, devices);
    EXPECT_NEAR(slowest, plan.objective, 1e-12 * plan.objective);
    EXPECT_EQ(plan.lower_bound, plan.objective);
    EXPECT_FALSE(plan.shortage);
}

// ---- the public profiles ----

// Stages as {layers, devices}, where the best partition is the only one.
using Shape = std::vector<std::pair<int, int>>;
enum class Rule { Charged, Free, Straight, FreeStraight };
struct GoldenPlan {
    const char* model;
    Levels levels;
    Rule rule;
    double seconds;
    Shape shape = {};
    Bytes memory = 0;
};
void PrintTo(const GoldenPlan& golden, std::ostream* out) { *out << golden.model << " " << golden.seconds; }

PipedreamOptions options_of(const GoldenPlan& golden) {
    PipedreamOptions options{golden.levels};
    options.charge_transfers = golden.rule == Rule::Charged || golden.rule == Rule::Straight;
    options.straight = golden.rule == Rule::Straight || golden.rule == Rule::FreeStraight;
    if (golden.memory > 0)
        options.memory = golden.memory;
    return options;
}

class PublicPlans : public testing::TestWithParam<GoldenPlan> {};
TEST_P(PublicPlans, AreThoseOfPipedream) {
    PIPEWRIGHT_NEED_DATA(path, fmt::format("pipedream-profiles/{}.graph.txt", GetParam().model));
    const PipedreamGraph graph = public_graph(path);
    const PipedreamOptions options = options_of(GetParam());
    const Partition plan = plan_pipedream(graph, options);
    EXPECT_NEAR(plan.objective / GetParam().seconds, 1, 1e-9);
    expect_plan(graph, options, plan);
    Shape shape;
    for (const PlannedStage& stage : plan.stages)
        shape.push_back({static_cast<int>(stage.layers.size()), stage.replicas});
    if (!GetParam().shape.empty()) {
        EXPECT_EQ(shape, GetParam().shape);
    }
}

const Levels k4x4{{4, 1.2e10}, {4, 1.25e9}}, k8x2{{8, 3e10}, {2, 3.125e9}};
Levels one(int devices, double bandwidth = 1e9) { return {{devices, bandwidth}}; }

// The first stage of vgg16 has the data source in addition to the layers that the program counts.
INSTANTIATE_TEST_SUITE_P(
    Vgg16, PublicPlans,
    testing::Values(GoldenPlan{"vgg16", one(2), Rule::Charged, 0.411041792, {{11, 1}, {30, 1}}},
                    GoldenPlan{"vgg16", one(4), Rule::Charged, 0.205520896, {{18, 3}, {23, 1}}},
                    GoldenPlan{"vgg16", one(4), Rule::Free, 0.175732624, {{16, 3}, {25, 1}}},
                    GoldenPlan{"vgg16", one(4, 1e10), Rule::Charged, 0.1701790624, {{16, 3}, {25, 1}}},
                    GoldenPlan{"vgg16", one(4), Rule::Straight, 0.411041792},
                    GoldenPlan{"vgg16", one(8), Rule::Charged, 0.1038331702857, {{25, 7}, {16, 1}}},
                    GoldenPlan{"vgg16", one(8), Rule::Charged, 0.27402786133, {{6, 4}, {28, 3}, {7, 1}}, 8'000'000'000},
                    GoldenPlan{"vgg16", one(16, 1.25e9), Rule::Charged, 0.0547948908308},
                    GoldenPlan{"vgg16", k4x4, Rule::Charged, 0.0668887521333},
                    GoldenPlan{"vgg16", k8x2, Rule::Charged, 0.06576668672}));
INSTANTIATE_TEST_SUITE_P(
    Alexnet, PublicPlans,
    testing::Values(GoldenPlan{"alexnet", one(2), Rule::Charged, 0.066453504, {{7, 1}, {16, 1}}},
                    GoldenPlan{"alexnet", one(4), Rule::Charged, 0.0342171413333},
                    GoldenPlan{"alexnet", one(4, 1e10), Rule::Charged, 0.022186, {{7, 2}, {3, 1}, {13, 1}}},
                    GoldenPlan{"alexnet", one(8), Rule::Charged, 0.018874368},
                    GoldenPlan{"alexnet", one(16, 1.25e9), Rule::Charged, 0.0150994944},
                    GoldenPlan{"alexnet", k4x4, Rule::Charged, 0.0150994944},
                    GoldenPlan{"alexnet", k8x2, Rule::Charged, 0.0096825656}));
INSTANTIATE_TEST_SUITE_P(Resnet50, PublicPlans,
                         testing::Values(GoldenPlan{"resnet50", one(2), Rule::Charged, 0.285058},
                                         GoldenPlan{"resnet50", one(4), Rule::Charged, 0.162880924},
                                         GoldenPlan{"resnet50", one(4), Rule::Free, 0.111497},
                                         GoldenPlan{"resnet50", one(4, 1e10), Rule::Charged, 0.111497},
                                         GoldenPlan{"resnet50", one(4), Rule::Straight, 0.258149},
                                         GoldenPlan{"resnet50", one(8), Rule::Charged, 0.092012272},
                                         GoldenPlan{"resnet50", one(16, 1.25e9), Rule::Charged, 0.0438477900444},
                                         GoldenPlan{"resnet50", k4x4, Rule::Charged, 0.04320846920},
                                         GoldenPlan{"resnet50", k8x2, Rule::Charged, 0.03198874692}));
INSTANTIATE_TEST_SUITE_P(Images, PublicPlans,
                         testing::Values(GoldenPlan{"resnet18", one(4), Rule::Charged, 0.100004036, {{71, 4}}},
                                         GoldenPlan{"resnet101", one(4), Rule::Charged, 0.116555},
                                         GoldenPlan{"resnext50", one(4), Rule::Charged, 0.201406532},
                                         GoldenPlan{"squeezenet1_0", one(4), Rule::Charged, 0.074414},
                                         GoldenPlan{"densenet121", one(4), Rule::Charged, 0.089976}));
INSTANTIATE_TEST_SUITE_P(Translation, PublicPlans,
                         testing::Values(GoldenPlan{"gnmt", one(2), Rule::Charged, 0.045936},
                                         GoldenPlan{"gnmt", one(4), Rule::Charged, 0.025868},
                                         GoldenPlan{"gnmt", one(8), Rule::Charged, 0.019285},
                                         GoldenPlan{"gnmt", one(8), Rule::FreeStraight, 0.019032},
                                         GoldenPlan{"gnmt", one(16, 1.25e9), Rule::Charged, 0.017125},
                                         GoldenPlan{"gnmt", k4x4, Rule::Charged, 0.011081},
                                         GoldenPlan{"gnmt", k8x2, Rule::Charged, 0.008859966637},
                                         GoldenPlan{"gnmt_large", one(4), Rule::Charged, 0.137129},
                                         GoldenPlan{"gnmt_large", one(8), Rule::FreeStraight, 0.082845}));

// Inputs that PipeDream's program calls feasible, because its last stage needs no memory, or that crash it.
struct TooLittle {
    const char* model;
    int devices;
    Rule rule;
    Bytes memory;
    int stage;
    Bytes needs;  // 0: there is a partition, but not one stage of all devices
};
void PrintTo(const TooLittle& little, std::ostream* out) { *out << little.model << " in " << little.memory; }
class PublicMemory : public testing::TestWithParam<TooLittle> {};
TEST_P(PublicMemory, IsCountedForTheLastStageToo) {
    const auto& [model, devices, rule, memory, stage, needs] = GetParam();
    PIPEWRIGHT_NEED_DATA(path, fmt::format("pipedream-profiles/{}.graph.txt", model));
    const Partition plan = plan_pipedream(public_graph(path), options_of({model, one(devices), rule, 1, {}, memory}));
    EXPECT_EQ(plan.stages.empty(), needs > 0);
    EXPECT_EQ(plan.shortage.has_value(), needs > 0);
    for (const PlannedStage& planned : plan.stages)
        EXPECT_LE(planned.memory, memory);
    if (plan.shortage) {
        EXPECT_EQ(plan.shortage->stage, stage);
        EXPECT_EQ(plan.shortage->needs, needs);
        EXPECT_EQ(plan.shortage->has, memory);
    } else {
        EXPECT_GT(plan.stages.size(), 1u);
    }
}
INSTANTIATE_TEST_SUITE_P(Cases, PublicMemory,
                         testing::Values(TooLittle{"vgg16", 8, Rule::Charged, 2'000'000'000, 2, 4'318'005'248},
                                         TooLittle{"vgg16", 4, Rule::Straight, 4'000'000'000, 2, 6'166'660'352},
                                         TooLittle{"resnet50", 8, Rule::Charged, 8'000'000'000, 0, 0}));

// Parallel branches can be cut in too many ways: one order is tried, and the bound shows it.
TEST(PublicPlans, SayWhenTheyAreNotComplete) {
    PIPEWRIGHT_NEED_DATA(path, "pipedream-profiles/nasnetamobile.graph.txt");
    const Partition plan = plan_pipedream(public_graph(path), {one(4)});
    EXPECT_NEAR(plan.lower_bound, 0.584284 / 4, 1e-9);
    EXPECT_GT(plan.objective, plan.lower_bound);
    EXPECT_LT(plan.objective, 1.2 * plan.lower_bound);
}

// ---- all partitions of small chains ----

PipedreamGraph random_chain(std::mt19937& random, int layers) {
    PipedreamGraph chain{Digraph(static_cast<std::size_t>(layers)), {}};
    for (int layer = 0; layer < layers; ++layer) {
        chain.layers.push_back({1.0 + static_cast<double>(random() % 20), 1 + static_cast<Bytes>(random() % 16),
                                static_cast<Bytes>(random() % 10)});
        if (layer > 0)
            add_edge(static_cast<std::size_t>(layer) - 1, static_cast<std::size_t>(layer), chain.graph);
    }
    return chain;
}

// The best partition by trying all, from the definition.
class ByTrying {
public:
    ByTrying(const PipedreamGraph& chain, const PipedreamOptions& options) : chain_(chain), options_(options) {}

    double best() { return best(static_cast<int>(options_.levels.size()) - 1, 0, layers()); }

private:
    int layers() const { return static_cast<int>(chain_.layers.size()); }

    double best(int level, int from, int to) {
        const int devices = options_.levels[level].devices;
        double best_value = kNever;
        const std::function<void(int, int, double)> extend = [&](int start, int used, double value) {
            if (value >= best_value || used > devices)
                return;
            if (start == to) {
                if (used == devices)
                    best_value = value;
                return;
            }
            for (int end = start + 1; end <= to; ++end)
                for (int count = 1; count <= (options_.straight ? 1 : devices - used); ++count)
                    extend(end, used + count,
                           std::max(value, stage(level, start, end, count, used + count, start > from)));
        };
        extend(from, 0, 0);
        return best_value;
    }

    double stage(int level, int from, int to, int count, int used, bool transfers) {
        const auto& [devices, bandwidth] = options_.levels[level];
        double seconds = 0;
        Bytes weights = 0, outputs = 0;
        for (int layer = from; layer < to; ++layer) {
            seconds += chain_.layers[layer].seconds;
            weights += chain_.layers[layer].weights;
            outputs += chain_.layers[layer].output;
        }
        const int later = devices - used + (options_.count_own ? count : 0);
        if (options_.memory && std::max(1.0, std::ceil(1.0 * later / count)) * static_cast<double>(weights + outputs) >
                                   static_cast<double>(*options_.memory))
            return kNever;
        const int below = level > 0 ? options_.levels[level - 1].devices : 1;
        const double sum = 4.0 * (count - 1) * static_cast<double>(weights) / (count * bandwidth) / below;
        double value = ((level > 0 ? best(level - 1, from, to) : seconds) + sum) / count;
        if (transfers && options_.charge_transfers) {
            value = std::max(value, 2.0 * static_cast<double>(chain_.layers[from - 1].output) / (bandwidth * count));
            if (to < layers())
                value = std::max(value, 2.0 * static_cast<double>(chain_.layers[to - 1].output) / (bandwidth * count));
        }
        return value;
    }

    const PipedreamGraph& chain_;
    const PipedreamOptions& options_;
};

class SmallChains : public testing::TestWithParam<std::tuple<Levels, bool, bool, bool, bool>> {};
TEST_P(SmallChains, HaveNoBetterPartition) {
    std::mt19937 random(11);
    int fitting = 0, short_of_memory = 0;
    for (int round = 0; round < 60; ++round) {
        const PipedreamGraph chain = random_chain(random, 1 + static_cast<int>(random() % 6));
        PipedreamOptions options{std::get<0>(GetParam()), std::get<1>(GetParam()), std::get<2>(GetParam()), {}, false};
        options.count_own = std::get<4>(GetParam());
        if (std::get<3>(GetParam()))
            options.memory = 20 + static_cast<Bytes>(random() % 100);
        const double best = ByTrying(chain, options).best();
        try {
            const Partition plan = plan_pipedream(chain, options);
            ASSERT_EQ(plan.stages.empty(), best == kNever);
            if (best == kNever) {
                EXPECT_GT(plan.shortage.value().needs, *options.memory);
                ++short_of_memory;
                // and with what it needs there is one
                options.memory = plan.shortage->needs;
                EXPECT_FALSE(plan_pipedream(chain, options).stages.empty());
                continue;
            }
            ++fitting;
            EXPECT_NEAR(plan.objective, best, 1e-12 * best);
            expect_plan(chain, options, plan);
        } catch (const Error& error) {  // more straight stages than layers
            EXPECT_EQ(error.code(), ExitCode::Infeasible);
            EXPECT_TRUE(options.straight);
            EXPECT_EQ(best, kNever);
        }
    }
    EXPECT_GT(fitting, 0);
    if (std::get<3>(GetParam()) && !std::get<2>(GetParam())) {
        EXPECT_GT(short_of_memory, 0);
    }
}
INSTANTIATE_TEST_SUITE_P(Kinds, SmallChains,
                         testing::Combine(testing::Values(Levels{{1, 1}}, Levels{{2, 0.5}}, Levels{{4, 3}},
                                                          Levels{{2, 8}, {2, 1}}, Levels{{3, 5}, {2, 2}}),
                                          testing::Bool(), testing::Bool(), testing::Bool(), testing::Bool()));

// ---- ways to cut ----

Digraph graph_of(int layers, const std::vector<std::pair<int, int>>& edges) {
    return Digraph(edges.begin(), edges.end(), static_cast<std::size_t>(layers));
}

TEST(Downsets, OfAChainArePrefixes) {
    const Digraph chain = graph_of(4, {{0, 1}, {1, 2}, {2, 3}});
    EXPECT_EQ(downsets_from(chain, 0, 10), prefix_sets_of(chain));
}

TEST(Downsets, GrowWithEveryBranch) {
    for (int branches = 1; branches <= 10; ++branches) {
        std::vector<std::pair<int, int>> edges;
        for (int branch = 1; branch <= branches; ++branch) {
            edges.push_back({0, branch});
            edges.push_back({branch, branches + 1});
        }
        const std::size_t ways = (std::size_t{1} << branches) + 1;
        EXPECT_EQ(downsets_from(graph_of(branches + 2, edges), 0, ways).size(), ways);
        EXPECT_TRUE(downsets_from(graph_of(branches + 2, edges), 0, ways - 1).empty());
    }
}

TEST(Downsets, TakeAnotherSourceWithItsReader) {
    const std::vector<Downset> found = downsets_from(graph_of(4, {{0, 1}, {1, 3}, {2, 3}}), 0, 10);
    ASSERT_EQ(found.size(), 3u);
    EXPECT_EQ(found.back().count(), 4u);
    EXPECT_FALSE(found[1].test(2));
}

TEST(PipedreamGraph, KeepsDataSourcesWithTheirReaders) {
    PipedreamGraph graph{graph_of(4, {{0, 3}, {1, 2}, {2, 3}}), {{0, 0, 0, true}, {5, 1, 1}, {5, 1, 1}, {5, 1, 1}}};
    const Partition plan = plan_pipedream(graph, {{{3, 1e9}}, true, true});
    ASSERT_EQ(plan.stages.size(), 3u);
    EXPECT_EQ(plan.stages[2].layers, (std::vector<int>{0, 3}));
}

}  // namespace
}  // namespace pw

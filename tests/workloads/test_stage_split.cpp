// Stage splits: which are legal, which is the best, and which tensors cross the cuts.
#include "tests/support/refusal.h"
#include "workloads/error.h"
#include "workloads/models/resnet.h"
#include "workloads/stages/stage_split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

using namespace pw;

namespace {

using Cuts = std::vector<int>;
using Lists = std::vector<std::vector<std::string>>;

// `edges[layer]`: the layers it reads. One read makes a ReLU, two an add.
LayerGraph graph_of(const std::vector<std::vector<int>>& edges) {
    LayerGraph graph;
    for (std::size_t layer = 0; layer < edges.size(); ++layer)
        add_layer(graph,
                  {.name = std::string(1, static_cast<char>('a' + layer)),
                   .kind = edges[layer].size() == 2 ? LayerKind::Add : LayerKind::Relu,
                   .input = {1, 1, 1},
                   .output = {1, 1, 1}},
                  edges[layer]);
    return graph;
}

LayerGraph chain(int layers) {
    std::vector<std::vector<int>> edges(layers);
    for (int layer = 1; layer < layers; ++layer)
        edges[layer] = {layer - 1};
    return graph_of(edges);
}

void sum_by_layer(StageSplit& split) {
    split.reader_groups.resize(split.stage_of.size());
    std::iota(split.reader_groups.begin(), split.reader_groups.end(), 0);
}

Cuts cuts_of(const StageSplit& split) {
    Cuts cuts;
    for (int stage = 1; stage < split.stages(); ++stage)
        cuts.push_back(split.layers[stage].front());
    return cuts;
}

Ns bottleneck_of(const StageSplit& split, const std::vector<Ns>& time) {
    Ns most = 0;
    for (const auto& layers : split.layers)
        most = std::max(most, std::accumulate(layers.begin(), layers.end(), Ns{0},
                                              [&](Ns sum, int layer) { return sum + time[layer]; }));
    return most;
}

// The first of the best cuts, in lexicographic order, by trying all of them.
std::pair<Ns, Cuts> best_by_trying(const std::vector<Ns>& time, int stages) {
    const int layers = static_cast<int>(time.size());
    std::pair<Ns, Cuts> best{std::numeric_limits<Ns>::max(), {}};
    Cuts cuts;
    const std::function<void(int, Ns)> extend = [&](int start, Ns most) {
        if (static_cast<int>(cuts.size()) == stages - 1) {
            most = std::max(most, std::accumulate(time.begin() + start, time.end(), Ns{0}));
            if (most < best.first)
                best = {most, cuts};
            return;
        }
        Ns sum = 0;
        for (int cut = start + 1; cut < layers; ++cut) {
            sum += time[cut - 1];
            cuts.push_back(cut);
            extend(cut, std::max(most, sum));
            cuts.pop_back();
        }
    };
    extend(0, 0);
    return best;
}

void expect_partition(const LayerGraph& graph, const StageSplit& split) {
    std::vector<int> seen(num_vertices(graph), -1);
    for (int stage = 0; stage < split.stages(); ++stage) {
        EXPECT_FALSE(split.layers[stage].empty());
        EXPECT_TRUE(std::is_sorted(split.layers[stage].begin(), split.layers[stage].end()));
        for (const int layer : split.layers[stage]) {
            EXPECT_EQ(seen[layer], -1);
            seen[layer] = stage;
        }
    }
    EXPECT_EQ(seen, split.stage_of);
}

}  // namespace

TEST(SplitEven, DiffersByAtMostOneLayer) {
    for (int layers = 1; layers <= 12; ++layers)
        for (int stages = 1; stages <= layers; ++stages) {
            const LayerGraph graph = chain(layers);
            const StageSplit split = split_even(graph, stages);
            expect_partition(graph, split);
            ASSERT_EQ(split.stages(), stages);
            for (const auto& stage : split.layers) {
                EXPECT_GE(static_cast<int>(stage.size()), layers / stages);
                EXPECT_LE(static_cast<int>(stage.size()), (layers + stages - 1) / stages);
            }
        }
}

TEST(SplitEven, RefusesStagesWithoutLayers) {
    for (const int stages : {0, -1, 6})
        expect_says(refusal([&] { split_even(chain(5), stages); }), {"5 layers", "1 to 5"});
}

TEST(SplitAt, CutsBeforeTheNamedLayer) {
    const Model model = build_resnet50(64, 10);
    const StageSplit split = split_at(model.layers, {"layer2.0.conv2", "layer3", "layer4.1", "fc"});
    expect_partition(model.layers, split);
    std::vector<std::string> first;
    for (const auto& layers : split.layers)
        first.push_back(model.layers[layers.front()].name);
    EXPECT_EQ(first, (std::vector<std::string>{"conv1", "layer2.0.conv2", "layer3.0.conv1", "layer4.1.conv1", "fc"}));
}

TEST(SplitAt, WithoutCutsIsOneStage) {
    const StageSplit split = split_at(chain(4), {});
    EXPECT_EQ(split.layers, (std::vector<std::vector<int>>{{0, 1, 2, 3}}));
}

TEST(SplitAt, TakesWholePartsOfNamesOnly) {
    const Model model = build_resnet50(64, 10);
    EXPECT_THROW(split_at(model.layers, {"layer"}), Error);
    EXPECT_THROW(split_at(model.layers, {"layer3.0.conv"}), Error);
    EXPECT_THROW(split_at(model.layers, {""}), Error);
}

TEST(SplitAt, SaysWhatIsWrong) {
    const Model model = build_resnet50(64, 10);
    const auto message = [&](const std::vector<std::string>& cuts) {
        return refusal([&] { split_at(model.layers, cuts); });
    };
    expect_says(message({"layer2", "layr3"}),
                {"stage 2", "'layr3'", "did you mean 'layer3'?", "maxpool", "layer4, avgpool"});
    expect_says(message({"layer3.0", "layer3.0"}), {"stage 1 gets no layer", "'layer3.0'"});
    expect_says(message({"conv1"}), {"stage 0 gets no layer", "'conv1'"});
    expect_says(message({"layer3", "layer2"}), {"'layer2' comes before the cut 'layer3'"});
}

TEST(SplitByLists, TakesAnyTopologicalCut) {
    // a -> b -> c -> f(c, e), a -> d -> e: the two branches may be separated.
    const LayerGraph graph = graph_of({{}, {0}, {1}, {0}, {3}, {2, 4}});
    const StageSplit split = split_by_lists(graph, {{"a"}, {"e", "d"}, {"b", "c", "f"}});
    expect_partition(graph, split);
    EXPECT_EQ(split.layers, (std::vector<std::vector<int>>{{0}, {3, 4}, {1, 2, 5}}));
}

TEST(SplitByLists, SaysWhatIsWrong) {
    const LayerGraph graph = graph_of({{}, {0}, {1}, {0}, {3}, {2, 4}});
    const auto message = [&](const Lists& lists) { return refusal([&] { split_by_lists(graph, lists); }); };
    expect_says(message({{"a", "b"}, {"c", "zebra"}}), {"stage 1", "'zebra'", "a, b, c, d, e, f"});
    expect_says(message({{"a", "b"}, {"c", "b"}}), {"'b'", "stage 0", "stage 1"});
    expect_says(message({{"a", "b"}, {"c", "e", "f"}}), {"'d' is in no stage", "stage 0"});
    expect_says(message({{"a", "b", "f"}, {"c", "d", "e"}}), {"'f' of stage 0 reads 'c' of the later stage 1"});
    expect_says(message({}), {"'a' is in no stage"});
}

TEST(SplitBottleneck, IsTheFirstOfTheBest) {
    std::mt19937 random(7);
    for (int round = 0; round < 3000; ++round) {
        const int layers = 1 + static_cast<int>(random() % 9);
        const int stages = 1 + static_cast<int>(random() % layers);
        const int most = round % 3 == 0 ? 3 : 1000;  // small values: many ties and zeros
        std::vector<Ns> time(layers);
        for (Ns& layer : time)
            layer = random() % most;
        const LayerGraph graph = chain(layers);
        const StageSplit split = split_bottleneck(graph, stages, time);
        expect_partition(graph, split);
        const auto [bottleneck, cuts] = best_by_trying(time, stages);
        ASSERT_EQ(bottleneck_of(split, time), bottleneck) << testing::PrintToString(time) << " " << stages;
        ASSERT_EQ(cuts_of(split), cuts) << testing::PrintToString(time) << " " << stages;
    }
}

TEST(SplitBottleneck, IsBoundedByTheLongestLayerAndTheMean) {
    const Model model = build_resnet50(224, 1000);
    std::vector<Ns> time;
    for (std::size_t layer = 0; layer < num_vertices(model.layers); ++layer)
        time.push_back(static_cast<Ns>(model.layers[layer].flops_forward) + 1'000'000);
    const Ns total = std::accumulate(time.begin(), time.end(), Ns{0});
    Ns last = total + 1;
    for (int stages = 1; stages <= static_cast<int>(time.size()); ++stages) {
        const Ns bottleneck = bottleneck_of(split_bottleneck(model.layers, stages, time), time);
        EXPECT_GE(bottleneck, total / stages);
        EXPECT_LE(bottleneck, last);  // one more stage never hurts
        last = bottleneck;
    }
    EXPECT_EQ(last, *std::max_element(time.begin(), time.end()));
}

TEST(SplitBottleneck, HoldsForExtremeTimes) {
    const LayerGraph graph = chain(4);
    EXPECT_EQ(cuts_of(split_bottleneck(graph, 3, {0, 0, 0, 0})), (Cuts{1, 2}));
    const Ns huge = Ns{1} << 60;
    EXPECT_EQ(cuts_of(split_bottleneck(graph, 2, {huge, huge, huge, huge})), (Cuts{2}));
    EXPECT_EQ(cuts_of(split_bottleneck(graph, 1, {1, 2, 3, 4})), Cuts{});
    EXPECT_THROW(split_bottleneck(graph, 5, {1, 2, 3, 4}), Error);
}

TEST(Boundaries, OfAChainAreItsCuts) {
    const LayerGraph graph = chain(6);
    const auto boundaries = boundaries_of(graph, split_at(graph, {"c", "f"}));
    ASSERT_EQ(boundaries.size(), 2u);
    EXPECT_EQ(boundaries[0].from, 0);
    EXPECT_EQ(boundaries[0].to, 1);
    ASSERT_EQ(boundaries[0].tensors.size(), 1u);
    EXPECT_EQ(boundaries[0].tensors[0].layer, 1);
    EXPECT_EQ(boundaries[0].tensors[0].readers, (std::vector<int>{2}));
    EXPECT_TRUE(boundaries[0].tensors[0].gradients_summed);
    EXPECT_EQ(boundaries[1].tensors[0].layer, 4);
    EXPECT_TRUE(boundaries_of(graph, split_at(graph, {})).empty());
}

TEST(Boundaries, SkipStraightToEachReader) {
    // a feeds b, c and e; d adds b and c; f adds d and e.
    const LayerGraph graph = graph_of({{}, {0}, {0}, {1, 2}, {0}, {3, 4}});
    StageSplit split = split_by_lists(graph, {{"a"}, {"b", "c", "d"}, {"e"}, {"f"}});
    auto boundaries = boundaries_of(graph, split);
    std::vector<std::pair<int, int>> pairs;
    for (const Boundary& boundary : boundaries)
        pairs.emplace_back(boundary.from, boundary.to);
    EXPECT_EQ(pairs, (std::vector<std::pair<int, int>>{{0, 1}, {0, 2}, {1, 3}, {2, 3}}));
    EXPECT_EQ(boundaries[0].tensors[0].readers, (std::vector<int>{1, 2}));
    EXPECT_TRUE(boundaries[0].tensors[0].gradients_summed);
    EXPECT_TRUE(boundaries[1].tensors[0].gradients_summed);
    sum_by_layer(split);
    boundaries = boundaries_of(graph, split);
    EXPECT_FALSE(boundaries[0].tensors[0].gradients_summed);  // e's gradient comes first in the sum
    EXPECT_TRUE(boundaries[1].tensors[0].gradients_summed);
}

// The gradients of layers, summed in reverse layer order wherever they are.
TEST(Boundaries, OfGradientsByLayerSumOnlyAtTheEndOfTheReaders) {
    // a is read by b, c, d, e (a ReLU each); f to h join them.
    const LayerGraph graph = graph_of({{}, {0}, {0}, {0}, {0}, {1, 2}, {3, 4}, {5, 6}});
    const auto summed = [&](const Lists& lists, int to) {
        StageSplit split = split_by_lists(graph, lists);
        sum_by_layer(split);
        for (const Boundary& boundary : boundaries_of(graph, split))
            if (boundary.from == 0 && boundary.to == to)
                return boundary.tensors.at(0).gradients_summed;
        ADD_FAILURE() << "no boundary to " << to;
        return false;
    };
    EXPECT_TRUE(summed({{"a"}, {"b", "c", "d", "e", "f", "g", "h"}}, 1));
    EXPECT_TRUE(summed({{"a", "b"}, {"c", "d", "e", "f", "g", "h"}}, 1));   // an earlier reader elsewhere is fine
    EXPECT_FALSE(summed({{"a", "c"}, {"b", "d", "e", "f", "g", "h"}}, 1));  // c sits between b and d
    EXPECT_FALSE(summed({{"a", "e"}, {"b", "c", "d", "f", "g", "h"}}, 1));  // the maker's own stage counts
    EXPECT_FALSE(summed({{"a"}, {"b", "c", "f"}, {"d", "e", "g", "h"}}, 1));
    EXPECT_TRUE(summed({{"a"}, {"b", "c", "f"}, {"d", "e", "g", "h"}}, 2));
}

TEST(Boundaries, OfResNetCutInsideABlockCarryTheShortcut) {
    const Model model = build_resnet50(64, 10);
    const auto boundaries = boundaries_of(model.layers, split_at(model.layers, {"layer2.1.conv2", "layer2.2"}));
    ASSERT_EQ(boundaries.size(), 2u);
    ASSERT_EQ(boundaries[0].tensors.size(), 2u);  // the shortcut and the main branch
    EXPECT_EQ(model.layers[boundaries[0].tensors[0].layer].name, "layer2.0.add");
    EXPECT_EQ(model.layers[boundaries[0].tensors[1].layer].name, "layer2.1.bn1");
    EXPECT_TRUE(boundaries[0].tensors[0].gradients_summed);  // conv1, the other reader, is earlier
    EXPECT_EQ(boundaries[1].tensors.size(), 1u);
}

TEST(Boundaries, CarryEveryCrossingEdgeOnce) {
    std::mt19937 random(11);
    for (int round = 0; round < 300; ++round) {
        const int layers = 3 + static_cast<int>(random() % 8);
        std::vector<std::vector<int>> edges(layers);
        for (int layer = 1; layer < layers; ++layer)
            for (unsigned reads = 1 + random() % 2; reads > 0; --reads)
                edges[layer].push_back(static_cast<int>(random() % layer));
        const LayerGraph graph = graph_of(edges);
        const StageSplit split = split_even(graph, 1 + static_cast<int>(random() % layers));
        std::vector<std::pair<int, int>> crossing, carried;
        for (int layer = 0; layer < layers; ++layer)
            for (const int reader : readers_of_layer(graph, layer))
                if (split.stage_of[layer] != split.stage_of[reader])
                    crossing.emplace_back(layer, reader);
        const auto boundaries = boundaries_of(graph, split);
        for (std::size_t i = 0; i < boundaries.size(); ++i) {
            if (i > 0) {
                EXPECT_LT(std::pair(boundaries[i - 1].from, boundaries[i - 1].to),
                          std::pair(boundaries[i].from, boundaries[i].to));
            }
            for (const BoundaryTensor& tensor : boundaries[i].tensors)
                for (const int reader : tensor.readers) {
                    EXPECT_EQ(split.stage_of[tensor.layer], boundaries[i].from);
                    EXPECT_EQ(split.stage_of[reader], boundaries[i].to);
                    carried.emplace_back(tensor.layer, reader);
                }
        }
        std::sort(carried.begin(), carried.end());
        EXPECT_EQ(carried, crossing);
    }
}

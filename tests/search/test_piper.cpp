// Splits with replicas, tensor degrees and recomputed layers: published values, and every split tried on small
// instances.
#include "search/piper/piper.h"
#include "search/piper/recompute_choice.h"
#include "tests/support/dice.h"
#include "tests/support/public_data.h"
#include "tests/support/refusal.h"
#include "tests/support/small_stack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

using namespace pw;

namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

using Places = std::vector<int>;  // the stage of each layer

struct Sums {
    double time = 0, memory = 0;
};

// One stage by the formulas of piper.h, where `recomputed` says how each layer runs.
Sums sums_of(const PiperInstance& instance, const Places& places, const PlannedStage& stage, int number,
             int in_flight) {
    Sums sums;
    double border = 0, parameters = 0;
    const int replicas = stage.replicas;
    for (const int at : stage.layers) {
        const PiperLayer& layer = instance.layers[at];
        const bool recompute = std::count(stage.recomputed.begin(), stage.recomputed.end(), at) > 0;
        const auto& options = layer.options.at(stage.tensor_degree);
        const auto option = std::find_if(options.begin(), options.end(),
                                         [&](const PiperOption& other) { return other.recompute == recompute; });
        if (option == options.end())
            return {kNever, kNever};
        sums.time += option->time / replicas;
        sums.memory += option->memory_each * in_flight + option->memory;
        parameters += option->parameters;
        for (std::size_t i = 0; i < layer.in.size(); ++i)
            if (places[instance.edges[layer.in[i]].from] != number)
                border += 2 * (instance.edges[layer.in[i]].bytes + option->sync_in[i]);
        for (std::size_t i = 0; i < layer.out.size(); ++i)
            if (places[instance.edges[layer.out[i]].to] != number)
                border += 2 * (instance.edges[layer.out[i]].bytes + option->sync_out[i]);
    }
    const double share = 4.0 * (replicas - 1) / replicas / instance.microbatches;
    sums.time += (border / replicas + share * parameters) / instance.bandwidth;
    return sums;
}

std::vector<std::vector<int>> subsets_of(const std::vector<int>& layers) {
    std::vector<std::vector<int>> subsets{{}};
    for (const int layer : layers)
        for (std::size_t i = 0, count = subsets.size(); i < count; ++i) {
            subsets.push_back(subsets[i]);
            subsets.back().push_back(layer);
        }
    return subsets;
}

// The least time, and the least memory, of any split.
struct Least {
    double time = kNever, memory = kNever;
};

class EverySplit {
public:
    EverySplit(const PiperInstance& instance, bool data_parallel)
        : instance_(instance), most_replicas_(data_parallel ? instance.microbatches : 1) {}

    Least least() {
        places_.assign(instance_.layers.size(), 0);
        do {
            const int stages = 1 + *std::max_element(places_.begin(), places_.end());
            if (is_pipeline(stages))
                extend(stages - 1, 0, 0, {0, 0});
        } while (next_places());
        return least_;
    }

private:
    bool next_places() {
        for (int& place : places_) {
            if (++place < instance_.devices)
                return true;
            place = 0;
        }
        return false;
    }

    bool is_pipeline(int stages) const {
        for (int stage = 0; stage < stages; ++stage)
            if (std::count(places_.begin(), places_.end(), stage) == 0)
                return false;
        return std::all_of(instance_.edges.begin(), instance_.edges.end(),
                           [&](const PiperEdge& edge) { return places_[edge.from] <= places_[edge.to]; });
    }

    void extend(int number, int devices, int later_replicas, Least most) {
        if (number < 0) {
            least_.time = std::min(least_.time, most.time);
            least_.memory = std::min(least_.memory, most.memory);
            return;
        }
        for (int degree = 1; devices + degree <= instance_.devices; ++degree)
            for (int replicas = 1; replicas <= most_replicas_ && devices + degree * replicas <= instance_.devices &&
                                   later_replicas + replicas <= instance_.microbatches;
                 ++replicas)
                if (instance_.microbatches % replicas == 0 && has_degree(number, degree)) {
                    const int sum = later_replicas + replicas;
                    const Least stage = least_of_stage(number, degree, replicas, (sum + replicas - 1) / replicas);
                    extend(number - 1, devices + degree * replicas, sum,
                           {std::max(most.time, stage.time), std::max(most.memory, stage.memory)});
                }
    }

    bool has_degree(int number, int degree) const {
        for (std::size_t layer = 0; layer < places_.size(); ++layer)
            if (places_[layer] == number && !instance_.layers[layer].options.contains(degree))
                return false;
        return true;
    }

    Least least_of_stage(int number, int degree, int replicas, int in_flight) const {
        PlannedStage stage{.layers = {}, .replicas = replicas, .tensor_degree = degree};
        for (std::size_t layer = 0; layer < places_.size(); ++layer)
            if (places_[layer] == number)
                stage.layers.push_back(static_cast<int>(layer));
        Least least;
        for (const auto& recomputed : subsets_of(stage.layers)) {
            stage.recomputed = recomputed;
            const Sums sums = sums_of(instance_, places_, stage, number, in_flight);
            if (sums.memory <= instance_.memory)
                least.time = std::min(least.time, sums.time);
            least.memory = std::min(least.memory, sums.memory);
        }
        return least;
    }

    const PiperInstance& instance_;
    int most_replicas_;
    Places places_;
    Least least_;
};

PiperOption random_option(Dice& dice, const PiperLayer& layer, bool recompute) {
    PiperOption option{.recompute = recompute,
                       .time = 1.0 + dice.upto(20) + (recompute ? 5 : 0),
                       .parameters = 1.0 * dice.upto(30),
                       .memory_each = (recompute ? 0.125 : 1.0) * dice.upto(10),
                       .memory = 1.0 * dice.upto(8) + (recompute ? 2 : 0)};
    for (std::size_t i = 0; i < layer.in.size(); ++i)
        option.sync_in.push_back(dice.upto(3));
    for (std::size_t i = 0; i < layer.out.size(); ++i)
        option.sync_out.push_back(dice.upto(3));
    return option;
}

PiperInstance random_instance(unsigned seed) {
    Dice dice{std::mt19937(seed)};
    PiperInstance instance;
    instance.layers.resize(1 + dice.upto(4));
    const int layers = static_cast<int>(instance.layers.size());
    for (int from = 0; from < layers; ++from)
        for (int to = from + 1; to < layers; ++to)
            if (dice.one_in(2)) {
                instance.layers[from].out.push_back(static_cast<int>(instance.edges.size()));
                instance.layers[to].in.push_back(static_cast<int>(instance.edges.size()));
                instance.edges.push_back({from, to, 1.0 * dice.upto(6)});
            }
    const bool alike = dice.one_in(2);  // ways of one layer move the same bytes
    for (PiperLayer& layer : instance.layers)
        for (const int degree : {1, 2}) {
            if (degree == 2 && dice.one_in(3))
                continue;
            auto& options = layer.options[degree];
            options.push_back(random_option(dice, layer, false));
            options.push_back(random_option(dice, layer, true));
            if (alike) {
                options[1].parameters = options[0].parameters;
                options[1].sync_in = options[0].sync_in;
                options[1].sync_out = options[0].sync_out;
            }
        }
    instance.devices = 1 + dice.upto(3);
    instance.microbatches = 1 + dice.upto(5);
    instance.memory = dice.one_in(3) ? 1000 : 15 + dice.upto(30);
    instance.bandwidth = 1 + dice.upto(3);
    return instance;
}

// The facts of a partition, computed again by the formulas.
void expect_true(const PiperInstance& instance, const Partition& partition) {
    Places places(instance.layers.size(), -1);
    for (std::size_t stage = 0; stage < partition.stages.size(); ++stage)
        for (const int layer : partition.stages[stage].layers)
            places[layer] = static_cast<int>(stage);
    EXPECT_EQ(std::count(places.begin(), places.end(), -1), 0);
    for (const PiperEdge& edge : instance.edges)
        EXPECT_LE(places[edge.from], places[edge.to]);
    int devices = 0, replicas = 0;
    double most = 0;
    for (int stage = static_cast<int>(partition.stages.size()) - 1; stage >= 0; --stage) {
        const PlannedStage& planned = partition.stages[stage];
        devices += planned.replicas * planned.tensor_degree;
        replicas += planned.replicas;
        const Sums sums =
            sums_of(instance, places, planned, stage, (replicas + planned.replicas - 1) / planned.replicas);
        EXPECT_NEAR(planned.time, sums.time, 1e-9 * sums.time);
        EXPECT_EQ(static_cast<double>(planned.memory), std::ceil(sums.memory));
        EXPECT_LE(sums.memory, instance.memory * (1 + 1e-12));
        EXPECT_EQ(instance.microbatches % planned.replicas, 0);
        most = std::max(most, planned.time);
    }
    EXPECT_EQ(partition.objective, most);
    EXPECT_LE(devices, instance.devices);
    EXPECT_LE(replicas, instance.microbatches);
}

struct GoldenSplit {
    const char* file;
    int devices;
    double memory;  // GiB
    int microbatches;
    PiperChoices choices;
    double time;  // 0: does not fit
};

constexpr PiperChoices kAll{}, kNoData{true, false}, kNoTensor{false, true}, kPipeline{false, false};

constexpr GoldenSplit kGoldens[] = {
    {"bert32a100", 4, 80, 1920, kAll, 0.243558231},
    {"bert32a100", 8, 80, 1920, kAll, 0.122007269},
    {"bert32a100", 8, 80, 480, kNoTensor, 0.123205077},
    {"bert32a100", 8, 80, 480, kPipeline, 0.164515750},
    {"bert32a100", 2, 16, 1920, kPipeline, 0.631737750},
    {"bert32a100", 2, 16, 1920, kAll, 0.601744000},
    {"bert32a100", 4, 16, 1920, kPipeline, 0.295220750},
    {"bert32a100", 4, 16, 1920, kAll, 0.294407750},
    {"bert32a100", 8, 16, 1920, kAll, 0.147259747},
    {"bert32a100", 8, 8, 1920, kAll, 0.165855750},
    {"bert32a100", 8, 8, 480, kAll, 0.165855750},
    {"bert32a100", 8, 8, 1920, kPipeline, 0.165855750},
    {"bert32a100", 8, 8, 480, {false, true, false}, 0},
    {"bert32a100", 4, 8, 1920, kAll, 0},
    {"bert32a100", 8, 2, 1920, kAll, 0},
    {"bert32a100", 16, 2, 1920, kAll, 0},
    {"bert32a100", 16, 8, 1920, kAll, 0.082962217},
    {"bert32a100", 32, 8, 512, kAll, 0.041657111},
    {"bert32a100", 32, 8, 1920, kAll, 0.041515450},
    {"bert32a100", 64, 8, 1920, kAll, 0.020200550},
    {"bert32a100", 128, 8, 1920, kAll, 0.010120880},
    {"bert32a100", 256, 8, 1920, kAll, 0.005081045},
    {"resnet", 4, 16, 7680, kNoData, 118.325570313},
    {"resnet", 8, 8, 7680, kNoData, 64.060109375},
    {"resnet", 8, 8, 7680, kAll, 63.433536605},
    {"resnet", 8, 4, 7680, kAll, 73.493286000},
    {"resnet", 16, 2, 7680, kNoData, 76.521312500},
    {"resnet", 8, 2, 7680, kNoData, 0},
    {"gnmt", 2, 2.5, 256, kAll, 263.354289062},
};

class PublicSplits : public testing::TestWithParam<GoldenSplit> {};

TEST(Piper, TakesTensorDegreesOfAnySize) {
    constexpr int kDegree = 65'536;
    PiperInstance instance;
    instance.layers.resize(1);
    instance.layers[0].options[kDegree].push_back({.time = 1});
    instance.devices = kDegree;
    instance.memory = instance.microbatches = 1;
    const Partition partition = piper_partition(instance, {}, {});
    ASSERT_EQ(std::ssize(partition.stages), 1);
    EXPECT_EQ(partition.stages[0].tensor_degree, kDegree);
}

TEST(Piper, SearchesStagesOfAnyLength) {
    constexpr int kLayers = 1500;
    PiperInstance instance;
    instance.layers.resize(kLayers);
    for (PiperLayer& layer : instance.layers)
        layer.options[1].push_back({.time = 1});
    for (int layer = 0; layer + 1 < kLayers; ++layer) {
        instance.layers[layer].out = {layer};
        instance.layers[layer + 1].in = {layer};
        instance.layers[layer].options[1][0].sync_out = {0};
        instance.layers[layer + 1].options[1][0].sync_in = {0};
        instance.edges.push_back({layer, layer + 1, 0});
    }
    instance.devices = instance.microbatches = 2;
    instance.memory = 1;
    Partition partition;
    on_small_stack([&] { partition = piper_partition(instance, {}, {.downsets = 1}); });
    EXPECT_EQ(partition.objective, kLayers / 2);
}

}  // namespace

TEST(RecomputeChoice, EverySetOfSmallStagesIsBeaten) {
    Dice dice{std::mt19937(1)};
    for (int round = 0; round < 2000; ++round) {
        std::vector<Saving> savings;
        std::vector<int> numbers(1 + dice.upto(9));
        std::iota(numbers.begin(), numbers.end(), 0);
        double all = 0;
        for (const int number : numbers)
            all += savings.emplace_back(Saving{1.0 * dice.upto(9), 1.0 + dice.upto(9), number}).bytes;
        const double bytes = 1 + dice.upto(static_cast<int>(all) - 1);
        const auto cost_of = [&](const std::vector<int>& set) {
            double freed = 0, cost = 0;
            for (const int layer : set) {
                freed += savings[layer].bytes;
                cost += savings[layer].cost;
            }
            return freed >= bytes ? cost : kNever;
        };
        double least = kNever;
        for (const auto& set : subsets_of(numbers))
            least = std::min(least, cost_of(set));
        const RecomputeChoice choice(savings);
        EXPECT_EQ(choice.most_bytes(), all);
        EXPECT_EQ(cost_of(choice.cheapest(bytes)), least);
        EXPECT_GE(cost_of(choice.greedy(bytes)), least);
        EXPECT_LE(choice.fractional(bytes), least + 1e-9);
    }
}

TEST(RecomputeChoice, ManyEqualLayersTakeNoTime) {
    std::vector<Saving> savings;
    for (int layer = 0; layer < 400; ++layer)
        savings.push_back({layer % 2 ? 0.3 : 0.7, layer % 2 ? 3.0 : 8.0, layer});
    const auto chosen = RecomputeChoice(savings).cheapest(1001);
    double cost = 0;
    for (const int layer : chosen)
        cost += savings[layer].cost;
    EXPECT_NEAR(cost, 87.7, 1e-9);  // 124 times 8 bytes and three times 3
}

TEST(Piper, EverySplitOfSmallInstancesIsBeaten) {
    int infeasible = 0, recomputed = 0, replicated = 0;
    for (unsigned seed = 0; seed < 1500; ++seed) {
        const PiperInstance instance = random_instance(seed);
        const bool data_parallel = seed % 3 != 0;
        const Partition partition = piper_partition(instance, {true, data_parallel});
        const Least least = EverySplit(instance, data_parallel).least();
        EXPECT_EQ(least.time == kNever, partition.shortage.has_value()) << "seed " << seed;
        if (least.time == kNever) {
            ++infeasible;
            EXPECT_EQ(static_cast<double>(partition.shortage->needs), std::ceil(least.memory)) << "seed " << seed;
            continue;
        }
        EXPECT_NEAR(partition.objective, least.time, 1e-9) << "seed " << seed;
        EXPECT_EQ(partition.lower_bound, partition.objective) << "seed " << seed;
        expect_true(instance, partition);
        for (const PlannedStage& stage : partition.stages) {
            recomputed += stage.recomputed.empty() ? 0 : 1;
            replicated += stage.replicas > 1 ? 1 : 0;
        }
    }
    EXPECT_GT(infeasible, 20);
    EXPECT_GT(recomputed, 20);
    EXPECT_GT(replicated, 20);
}

TEST(Piper, ALimitLeavesAnAnswerAndALowerBound) {
    for (unsigned seed = 0; seed < 50; ++seed) {
        const PiperInstance instance = random_instance(seed);
        const Partition exact = piper_partition(instance);
        const Partition limited = piper_partition(instance, {}, {.seconds = 60, .downsets = 1});
        if (exact.shortage || limited.shortage)
            continue;
        EXPECT_GE(limited.objective, exact.objective);
        EXPECT_LE(limited.lower_bound, exact.objective);
        EXPECT_GT(limited.lower_bound, 0);
        expect_true(instance, limited);
    }
}

TEST(Piper, ALayerThatNothingRunsIsNamed) {
    PiperInstance instance;
    instance.layers.push_back({"head", {{2, {{.time = 1}}}}});
    expect_says(refusal([&] { piper_partition(instance); }), {"'head'", "no allowed way on 1 devices"});
}

TEST_P(PublicSplits, HaveTheirPublishedTime) {
    const GoldenSplit& golden = GetParam();
    PIPEWRIGHT_NEED_DATA(path, std::string("piper/") + golden.file + ".json");
    PiperInstance instance = read_piper_instance(path);
    instance.devices = golden.devices;
    instance.microbatches = golden.microbatches;
    instance.memory = golden.memory * kGiB;
    instance.bandwidth = 25 * kGiB;
    const Partition partition = piper_partition(instance, golden.choices);
    EXPECT_NEAR(partition.objective, golden.time, 0.5e-9 * (1 + 1e-3));
    EXPECT_EQ(partition.lower_bound, partition.objective);
    EXPECT_EQ(partition.shortage.has_value(), golden.time == 0);
    if (partition.shortage)
        EXPECT_GT(partition.shortage->needs, partition.shortage->has);
    else
        expect_true(instance, partition);
}
INSTANTIATE_TEST_SUITE_P(Goldens, PublicSplits, testing::ValuesIn(kGoldens));

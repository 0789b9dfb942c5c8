// The gradient of a tensor that several layers read: the gradients that each stage sends back, and the order of their
// sum.
#include "tests/support/thoroughness.h"
#include "workloads/models/models.h"
#include "workloads/stages/stage_layout.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace pw {
namespace {

struct Case {
    LayerGraph graph;
    StageSplit split;
    std::vector<LayerBytes> bytes;
};

// Random layers of all sorts, whose stages interleave in layer order.
Case random_case(std::mt19937& random) {
    const auto below = [&](int end) { return static_cast<int>(random() % static_cast<unsigned>(end)); };
    Case made;
    const int layers = 3 + below(12), stages = 1 + below(4), hub = below(4);
    std::vector<int> stage_of;
    for (int layer = 0; layer < layers; ++layer) {
        std::vector<int> inputs;
        for (int more = layer == 0 ? 0 : 1 + below(std::min(layer, 3)); more > 0; --more)
            inputs.push_back(below(2) == 0 && hub < layer ? hub : layer - 1 - below(std::min(layer, 2)));
        const bool adds = layer > 1 && below(2) == 0 && made.graph[layer - 1].kind == LayerKind::BatchNorm;
        if (adds)  // a norm and its add, which are run as one where nothing else reads the norm
            inputs = {layer - 1, below(layer - 1)};
        int stage = 0;
        for (const int input : inputs)
            stage = std::max(stage, stage_of[input]);
        stage_of.push_back(std::min(stages - 1, stage + (below(3) == 0 ? 1 + below(2) : 0)));
        LayerBytes bytes;
        bytes.output = 64 * (below(3) > 0 ? 1 : 1 + below(3));
        LayerKind kind = inputs.size() == 2 ? LayerKind::Concat : LayerKind::Profiled;
        if (inputs.size() == 1)
            kind = std::array{LayerKind::Convolution, LayerKind::BatchNorm,
                              LayerKind::Relu}[static_cast<std::size_t>(below(3))];
        if (inputs.size() == 2 && (adds || below(4) > 0) &&
            made.bytes[inputs[0]].output == made.bytes[inputs[1]].output)
            kind = LayerKind::Add;
        if (kind == LayerKind::Add || kind == LayerKind::BatchNorm)
            bytes.output = made.bytes[inputs[0]].output;
        bytes.joins = kind == LayerKind::Add || kind == LayerKind::BatchNorm;
        made.bytes.push_back(bytes);
        add_vertex(Layer{.name = fmt::format("l{}", layer), .kind = kind, .input = {}, .output = {}}, made.graph);
        for (std::size_t position = 0; position < inputs.size(); ++position)
            add_edge(inputs[position], layer, LayerInput{static_cast<int>(position)}, made.graph);
    }
    std::map<int, int> number;  // stages without layers are left out
    for (const int stage : stage_of)
        number[stage];
    int next = 0;
    for (auto& [stage, as] : number)
        as = next++;
    made.split.layers.resize(number.size());
    for (int layer = 0; layer < layers; ++layer) {
        made.split.stage_of.push_back(number[stage_of[layer]]);
        made.split.layers[made.split.stage_of[layer]].push_back(layer);
    }
    return made;
}

void by_layer(StageSplit& split) {
    split.reader_groups.resize(split.stage_of.size());
    std::iota(split.reader_groups.begin(), split.reader_groups.end(), 0);
}

// One stage of all layers, which sums as this split does.
StageSplit whole_of(const StageSplit& split) {
    StageSplit whole;
    whole.layers.resize(1);
    for (int layer = 0; layer < std::ssize(split.stage_of); ++layer) {
        whole.layers[0].push_back(layer);
        whole.stage_of.push_back(0);
        whole.reader_groups.push_back(split.group_of(layer));
    }
    return whole;
}

// Values as numbered terms: equal numbers mean equal bits, whatever the floating-point values are. Sums commute.
class Terms {
public:
    static constexpr int kGarbage = -1;
    int seed(int layer) { return number({"seed", layer, 0}); }
    int sum(int a, int b) { return number({"sum", std::min(a, b), std::max(a, b)}); }
    int made_by(int layer, int position, int gradient) {
        return number({fmt::format("{}.{}", layer, position), gradient, 0});
    }

private:
    using Term = std::tuple<std::string, int, int>;
    int number(const Term& term) { return numbers_.try_emplace(term, static_cast<int>(numbers_.size())).first->second; }
    std::map<Term, int> numbers_;
};

// An add gives both inputs the same.
int input_gradient(Terms& terms, const LayerGraph& graph, int layer, int position, int gradient) {
    return terms.made_by(layer, graph[layer].kind == LayerKind::Add ? 0 : position, gradient);
}

// The rule, by recursion: a group's gradients in reverse layer order, then the groups in descending order.
std::vector<int> expected_gradients(const Case& made, Terms& terms) {
    const int layers = static_cast<int>(made.split.stage_of.size());
    std::vector<int> gradients(static_cast<std::size_t>(layers));
    for (int layer = layers - 1; layer >= 0; --layer) {
        std::map<int, int, std::greater<>> groups;
        for (int reader = layers - 1; reader > layer; --reader) {
            const std::vector<int> inputs = inputs_of_layer(made.graph, reader);
            for (int position = static_cast<int>(inputs.size()) - 1; position >= 0; --position)
                if (inputs[position] == layer) {
                    const int term = input_gradient(terms, made.graph, reader, position, gradients[reader]);
                    const auto [group, is_new] = groups.try_emplace(made.split.group_of(reader), term);
                    if (!is_new)
                        group->second = terms.sum(group->second, term);
                }
        }
        int whole = groups.empty() ? terms.seed(layer) : groups.begin()->second;
        for (auto group = groups.begin(); group != groups.end(); ++group)
            if (group != groups.begin())
                whole = terms.sum(whole, group->second);
        gradients[layer] = whole;
    }
    return gradients;
}

// Runs the backward passes of all stages on terms, in memory where a write destroys what it overlaps.
class Interpreter {
public:
    Interpreter(const Case& made, const StageSplit& split, bool split_backward, Terms& terms)
        : made_(made), split_(split), split_backward_(split_backward), terms_(terms) {}

    // By layer: the gradient that its backward pass read, and in W once more.
    std::vector<int> run() {
        read_.assign(split_.stage_of.size(), Terms::kGarbage);
        for (int stage = split_.stages() - 1; stage >= 0; --stage) {
            const StageLayout layout = layout_stage(made_.graph, split_, stage, made_.bytes, 64);
            const PassLayout& pass = split_backward_ ? layout.backward_input : layout.backward;
            own_.clear();
            for (auto layer = layout.layers.rbegin(); layer != layout.layers.rend(); ++layer)
                step(*layer, layer == layout.layers.rbegin() ? -1 : *(layer - 1), pass);
            if (split_backward_) {
                std::erase_if(own_, [](const auto& place) { return place.first.first.first == Region::Workspace; });
                for (const int layer : layout.layers)
                    if (has_weight_pass(made_.graph[layer].kind) &&
                        pass.output_gradient[layer].region != Region::None) {
                        EXPECT_EQ(get(pass.output_gradient[layer]), read_[layer]) << "W of layer " << layer;
                    }
            }
        }
        return read_;
    }

private:
    using Room = std::pair<Region, int>;  // an edge's landing buffer is one room for both its ends
    struct Cell {
        Bytes bytes;
        int term;
    };
    static Room room_of(const Slot& slot) {
        const bool landing = slot.region == Region::Inbox || slot.region == Region::Outbox;
        return {landing ? Region::Inbox : slot.region, landing ? slot.edge : -1};
    }
    std::map<std::pair<Room, Bytes>, Cell>& cells_of(const Room& room) {
        return room.first == Region::Inbox ? landed_ : own_;
    }
    int get(const Slot& slot) {
        auto& cells = cells_of(room_of(slot));
        const auto found = cells.find({room_of(slot), slot.offset});
        return found == cells.end() ? Terms::kGarbage : found->second.term;
    }
    void put(const Slot& slot, Bytes bytes, int term) {
        const Room room = room_of(slot);
        auto& cells = cells_of(room);
        std::erase_if(cells, [&](const auto& cell) {
            const Bytes at = cell.first.second;
            return cell.first.first == room && at < slot.offset + bytes && slot.offset < at + cell.second.bytes;
        });
        cells[{room, slot.offset}] = {bytes, term};
    }
    void add(const Sum& sum) { put(sum.to, sum.bytes, terms_.sum(get(sum.to), get(sum.from))); }

    void layer_pass(int layer, const PassLayout& pass, int gradient) {
        read_[layer] = gradient;
        const std::vector<int> inputs = inputs_of_layer(made_.graph, layer);
        for (std::size_t position = 0; position < inputs.size(); ++position)
            put(pass.input_gradient[layer][position], made_.bytes[inputs[position]].output,
                input_gradient(terms_, made_.graph, layer, static_cast<int>(position), gradient));
    }

    // As StageProgram::backward does: an add that is run with a norm is run right before the norm's own pass.
    void step(int layer, int above, const PassLayout& pass) {
        std::vector<Sum> sums = pass.before[layer], left;
        if (pass.joined[layer] >= 0 && !sums.empty() && sums.back().to == pass.output_gradient[layer]) {
            left = {sums.back()};
            sums.pop_back();
        }
        for (const Sum& sum : sums)
            add(sum);
        if (pass.joined[layer] < 0) {
            if (above >= 0 && pass.joined[above] == layer) {
                for (const Sum& sum : left_)
                    add(sum);
                layer_pass(above, pass, get(pass.output_gradient[above]));
            }
            const Slot& own = pass.output_gradient[layer];
            layer_pass(layer, pass, own.region == Region::None ? terms_.seed(layer) : get(own));
        }
        left_ = left;
        for (const Sum& sum : pass.after[layer])
            add(sum);
    }

    const Case& made_;
    const StageSplit& split_;
    bool split_backward_;
    Terms& terms_;
    std::map<std::pair<Room, Bytes>, Cell> own_, landed_;
    std::vector<Sum> left_;
    std::vector<int> read_;
};

TEST(FanOuts, AreSummedByGroupInEveryStageAndInTheWhole) {
    std::mt19937 random(5);
    int several = 0;  // tensors with three readers or more in several stages
    for (int round = 0; round < rounds(1500); ++round) {
        Case made = random_case(random);
        if (round % 2 == 1)
            by_layer(made.split);
        for (int layer = 0; layer < std::ssize(made.bytes); ++layer) {
            const std::vector<int> readers = readers_of_layer(made.graph, layer);
            several +=
                readers.size() > 2 && made.split.stage_of[readers.front()] != made.split.stage_of[readers.back()];
        }
        Terms terms;
        const std::vector<int> expected = expected_gradients(made, terms);
        const StageSplit whole = whole_of(made.split);
        for (const bool split_backward : {false, true}) {
            ASSERT_EQ(Interpreter(made, made.split, split_backward, terms).run(), expected) << "round " << round;
            ASSERT_EQ(Interpreter(made, whole, split_backward, terms).run(), expected) << "whole, round " << round;
        }
    }
    EXPECT_GT(several, 150);
}

// By counting: a stage sends one gradient of every tensor of another stage that it reads, in however many layers.
TEST(FanOuts, SendOneGradientPerTensorAndReadingStage) {
    std::mt19937 random(6);
    for (int round = 0; round < 1000; ++round) {
        const Case made = random_case(random);
        std::map<std::pair<int, int>, Bytes> sent;
        for (int layer = 0; layer < std::ssize(made.bytes); ++layer) {
            std::vector<int> stages;
            for (const int reader : readers_of_layer(made.graph, layer))
                stages.push_back(made.split.stage_of[reader]);
            std::sort(stages.begin(), stages.end());
            stages.erase(std::unique(stages.begin(), stages.end()), stages.end());
            for (const int stage : stages)
                if (stage != made.split.stage_of[layer])
                    sent[{made.split.stage_of[layer], stage}] += made.bytes[layer].output;
        }
        const std::vector<EdgeBytes> edges = edge_bytes(made.graph, made.split, made.bytes);
        ASSERT_EQ(edges.size(), sent.size());
        for (const EdgeBytes& edge : edges) {
            const Bytes bytes = sent[std::pair(edge.from, edge.to)];
            EXPECT_EQ(edge.forward, bytes) << round;
            EXPECT_EQ(edge.backward, bytes) << round;
        }
    }
}

// If W reads the sum, its landing buffer is kept for it.
TEST(FanOuts, KeepTheLandedSumForTheWeightPass) {
    std::mt19937 random(7);
    for (int round = 0; round < 1000; ++round) {
        Case made = random_case(random);
        if (round % 2 == 1)
            by_layer(made.split);
        const std::vector<EdgeBytes> edges = edge_bytes(made.graph, made.split, made.bytes);
        std::vector<bool> kept(edges.size(), false);
        for (int stage = 0; stage < made.split.stages(); ++stage) {
            const StageLayout layout = layout_stage(made.graph, made.split, stage, made.bytes, 64);
            for (const int layer : layout.layers) {
                const Slot& gradient = layout.backward_input.output_gradient[layer];
                if (gradient.region == Region::Inbox && has_weight_pass(made.graph[layer].kind))
                    kept[static_cast<std::size_t>(gradient.edge)] = true;
            }
        }
        for (std::size_t edge = 0; edge < edges.size(); ++edge)
            EXPECT_EQ(edges[edge].backward_until_weight, kept[edge]) << round;
    }
}

// m is read by a and b of its own stage, by c and d of the next and by e, f and g of the last. The last stage adds f's
// and e's gradient to g's where they go out; the first adds b's and a's apart, and then to what came.
TEST(FanOuts, AddTheOwnStagesSumLast) {
    Case made;
    for (const char* name : {"m", "a", "b", "c", "d", "e", "f", "g"}) {
        const auto layer =
            add_vertex(Layer{.name = name, .kind = LayerKind::Profiled, .input = {}, .output = {}}, made.graph);
        if (layer > 0)
            add_edge(0, layer, LayerInput{0}, made.graph);
        made.bytes.push_back({.output = 64});
    }
    made.split.layers = {{0, 1, 2}, {3, 4}, {5, 6, 7}};
    made.split.stage_of = {0, 0, 0, 1, 1, 2, 2, 2};
    const PassLayout last = layout_stage(made.graph, made.split, 2, made.bytes, 64).backward;
    EXPECT_EQ(last.workspace, 64);
    EXPECT_EQ(last.after[6].size(), 1u);
    EXPECT_EQ(last.after[5].size(), 1u);
    const PassLayout first = layout_stage(made.graph, made.split, 0, made.bytes, 64).backward;
    EXPECT_EQ(first.workspace, 2 * 64);
    const Slot from_second{Region::Inbox, 0, 0}, from_last{Region::Inbox, 0, 1};
    EXPECT_EQ(first.output_gradient[0], from_last);
    ASSERT_EQ(first.before[2].size(), 1u);
    EXPECT_EQ(first.before[2][0].from, from_second);
    EXPECT_EQ(first.before[2][0].to, from_last);
    ASSERT_EQ(first.after[1].size(), 2u);
    EXPECT_EQ(first.after[1][0].from, first.input_gradient[1][0]);
    EXPECT_EQ(first.after[1][0].to, first.input_gradient[2][0]);
    EXPECT_EQ(first.after[1][1].from, first.input_gradient[2][0]);
    EXPECT_EQ(first.after[1][1].to, from_last);
    EXPECT_TRUE(first.after[2].empty());
}

// So their sums are the same for every split. A norm of llama is read by three projections.
TEST(FanOuts, OfBuiltInModelsHaveTwoReadersAtMostButOfLlamaThree) {
    ModelOptions options;
    options.image_size = 32;
    for (const BuiltInModel* row : built_in_models()) {
        if (row->build == nullptr)
            continue;
        const Model model = row->build(options, 3, LayerKind::CrossEntropy);
        for (int layer = 0; layer < static_cast<int>(num_vertices(model.layers)); ++layer)
            EXPECT_LE(out_degree(static_cast<std::size_t>(layer), model.layers), row->name == "llama" ? 3u : 2u)
                << row->name << " " << model.layers[static_cast<std::size_t>(layer)].name;
    }
}

}  // namespace
}  // namespace pw

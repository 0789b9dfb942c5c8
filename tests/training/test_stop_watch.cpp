// The times of a profile's calls without what the marks between them cost, on a device with a scripted clock.
#include "exec/measuring/stop_watch.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace pw {
namespace {

// A device with a queue whose marks are numbers, and whose times between marks are given.
class ScriptedKernels : public Kernels {
public:
    std::map<std::pair<Mark, Mark>, Ns> times;

    std::string_view name() const override { return "scripted"; }
    bool on_host() const override { return false; }
    std::unique_ptr<LayerKernel> make(const Layer&, int, bool) const override { return nullptr; }
    Bytes data_bytes(Dims, int) const override { return 0; }
    void load_data(const Dataset&, std::span<const Sample>, std::byte*) const override {}
    void fill(std::byte*, unsigned char, Bytes) const override {}
    void copy(const std::byte*, std::byte*, Bytes) const override {}
    void add(const std::byte*, std::byte*, Bytes) const override {}
    void sum(std::span<const std::byte* const>, Bytes, Bytes, std::byte*) const override {}
    void sum_of_squares(const std::byte*, Bytes, double*) const override {}
    void clip_factor(std::span<const double>, double, double*) const override {}
    void scale(const double*, std::byte*, Bytes) const override {}
    void update(const UpdateRule&, const std::byte*, const std::byte*, const OptimizerStates&, std::byte*,
                Bytes) const override {}
    void predict(const std::byte*, const std::byte*, double, std::byte*, Bytes) const override {}
    std::unique_ptr<Memory> reserve(Bytes, const std::string&) const override { return nullptr; }
    std::unique_ptr<Memory> shared(Bytes) const override { return nullptr; }
    std::string machine() const override { return name().data(); }
    bool has_neighbours() const override { return false; }
    Mark mark() const override { return marks_++; }
    Ns time_between(Mark from, Mark to) const override { return times.at({from, to}); }
    void finish() const override {}

private:
    mutable Mark marks_ = 0;
};

// A linear layer with a gated pair of gradients to add up after it.
LayerGraph small_graph() {
    LayerGraph graph;
    Layer linear;
    linear.name = "fc";
    linear.kind = LayerKind::Linear;
    linear.input = linear.output = {4, 1, 1};
    const int first = add_layer(graph, linear, {});
    Layer relu;
    relu.name = "relu";
    relu.kind = LayerKind::Relu;
    relu.input = relu.output = {4, 1, 1};
    const int second = add_layer(graph, relu, {first});
    Layer add;
    add.name = "add";
    add.kind = LayerKind::Add;
    add.input = add.output = {4, 1, 1};
    add_layer(graph, add, {first, second});
    return graph;
}

TEST(StopWatch, LeavesATenthOfEveryTime) {
    EXPECT_EQ(without_marks(1000, 400), 600);
    EXPECT_EQ(without_marks(1000, 900), 100);
    EXPECT_EQ(without_marks(1000, 2000), 100);
    EXPECT_EQ(without_marks(3, 9), 1);
    EXPECT_EQ(without_marks(0, 5), 0);
}

// Two marks alone take 2000 ns, and no kernel of the mini-batch takes more than 300 ns.
TEST(StopWatch, SaysNoLayerWithKernelsTakesNothing) {
    const LayerGraph graph = small_graph();
    ScriptedKernels kernels;
    StopWatch watch(kernels, graph);
    watch.set_cost_of_marks({2000, 0});
    std::byte gradient{};
    std::byte* const own[] = {&gradient};
    std::byte* const none[] = {nullptr};
    LayerArgs forward, input, unread, in_place;
    input.input_gradients = own;
    unread.input_gradients = none;
    in_place.input_gradients = own;
    in_place.output_gradient = &gradient;
    const auto call = [&](int layer, Pass pass, const LayerArgs& args, Ns time) {
        watch.before(layer, pass, args);
        watch.after(layer, pass, args);
        const auto last = static_cast<Mark>(2 * kernels.times.size() + 1);
        kernels.times[{last - 1, last}] = time;
    };
    watch.begin();
    call(0, Pass::Forward, forward, 2300);
    call(1, Pass::Forward, forward, 2050);
    call(2, Pass::Forward, forward, 2100);
    call(2, Pass::Input, in_place, 1990);  // an add without ReLU that passes its gradient on
    call(1, Pass::Input, input, 2080);
    call(0, Pass::Input, unread, 2020);  // the gradient of the data
    call(0, Pass::Weight, input, 2200);
    PassTimes times(3);
    const StopWatch::Calls calls = watch.collect(times);
    EXPECT_EQ(calls.number, 5);
    EXPECT_EQ(calls.time, 2300 + 2050 + 2100 + 2080 + 2200);
    const Ns whole = 300 + 60 + 90 + 70 + 210;  // without marks between the calls
    times.add_excess((calls.time - whole) / calls.number);
    const std::vector<LayerTimes> all = times.all_times();
    EXPECT_EQ(all[0].forward.median, 300);
    EXPECT_EQ(all[1].forward.median, 205);  // 50 without the marks, which is less than a tenth
    EXPECT_EQ(all[1].backward_input.median, 208);
    EXPECT_EQ(all[2].backward_input.median, 0);
    EXPECT_EQ(all[0].backward_input.median, 0);
    EXPECT_GT(all[0].backward_weight.median, 0);
    for (const int layer : {0, 1, 2})
        EXPECT_GT(all[layer].forward.median, 0) << layer;
}

// Four layers that add in 10 ns more, 30 less, 40 more and 10 more: 30 together, not 60.
TEST(PassTimes, NoiseOfLayersDoesNotLengthenAllAdditions) {
    PassTimes times(4);
    const std::vector<Ns> more = {10, -30, 40, 10};
    for (int layer = 0; layer < 4; ++layer) {
        times.add(layer, Pass::Weight, false, 100);
        times.add(layer, Pass::Weight, true, 100 + more[static_cast<std::size_t>(layer)]);
    }
    const std::vector<LayerTimes> all = times.all_times();
    EXPECT_EQ(all[0].accumulate.median, 5);
    EXPECT_EQ(all[1].accumulate.median, 0);
    EXPECT_EQ(all[2].accumulate.median, 20);
    EXPECT_EQ(all[3].accumulate.median, 5);

    PassTimes faster(2);
    for (const int layer : {0, 1}) {
        faster.add(layer, Pass::Weight, false, 100);
        faster.add(layer, Pass::Weight, true, layer == 0 ? 110 : 80);
    }
    EXPECT_EQ(faster.all_times()[0].accumulate.median, 0);
}

}  // namespace
}  // namespace pw

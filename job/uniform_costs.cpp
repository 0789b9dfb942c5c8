#include "job/build.h"
#include "workloads/costs/micro_batch_sizes.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pw {

namespace {

// Returns the costs of a micro-batch with this share of the samples: times and tensors scale with it.
Costs scaled(Costs costs, double share) {
    const auto scale = [&](std::int64_t& value) { value = std::llround(static_cast<double>(value) * share); };
    for (StageCost& cost : costs.stage)
        for (Ns* time : {&cost.forward, &cost.backward_input, &cost.backward_weight, &cost.backward, &cost.recompute})
            scale(*time);  // the time of a pair scales with its tasks
    for (EdgeBytes& edge : costs.edges) {
        scale(edge.forward);
        scale(edge.backward);
    }
    return costs;
}

// Returns the time of a stage as a multiple of the mean. A device does the work of `per_device` stages for a
// micro-batch.
double balance_of(const Setup& setup, int stage, int per_device) {
    const double imbalance = setup.workload.uniform.imbalance;
    const int others = setup.pipeline.stages - 1;
    const double more = imbalance * per_device;
    if (imbalance == 0 || others == 0)
        return 1;
    if (more > others)
        setup.fail_at("workload.imbalance",
                      fmt::format("'workload.imbalance' is {}: the last of {} stages would take {} times the mean, "
                                  "which is more than all of them take together",
                                  imbalance, others + 1, 1 + more),
                      fmt::format("it is at most {:.3g} here, or write a list of times, one for each stage",
                                  static_cast<double>(others) / per_device));
    return stage == others ? 1 + more : 1 - more / others;
}

}  // namespace

namespace {

// Takes the passes and tensors from a stage that its frozen weights leave out. A stage that runs forwards only keeps
// nothing for a backward.
void freeze(StageCost& cost, StageBytes& bytes, bool forwards_only) {
    cost.backward_weight = 0;
    if (forwards_only)
        cost.backward_input = 0;
    cost.backward = cost.backward_input;
    cost.pair.reset();  // was measured with gradients of weights
    bytes.frozen = std::exchange(bytes.weights, 0);
    bytes.until_input = forwards_only ? 0 : bytes.until_input + bytes.until_weight;
    bytes.until_weight = bytes.gradient_kept = 0;
}

}  // namespace

std::vector<int> forwards_only_of_uniform(const Setup& setup) {
    const std::vector<int>& frozen = setup.workload.uniform.frozen;
    if (std::ssize(frozen) == setup.pipeline.stages)
        setup.fail_at("workload.frozen", "all stages are frozen: nothing is trained", "leave a stage out");
    std::vector<int> stages;
    for (const int stage : frozen)
        if (stage == std::ssize(stages))
            stages.push_back(stage);
    return stages;
}

Costs uniform_costs(const Setup& setup, int per_device, const std::optional<std::vector<Edge>>& edges) {
    const UniformWorkload& uniform = setup.workload.uniform;
    Costs costs;
    costs.dispatch = setup.cluster.dispatch.value_or(0);
    const int stages = setup.pipeline.stages;
    const std::vector<int>& frozen = uniform.frozen;
    const auto forwards_only = std::ssize(forwards_only_of_uniform(setup));
    for (std::size_t stage = 0; stage < static_cast<std::size_t>(stages); ++stage) {
        StageCost& cost = costs.stage.emplace_back();
        cost.forward = uniform.forward[stage];
        cost.backward_input = uniform.backward_input[stage];
        cost.backward_weight = uniform.backward_weight[stage];
        const auto balance = [&](Ns time) {
            return std::llround(static_cast<double>(time) * balance_of(setup, static_cast<int>(stage), per_device));
        };
        for (Ns* time : {&cost.forward, &cost.backward_input, &cost.backward_weight})
            *time = balance(*time);
        if (!uniform.pair.empty())
            cost.pair = balance(uniform.pair[stage]);
        cost.backward = cost.backward_input + cost.backward_weight;
        cost.recompute = cost.forward;

        StageBytes& bytes = costs.bytes.emplace_back();
        bytes.weights = kept_weights(uniform.weights[stage], setup);
        const Bytes saved = uniform.activation[stage], until_weight = uniform.activation_until_weight[stage];
        bytes.until_weight = std::min(saved, until_weight);
        bytes.until_input = saved - bytes.until_weight;
        bytes.gradient_kept = until_weight - bytes.until_weight;
        if (const auto number = static_cast<int>(stage); std::ranges::binary_search(frozen, number))
            freeze(cost, bytes, number < forwards_only);
    }
    const auto add_edge = [&](int from, int to) {  // a gradient is as large as its tensor
        const Bytes output = uniform.output[static_cast<std::size_t>(from)];
        costs.edges.push_back({from, to, output, from < forwards_only ? 0 : output});
    };
    for (int stage = 0; !edges && stage + 1 < stages; ++stage)
        add_edge(stage, stage + 1);
    for (const Edge& edge : edges.value_or(std::vector<Edge>{}))
        add_edge(edge.from, edge.to);
    costs.lengths = setup.pipeline.micro_batch_lengths;
    if (const MicroBatchSizes sizes = sizes_of(setup.pipeline); !sizes.is_even())
        add_last(costs, scaled(costs, static_cast<double>(sizes.last()) / sizes.full));
    return costs;
}

void sum_on_the_way(Costs& costs, const Shape& shape) {
    const auto parts = std::ssize(shape.joined);
    if (parts == 0)
        return;
    for (EdgeBytes& edge : costs.edges) {
        if (edge.from < parts)
            edge.forward = (edge.forward + parts - 1) / parts;
        if (shape.is_joined(edge.to)) {
            edge.backward = (edge.backward + parts - 1) / parts;
            edge.forward_until_weight = true;
        }
    }
}

}  // namespace pw

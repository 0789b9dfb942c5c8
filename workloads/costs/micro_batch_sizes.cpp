#include "workloads/costs/micro_batch_sizes.h"

#include <fmt/format.h>

#include <algorithm>

namespace pw {

namespace {

// A smaller micro-batch seldom needs more, but kernels choose their scratch memory by size.
StageBytes larger_of(const StageBytes& a, const StageBytes& b) {
    return {.weights = std::max(a.weights, b.weights),
            .statistics = std::max(a.statistics, b.statistics),
            .data = std::max(a.data, b.data),
            .until_input = std::max(a.until_input, b.until_input),
            .until_weight = std::max(a.until_weight, b.until_weight),
            .gradient_kept = std::max(a.gradient_kept, b.gradient_kept),
            .first_until_again = std::max(a.first_until_again, b.first_until_again),
            .first_until_input = std::max(a.first_until_input, b.first_until_input),
            .first_until_weight = std::max(a.first_until_weight, b.first_until_weight),
            .forward_workspace = std::max(a.forward_workspace, b.forward_workspace),
            .backward_workspace = std::max(a.backward_workspace, b.backward_workspace),
            .input_workspace = std::max(a.input_workspace, b.input_workspace),
            .weight_workspace = std::max(a.weight_workspace, b.weight_workspace),
            .recompute_workspace = std::max(a.recompute_workspace, b.recompute_workspace),
            .slice_gradients = std::max(a.slice_gradients, b.slice_gradients)};
}

}  // namespace

std::vector<int> MicroBatchSizes::different() const {
    return is_even() ? std::vector<int>{full} : std::vector<int>{last(), full};
}

std::string print(const MicroBatchSizes& sizes) {
    const int count = sizes.per_mini_batch;
    const std::string all = fmt::format("{} micro-batch{} of {}", count, count == 1 ? "" : "es", sizes.full);
    return sizes.is_even() ? all : fmt::format("{}, the last of {}", all, sizes.last());
}

void add_last(Costs& costs, const Costs& last) {
    const auto add = [](MakeCosts& times, const MakeCosts& of_last) {
        times.last = of_last.stage;
        times.busy_last = of_last.busy;
    };
    add(costs, last);
    for (std::size_t make = 0; make < costs.of_makes.size(); ++make)
        add(costs.of_makes[make], last.of_makes[make]);
    costs.last_edges = last.edges;
    costs.interpolated = costs.interpolated || last.interpolated;
    for (std::size_t stage = 0; stage < costs.bytes.size(); ++stage)
        costs.bytes[stage] = larger_of(costs.bytes[stage], last.bytes[stage]);
}

Costs costs_of(const Model& model, const StageSplit& split, const Profile& profile, const MicroBatchSizes& sizes) {
    Costs costs = costs_of(model, split, profile, sizes.full);
    if (!sizes.is_even())
        add_last(costs, costs_of(model, split, profile, sizes.last()));
    return costs;
}

}  // namespace pw

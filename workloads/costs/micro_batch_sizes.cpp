#include "workloads/costs/micro_batch_sizes.h"

#include <fmt/format.h>

#include <algorithm>

namespace pw {

namespace {

// A smaller micro-batch seldom needs more, but kernels choose their scratch memory by size.
StageBytes larger_of(StageBytes bytes, const StageBytes& other) {
    for (Bytes StageBytes::*const size : kStageSizes)
        bytes.*size = std::max(bytes.*size, other.*size);
    return bytes;
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

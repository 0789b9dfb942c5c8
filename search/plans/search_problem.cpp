#include "search/plans/search_problem.h"

#include "job/job.h"
#include "job/plan.h"
#include "job/settings.h"
#include "search/plans/cheapest_layers.h"
#include "workloads/error.h"
#include "workloads/models/recomputed_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

namespace pw {

namespace {

// Times of any size would make the largest micro-batches the best.
[[noreturn]] void refuse_several_sizes(const SearchSetup& setup, int one, int other) {
    setup.fail_at(
        "search.micro_batch_sizes",
        fmt::format("'{}' does not say how many samples its times are for, and the search tries micro-batches of {} "
                    "and {}",
                    setup.workload.model, std::min(one, other), std::max(one, other)),
        "write samples: N into a layer graph, or times by samples, as in forward: {1: 2 ms, 4: 7 ms}; or "
        "search.profile_batch: N, the samples that the times are for");
}

void check_recomputed_layers(const SearchSetup& setup, Model model) {
    for (const std::vector<std::string>& layers : setup.search.recompute_layers)
        try {
            set_recomputed(model.layers, layers);
        } catch (const Error& error) {
            fail_at(setup, "search.recompute_layers", error,
                    "name layers or their blocks, as in layer3.0.conv2 or layer3; '*' matches any characters");
        }
}

}  // namespace

SearchProblem problem_of(const SearchSetup& setup, const Model& model) {
    const auto first = std::make_shared<int>(0);  // size that was asked for
    const auto profile_at = [setup, model, first](int samples) {
        Setup sized = setup;
        sized.pipeline.micro_batch_size = samples;
        sized.pipeline.micro_batches = static_cast<int>(setup.search.mini_batch / samples);
        sized.pipeline.mini_batch = std::int64_t{sized.pipeline.micro_batches} * samples;
        Profile profile = profile_of(sized, model);
        check_precision(setup, profile);
        *first = *first == 0 ? samples : *first;
        if (profile.any_size && samples != *first)
            refuse_several_sizes(setup, *first, samples);
        return profile;
    };
    check_recomputed_layers(setup, model);
    Link measured;
    if (searches_offload(setup) && !setup.cluster.host_link) {
        const std::vector<int>& sizes = setup.search.micro_batch_sizes;
        measured = profile_at(sizes.empty() ? setup.pipeline.micro_batch_size : sizes.front()).host_link;
    }
    check_searched_offload(setup, measured);
    SearchProblem problem{setup, model, profile_at, executed_mode(setup)};
    if (setup.search.cheapest_layers && setup.search.recompute != SearchConfig::Recompute::None) {
        const std::vector<int>& sizes = setup.search.micro_batch_sizes;
        const int size = sizes.empty() ? setup.pipeline.micro_batch_size : sizes.front();
        Model whole = model;
        set_recomputed(whole.layers, {});
        problem.setup.search.recompute_layers = cheapest_layers(whole.layers, CostTable(whole, profile_at(size), size));
    }
    return problem;
}

}  // namespace pw

#include "search/plans/search_problem.h"

#include "job/job.h"
#include "job/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

namespace pw {

namespace {

// Times of any size would make the largest micro-batches the best ones.
[[noreturn]] void refuse_several_sizes(const Config& config, int one, int other) {
    config.fail_at(
        "search.micro_batch_sizes",
        fmt::format("'{}' does not say how many samples its times are for, and the search tries micro-batches of {} "
                    "and {}",
                    config.workload.model, std::min(one, other), std::max(one, other)),
        "write samples: N into a layer graph, or times by samples, as in forward: {1: 2 ms, 4: 7 ms}; or "
        "search.profile_batch: N, the samples that the times are for");
}

}  // namespace

SearchProblem problem_of(const Config& config, const Model& model) {
    const auto first = std::make_shared<int>(0);  // size that was asked for
    const auto profile_at = [config, model, first](int samples) {
        Config sized = config;
        sized.pipeline.micro_batch_size = samples;
        sized.pipeline.micro_batches = static_cast<int>(config.search.mini_batch / samples);
        sized.pipeline.mini_batch = std::int64_t{sized.pipeline.micro_batches} * samples;
        Profile profile = profile_of(sized, model);
        check_precision(config, profile);
        *first = *first == 0 ? samples : *first;
        if (profile.any_size && samples != *first)
            refuse_several_sizes(config, *first, samples);
        return profile;
    };
    return {config, model, profile_at, executed_mode(config)};
}

}  // namespace pw

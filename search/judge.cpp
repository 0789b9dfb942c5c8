#include "search/judge.h"

#include "schedules/buffers.h"
#include "schedules/durations.h"
#include "schedules/versions.h"
#include "workloads/error.h"

#include <algorithm>

namespace pw {

namespace {

std::vector<Edge> chain_of(int stages) {
    std::vector<Edge> edges;
    for (int stage = 0; stage + 1 < stages; ++stage)
        edges.push_back({stage, stage + 1});
    return edges;
}

}  // namespace

Judge::Judge(const SearchProblem& problem, const PlanChoice& choice, const Profile& profile, const CostTable& costs)
    : problem_(problem),
      profile_(profile),
      costs_(costs),
      config_(config_of(problem.config, choice)),
      mode_(problem.mode),
      chain_(make_plan(config_, {chain_of(choice.stages), {}}, config_.training.steps)) {
    Costs any;
    any.sent_copies = profile.sent_copies;
    mode_.sent_copies = keeps_copies(any, mode_.early_receive);
}

Judge::Candidate* Judge::candidate_for(const StageSplit& split) {
    const StageLinks links = links_of(problem_.model.layers, split);
    const auto [found, is_new] = candidates_.try_emplace(links);
    if (is_new)
        try {
            found->second = std::make_unique<Candidate>(make_plan(config_, links, config_.training.steps), mode_);
        } catch (const Error&) {  // the schedule refuses these edges: no candidate
        }
    return found->second.get();
}

std::optional<Ns> Judge::step_time(const StageSplit& split) {
    Candidate* candidate = candidate_for(split);
    if (candidate == nullptr)
        return std::nullopt;
    Costs costs = costs_.times_of(split);
    add_cluster(costs, config_, profile_);
    add_gradient_sums(costs, candidate->plan.shape, ties_of(problem_.model.layers, split));
    return candidate->simulator.step_time(costs);
}

std::vector<Bytes> Judge::peaks(const StageSplit& split) {
    std::vector<Bytes> peaks;
    if (const Candidate* candidate = candidate_for(split)) {
        const Costs costs = costs_.costs_of(split);
        const auto buffers = buffers_of(candidate->plan, costs, versions_of(candidate->plan), mode_.early_receive);
        for (const std::vector<MemoryUse>& device : memory_of(candidate->plan, buffers))
            peaks.push_back(total(peak_of(device)));
    }
    return peaks;
}

Bytes Judge::shortage(const std::vector<Bytes>& peaks) const {
    Bytes most = 0;
    for (std::size_t device = 0; device < peaks.size(); ++device)
        if (const Bytes has = config_.cluster.devices[device].memory; peaks[device] > has)
            most = std::max(most, peaks[device] - has);
    return most;
}

}  // namespace pw

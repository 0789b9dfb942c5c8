#include "search/plans/judge.h"

#include "job/build.h"
#include "job/job.h"
#include "job/plan.h"
#include "schedules/memory/buffers.h"
#include "schedules/plan/durations.h"
#include "schedules/plan/versions.h"
#include "sim/metrics.h"
#include "workloads/error.h"

#include <algorithm>
#include <utility>

namespace pw {

namespace {

constexpr std::int64_t kMostKeptTasks = 500'000;  // about a kilobyte each

std::vector<Edge> chain_of(int stages) {
    std::vector<Edge> edges;
    for (int stage = 0; stage + 1 < stages; ++stage)
        edges.push_back({stage, stage + 1});
    return edges;
}

}  // namespace

Judge::Judge(const SearchProblem& problem, const PlanChoice& choice, const Profile& profile, const CostTable& costs)
    : problem_(problem),
      costs_(costs),
      config_(config_of(problem.config, choice)),
      cluster_(cluster_of(config_, profile)),
      mode_(problem.mode),
      chain_(make_plan(config_, {chain_of(choice.stages), {}}, config_.training.steps)) {
    Costs any;  // with the plan's rule about copies
    any.sent_copies = profile.sent_copies;
    add_settings(any, config_);
    mode_.sent_copies = keeps_copies(any, mode_.early_receive());
    for (const DeviceConfig& device : config_.cluster.devices)
        memory_.push_back(device.memory);
}

Judge::Candidate* Judge::candidate_for(const StageSplit& split) {
    const StageLinks links = links_of(problem_.model.layers, split);
    if (const auto known = candidates_.find(links); known != candidates_.end())
        return known->second.get();
    if (kept_tasks_ > kMostKeptTasks) {
        candidates_.clear();
        kept_tasks_ = 0;
    }
    std::unique_ptr<Candidate>& candidate = candidates_[links];
    try {
        ProvenPlan proven = proven_plan(config_, links, config_.training.steps);
        const auto plan = std::make_shared<const Plan>(std::move(proven.plan));
        const auto versions = std::make_shared<const VersionTable>(versions_of(*plan));
        candidate.reset(new Candidate{plan, proven.proof, versions, Simulator(plan, proven.proof, versions, mode_)});
        for (const std::vector<Task>& order : plan->order)
            kept_tasks_ += std::ssize(order);
    } catch (const Error&) {  // the schedule refuses these edges: no candidate
    }
    return candidate.get();
}

Costs Judge::executed(Costs of_stages, const StageSplit& split, const Plan& plan) const {
    return complete_costs(std::move(of_stages), config_, cluster_, problem_.model.layers, split, plan.shape);
}

std::optional<Ns> Judge::step_time(const StageSplit& split) {
    Candidate* candidate = candidate_for(split);
    if (candidate == nullptr)
        return std::nullopt;
    return candidate->simulator.step_time(executed(costs_.times_of(split), split, *candidate->plan));
}

std::optional<double> Judge::bubble_rate(const StageSplit& split) {
    Candidate* candidate = candidate_for(split);
    if (candidate == nullptr)
        return std::nullopt;
    const Costs costs = costs_.costs_of(split);
    return candidate->simulator.metrics(executed(costs, split, *candidate->plan), without_hash(*candidate->plan))
        .bubble_rate;
}

std::vector<Bytes> Judge::reserved(const StageSplit& split) { return reserved(split, {}); }

std::vector<Bytes> Judge::reserved(const StageSplit& split, std::span<const Bytes> enough) {
    const Candidate* candidate = candidate_for(split);
    if (candidate == nullptr)
        return {};
    const Costs costs = executed(costs_.costs_of(split), split, *candidate->plan);
    const std::vector<Buffer> buffers =
        buffers_of(*candidate->plan, *candidate->proof, costs, *candidate->versions, mode_.early_receive());
    return pack(buffers, candidate->plan->shape.devices, enough).arena;
}

std::optional<Shortage> Judge::shortage(const std::vector<Bytes>& reserved) const {
    std::optional<Shortage> worst;
    for (std::size_t device = 0; device < reserved.size(); ++device) {
        const Bytes needs = reserved[device], has = memory_[device];
        if (needs > has && (!worst || needs - has > worst->needs - worst->has))
            worst = {chain_.shape.stages_of(static_cast<int>(device)).front(), needs, has};
    }
    return worst;
}

std::optional<Shortage> Judge::shortage(const StageSplit& split) { return shortage(reserved(split, memory_)); }

}  // namespace pw

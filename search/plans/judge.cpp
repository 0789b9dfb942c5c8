#include "search/plans/judge.h"

#include "job/build.h"
#include "job/job.h"
#include "job/plan.h"
#include "job/slices.h"
#include "schedules/memory/buffers.h"
#include "schedules/plan/versions.h"
#include "search/plans/any_order.h"
#include "sim/metrics.h"
#include "workloads/error.h"
#include "workloads/interruption.h"
#include "workloads/models/frozen_layers.h"

#include <algorithm>
#include <utility>

namespace pw {

namespace {

constexpr std::int64_t kMostKeptTasks = 500'000;  // about a kilobyte each

Plan plan_of_chain(const Setup& setup, const LayerGraph& layers) {
    StageLinks chain{.edges = std::vector<Edge>{}, .ties = {}};
    chain.has_frozen = has_frozen_layers(layers);
    for (int stage = 0; stage + 1 < setup.pipeline.stages; ++stage)
        chain.edges->push_back({stage, stage + 1});
    return schedule_of(setup).needs_costs ? plan_of_any_order(setup, chain)
                                          : make_plan(setup, chain, setup.training.steps);
}

}  // namespace

Judge::Judge(const SearchProblem& problem, const PlanChoice& choice, const Profile& profile, const CostTable& costs)
    : problem_(problem),
      costs_(costs),
      setup_(setup_of(problem.setup, choice)),
      cluster_(cluster_of(setup_, profile)),
      mode_(problem.mode),
      chain_(plan_of_chain(setup_, problem.model.layers)),
      orders_by_costs_(schedule_of(setup_).needs_costs || setup_.pipeline.recompute.ahead == Recomputation::kByCosts) {
    check_slices(setup_, &problem.model);
    Costs any;  // with the plan's rule about copies
    any.sent_copies = profile.sent_copies;
    add_settings(any, setup_);
    mode_.sent_copies = keeps_copies(any, mode_.early_receive());
    for (const DeviceConfig& device : setup_.cluster.devices)
        memory_.push_back(device.memory);
}

// Returns null if the schedule refuses these edges.
std::unique_ptr<Judge::Candidate> Judge::candidate_of(const StageLinks& links, const CostsOfShape& costs_of) const {
    try {
        ProvenPlan proven = proven_plan(setup_, links, setup_.training.steps, costs_of);
        Interruption::point();
        const auto plan = std::make_shared<const Plan>(std::move(proven.plan));
        const auto versions = std::make_shared<const VersionTable>(versions_of(*plan));
        return std::unique_ptr<Candidate>(
            new Candidate{plan, proven.proof, versions, Simulator(plan, proven.proof, versions, mode_)});
    } catch (const Error&) {
        return nullptr;
    }
}

void Judge::set_effort(double effort) {
    setup_.pipeline.options.effort = effort;
    ordered_layers_.clear();
}

void Judge::hold_order(const StageSplit& split) {
    ordered_for(split);
    held_links_ = links_of(problem_.model.layers, split);
}

void Judge::release_order() {
    held_links_.reset();
    ordered_layers_.clear();
}

// Keeps the plan of the last split alone: other splits have other orders.
Judge::Candidate* Judge::ordered_for(const StageSplit& split) {
    if (held_links_)
        return *held_links_ == links_of(problem_.model.layers, split) ? ordered_.get() : nullptr;
    if (ordered_layers_ != split.layers) {
        ordered_ = candidate_of(links_of(problem_.model.layers, split), [&](const Shape& shape) {
            return complete_costs(costs_.costs_of(split), setup_, cluster_, problem_.model.layers, split, shape);
        });
        ordered_layers_ = split.layers;
    }
    return ordered_.get();
}

Judge::Candidate* Judge::candidate_for(const StageSplit& split) {
    if (orders_by_costs_)
        return ordered_for(split);
    const StageLinks links = links_of(problem_.model.layers, split);
    if (const auto known = candidates_.find(links); known != candidates_.end())
        return known->second.get();
    if (kept_tasks_ > kMostKeptTasks) {
        candidates_.clear();
        kept_tasks_ = 0;
    }
    std::unique_ptr<Candidate>& candidate = candidates_[links];
    candidate = candidate_of(links, {});
    if (candidate)
        for (const std::vector<Task>& order : candidate->plan->order)
            kept_tasks_ += std::ssize(order);
    return candidate.get();
}

std::shared_ptr<const ProvenPlan> Judge::plan_of(const StageSplit& split) {
    const Candidate* candidate = candidate_for(split);
    return candidate == nullptr ? nullptr
                                : std::make_shared<const ProvenPlan>(ProvenPlan{*candidate->plan, candidate->proof});
}

Costs Judge::executed(Costs of_stages, const StageSplit& split, const Plan& plan) const {
    return complete_costs(std::move(of_stages), setup_, cluster_, problem_.model.layers, split, plan.shape);
}

std::optional<Ns> Judge::step_time(const StageSplit& split) {
    Candidate* candidate = candidate_for(split);
    if (candidate == nullptr)
        return std::nullopt;
    const bool copies = !setup_.pipeline.offload.is_empty();  // their times depend on the bytes of the stages
    return candidate->simulator.step_time(
        executed(copies ? costs_.costs_of(split) : costs_.times_of(split), split, *candidate->plan));
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
    return needed_by(*candidate->plan, buffers, costs, enough);
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

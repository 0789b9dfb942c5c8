#include "report/plan_search.h"

#include "job/build.h"
#include "job/cost_source.h"
#include "job/plan.h"
#include "report/plan_lead.h"
#include "report/search_words.h"
#include "report/training_arguments.h"
#include "schedules/orders/schedule.h"
#include "workloads/error.h"
#include "workloads/models/blocks.h"
#include "workloads/size_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace pw {

namespace {

void refuse_uniform(const SearchSetup& setup) {
    if (!cost_source_of(setup).has_layers)
        setup.fail_at("workload.model", "model: uniform has the times of stages: there is nothing to split and search",
                      "write the times by layer into a layer graph, `layers.yaml`, and name it as the model "
                      "(docs/config.md, models from files); or compare schedules of these stages: `pipewright "
                      "simulate CONFIG --schedules all`");
}

// Notes that replicas were not asked for, where some schedules take them, and that the best plan is asynchronous.
void note_limits_of_best(const SearchSetup& setup, SearchResult& result) {
    const bool some_take = std::any_of(result.plans.begin(), result.plans.end(), [&](const FoundPlan& plan) {
        const Schedule& schedule = schedule_named(setup, plan.choice.schedule);
        return schedule.takes_replicas() && !schedule.asynchronous();
    });
    if (!setup.places.contains("search.replicas") && some_take && setup.cluster.devices.size() > 1)
        result.notes.emplace_back(
            "every stage of a pipeline has one device: replicas of stages are among the choices with search.replicas: "
            "true, or equal for as many of each stage");
    if (const FoundPlan& best = *result.best(); schedule_named(setup, best.choice.schedule).asynchronous())
        result.notes.push_back(
            fmt::format("the best plan is asynchronous: {} never flushes, and trains differently from a plan that does",
                        best.choice.schedule));
}

// Returns whether every stage is whole blocks.
bool begin_at(const StageSplit& split, const CutPlaces& blocks) {
    for (std::size_t block = 0; block < blocks.size(); ++block) {
        const int end = block + 1 < blocks.size() ? blocks[block + 1] : static_cast<int>(split.stage_of.size());
        for (int layer = blocks[block] + 1; layer < end; ++layer)
            if (split.stage_of[layer] != split.stage_of[blocks[block]])
                return false;
    }
    return true;
}

}  // namespace

SearchProblem posed_search(const SearchSetup& setup) {
    if (searches_cluster(setup))
        return {setup};
    refuse_uniform(setup);
    return problem_of(setup, build_model(setup));
}

std::function<std::string(const Setup&)> refusal_of_plans(const SearchSetup& setup) {
    const std::optional<Program> program = setup.search.program;
    if (!program)
        return {};
    return [program](const Setup& of_plan) {
        const std::optional<Refusal> refusal = refusal_of(*program, of_plan);
        return refusal ? fmt::format("{} ({})", refusal->fact, refusal->help) : "";
    };
}

PlanSearch found_plans(SearchProblem problem, SearchResult result) {
    PlanSearch search{std::move(problem), std::move(result)};
    if (const FoundPlan* best = search.result.best(); best != nullptr && best->choice.is_of_transformer()) {
        search.best = quiet_job_of(search, *best);
        search.unhidden = unhidden_steps(search);
    } else if (best != nullptr) {
        search.best = make_job(setup_of(search.problem, *best), best->plan.get(), search.result.notes);
        note_limits_of_best(search.problem.setup, search.result);
    }
    return search;
}

std::optional<FoundPlan> plan_of_other_cuts(const SearchProblem& problem, const SearchResult& result,
                                            PlanLimits limits) {
    using CutAt = PipelineConfig::CutAt;
    const FoundPlan* best = result.best();
    if (best == nullptr || best->choice.is_of_transformer() || best->choice.stages == 1 ||
        result.stop != SearchStop::None)
        return std::nullopt;
    const CutPlaces blocks = starts_of_blocks(problem.model.layers);
    const bool are_whole = problem.setup.pipeline.cut_at == CutAt::Blocks;
    const bool all_may_be = are_whole ? blocks.size() == num_vertices(problem.model.layers)
                                      : begin_at(best->split, blocks) || std::ssize(blocks) < best->choice.stages;
    if (all_may_be)
        return std::nullopt;
    SearchProblem other = problem;
    other.setup.pipeline.cut_at = are_whole ? CutAt::Layers : CutAt::Blocks;
    limits.only = best->choice;
    limits.tasks /= 10;
    const SearchResult found = search_plans(other, limits);
    return found.best() == nullptr ? std::nullopt : std::optional(*found.best());
}

PlanSearch search_best_plan(const SearchSetup& setup, PlanLimits limits, const Hooks& hooks) {
    const auto start = std::chrono::steady_clock::now();
    SearchProblem problem = posed_search(setup);
    if (hooks.should_stop)
        limits.should_stop = hooks.should_stop;
    limits.refusal = refusal_of_plans(setup);
    SearchResult result = search_plans(problem, limits, [&](const std::string& state) { hooks.show(state); });
    std::optional<FoundPlan> other_cuts = plan_of_other_cuts(problem, result, limits);
    PlanSearch search = found_plans(std::move(problem), std::move(result));
    search.other_cuts = std::move(other_cuts);
    search.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return search;
}

bool ended_without_a_plan(const PlanSearch& search) {
    return search.result.plans.empty() && !search.result.shortage && search.result.stop != SearchStop::None;
}

void require_plan(const PlanSearch& search) {
    if (!search.best)
        words_of(search).refuse(search);
}

}  // namespace pw

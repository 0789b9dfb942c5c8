#include "report/advice.h"

#include "job/plan.h"
#include "report/report.h"
#include "report/search_words.h"
#include "report/table.h"
#include "search/plan_choice.h"
#include "sim/metrics.h"
#include "workloads/costs/costs.h"
#include "workloads/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

namespace pw {

namespace {

constexpr double kLeastGain = 0.01;

// A split in which a stage gave layers at one of its ends to its neighbour.
struct MovedLayers {
    StageSplit split;
    int to = 0;
    std::vector<int> layers;
};

// The time that stages compute for a micro-batch on average, with the additions of gradients and the update.
std::vector<Ns> times_of_stages(const CostTable& table, const StageSplit& split, const Job& job) {
    const int count = job.plan.shape.microbatches;
    std::vector<Ns> times;
    for (const StageCost& cost : table.times_of(split).stage)
        times.push_back(time_of_passes(cost, job) + (cost.accumulate * (count - 1) + cost.update) / count);
    return times;
}

// Gives the neighbour as many layers as make the slower of both stages fastest. Nothing if no number does.
std::optional<MovedLayers> moved_to(int to, int stage, const std::vector<Ns>& times, const CostTable& table,
                                    const Job& job) {
    std::optional<MovedLayers> best;
    StageSplit split = job.split;
    split.reader_groups.clear();
    std::vector<int>& giver = split.layers[static_cast<std::size_t>(stage)];
    std::vector<int>& taker = split.layers[static_cast<std::size_t>(to)];
    std::vector<int> layers;
    Ns longest = times[static_cast<std::size_t>(stage)];
    while (giver.size() > 1) {
        const auto moved = to < stage ? giver.begin() : giver.end() - 1;
        taker.insert(to < stage ? taker.end() : taker.begin(), *moved);
        split.stage_of[static_cast<std::size_t>(*moved)] = to;
        layers.push_back(*moved);
        giver.erase(moved);
        const std::vector<Ns> now = times_of_stages(table, split, job);
        const Ns slower = std::max(now[static_cast<std::size_t>(stage)], now[static_cast<std::size_t>(to)]);
        if (slower >= longest && now[static_cast<std::size_t>(to)] >= slower)
            break;  // more layers make the neighbour slower still
        if (slower < longest) {
            longest = slower;
            best = {split, to, layers};
        }
    }
    return best;
}

// Nothing if the plan does not fit.
std::optional<Ns> step_time_with(const StageSplit& split, const Job& job) {
    Setup setup = job.setup;
    set_split(setup.pipeline, job.model->layers, split);
    try {
        Notices notices;
        const Report report = predicted_report(make_job(std::move(setup), notices), false);
        return fits(report) ? std::optional(report.metrics.step_time) : std::nullopt;
    } catch (const Error&) {  // the schedule refuses it, or a part of the setup names stages
        return std::nullopt;
    }
}

std::string names_of(const std::vector<int>& layers, const LayerGraph& graph) {
    const auto name = [&](int layer) { return graph[static_cast<std::size_t>(layer)].name; };
    const auto [first, last] = std::minmax_element(layers.begin(), layers.end());
    return layers.size() == 1 ? name(*first) : fmt::format("{} to {}", name(*first), name(*last));
}

}  // namespace

std::string advice_on(const Job& job, Ns step_time) {
    if (!job.model || job.split.stages() < 2 || schedule_of(job.setup).needs_costs || !starts_of_ranges(job.split))
        return "";
    const CostTable table(*job.model, job.profile, job.setup.pipeline.micro_batch_size);
    const std::vector<Ns> times = times_of_stages(table, job.split, job);
    const auto slowest = static_cast<int>(std::ranges::max_element(times) - times.begin());
    const double mean = std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
    std::optional<MovedLayers> best;
    Ns fastest = step_time - static_cast<Ns>(kLeastGain * static_cast<double>(step_time));
    for (const int to : {slowest - 1, slowest + 1}) {
        if (to < 0 || to >= job.split.stages())
            continue;
        std::optional<MovedLayers> moved = moved_to(to, slowest, times, table, job);
        const std::optional<Ns> time = moved ? step_time_with(moved->split, job) : std::nullopt;
        if (time && *time <= fastest) {
            fastest = *time;
            best = std::move(moved);
        }
    }
    if (!best)
        return "";
    const double longer = static_cast<double>(times[static_cast<std::size_t>(slowest)]) / mean - 1;
    return fmt::format("stage {} takes {} longer than the mean stage: with {} on stage {} the step would take {} less",
                       slowest, print_percent(longer), names_of(best->layers, job.model->layers), best->to,
                       print_percent(1 - static_cast<double>(fastest) / static_cast<double>(step_time)));
}

}  // namespace pw

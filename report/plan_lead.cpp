#include "report/plan_lead.h"

#include "report/predict.h"
#include "report/search_words.h"
#include "report/table.h"
#include "search/clusters/cluster_search.h"
#include "workloads/transformers/degrees.h"
#include "workloads/transformers/error_bands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

namespace pw {

namespace {

// Returns how many degrees of a plan are above the least, in any stage.
int degrees_above_least(const PlanChoice& choice) {
    return static_cast<int>(std::ranges::count_if(kDegrees, [&](const DegreeFacts& facts) {
        return facts.summary != nullptr &&
               std::ranges::any_of(values_of(facts.degree, choice.degrees, choice.of_stages),
                                   [&](int value) { return value > facts.least; });
    }));
}

double fullest(const FoundPlan& plan, const std::vector<DeviceConfig>& devices) {
    double most = 0;
    for (std::size_t device = 0; device < plan.reserved.size(); ++device)
        if (const Bytes memory = devices[device].memory; memory != kUnlimited)
            most = std::max(most, static_cast<double>(plan.reserved[device]) / static_cast<double>(memory));
    return most;
}

double fullest(const PlanSearch& search, const FoundPlan& plan) {
    return fullest(plan, setup_of(search.problem, plan).cluster.devices);
}

// Returns the row that would be the fastest if no message were hidden. Absent if the best plan would still be.
std::optional<std::size_t> fastest_unhidden(const PlanSearch& search, const PlanLead& lead) {
    const std::vector<Ns>& steps = search.unhidden;
    const std::size_t known = std::min(steps.size(), lead.rows.size());
    if (known < 2)
        return std::nullopt;
    const auto fastest = std::min_element(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(known));
    const auto row = static_cast<std::size_t>(fastest - steps.begin());
    return row == 0 ? std::nullopt : std::optional(row);
}

std::string later(const FoundPlan& plan, const FoundPlan& best) {
    return print_signed_percent(static_cast<double>(plan.step_time) / static_cast<double>(best.step_time) - 1);
}

std::string alike_text(const PlanLead& lead) {
    const DifferenceBand& band = difference_band();
    const std::string within = print_percent(band.factor - 1);
    if (lead.alike.empty())
        return lead.rows.size() < 2
                   ? ""
                   : fmt::format("no other row is within {} of plan 1, the 80 % band of a difference\n", within);
    std::vector<std::size_t> numbers;
    for (const std::size_t row : lead.alike)
        numbers.push_back(row + 1);
    return fmt::format(
        "cannot be told apart from plan 1 (80 % band of a difference: {}): plan{} {}; simplest: plan {}\n", within,
        numbers.size() == 1 ? "" : "s", fmt::join(numbers, ", "), lead.simplest + 1);
}

}  // namespace

PlanLead lead_of(const PlanSearch& search, std::size_t most) {
    PlanLead lead{best_by_degrees(search.result, most)};
    const FoundPlan& best = *lead.rows.front();
    for (std::size_t row = 1; row < lead.rows.size(); ++row) {
        if (told_apart(best.step_time, lead.rows[row]->step_time))
            continue;
        lead.alike.push_back(row);
        if (degrees_above_least(lead.rows[row]->choice) < degrees_above_least(lead.rows[lead.simplest]->choice))
            lead.simplest = row;
    }
    lead.memory = fullest(search, best);
    for (std::size_t row = 1; row < lead.rows.size() && lead.memory > 1 - kRoom && !lead.roomier; ++row)
        if (fullest(search, *lead.rows[row]) <= 1 - kRoom)
            lead.roomier = row;
    return lead;
}

std::string to_text(const PlanSearch& search, const PlanLead& lead) {
    std::string text = alike_text(lead);
    if (const std::optional<std::size_t> row = fastest_unhidden(search, lead))
        text += fmt::format(
            "plan 1 leads by messages that passes hide: if none were hidden, it would take {}, and plan {} {}\n",
            print_time(search.unhidden.front()), *row + 1, print_time(search.unhidden[*row]));
    if (lead.memory > 1 - kRoom)
        text += fmt::format("plan 1 leaves {} of a device's memory{}\n", print_percent(std::max(0.0, 1 - lead.memory)),
                            lead.roomier
                                ? fmt::format("; plan {} leaves more than {:.0f} %, and takes {}", *lead.roomier + 1,
                                              100 * kRoom, later(*lead.rows[*lead.roomier], *lead.rows.front()))
                                : "");
    return text;
}

Json to_json(const PlanSearch& search, const PlanLead& lead) {
    const DifferenceBand& band = difference_band();
    const auto plan = [&](std::size_t row) { return Json(print(lead.rows[row]->choice)); };
    Json alike = Json::array();
    for (const std::size_t row : lead.alike)
        alike.push_back(plan(row));
    const std::optional<std::size_t> unhidden = fastest_unhidden(search, lead);
    return {{"share", kBandShare},
            {"factor", band.factor},
            {"pairs", band.pairs},
            {"groups", band.groups},
            {"not_told_apart", std::move(alike)},
            {"simplest", plan(lead.simplest)},
            {"unhidden_step_ns", search.unhidden.empty() ? Json(nullptr) : Json(search.unhidden.front())},
            {"fastest_unhidden", unhidden ? plan(*unhidden) : Json(nullptr)},
            {"fastest_unhidden_step_ns", unhidden ? Json(search.unhidden[*unhidden]) : Json(nullptr)},
            {"memory_share", lead.memory},
            {"fastest_with_room", lead.roomier ? plan(*lead.roomier) : Json(nullptr)}};
}

std::vector<Ns> unhidden_steps(const PlanSearch& search) {
    std::vector<Ns> steps;
    if (!searches_cluster(search.problem.setup))
        return steps;
    for (const FoundPlan* plan : best_by_degrees(search.result, kUnhiddenPlans)) {
        FoundPlan asked = *plan;
        asked.choice.degrees.hides_messages = false;
        for (Parallel& own : asked.choice.of_stages)
            own.hides_messages = false;
        steps.push_back(predict_numbers(quiet_job_of(search, asked)).metrics.step_time);
    }
    return steps;
}

}  // namespace pw

#include "report/plan_chart.h"

#include "report/table.h"
#include "workloads/size_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace pw {

namespace {

constexpr Bytes kNoLimit = std::numeric_limits<Bytes>::max();
constexpr double kSlowest = 3;  // times the best step: slower plans are not what is searched
constexpr std::size_t kNextPlans = 3;
constexpr double kNearLimit = 2;  // the limit is drawn if it is below this many times the largest plan

// The plans that fit and for which no other plan is both faster and smaller, from the smallest plan on.
std::vector<const PlanDot*> pareto_front(const std::vector<PlanDot>& plans) {
    std::vector<const PlanDot*> front;
    for (const PlanDot& plan : plans)
        if (plan.fits)
            front.push_back(&plan);
    std::stable_sort(front.begin(), front.end(), [](const PlanDot* a, const PlanDot* b) {
        return std::pair(a->memory, a->step_time) < std::pair(b->memory, b->step_time);
    });
    Ns least = std::numeric_limits<Ns>::max();
    std::erase_if(front, [&](const PlanDot* plan) {
        const bool dominated = plan->step_time >= least;
        least = std::min(least, plan->step_time);
        return dominated;
    });
    return front;
}

// The parts of a plan's name in which plans of the front differ. Empty parts are left out.
std::string short_name(const PlanDot& plan, const std::vector<const PlanDot*>& front) {
    std::vector<std::string> differing;
    for (std::size_t i = 0; i < plan.parts.size(); ++i)
        if (!plan.parts[i].empty() && (i == 0 || std::any_of(front.begin(), front.end(), [&](const PlanDot* other) {
                                           return i >= other->parts.size() || other->parts[i] != plan.parts[i];
                                       })))
            differing.push_back(plan.parts[i]);
    return fmt::format("{}", fmt::join(differing, ", "));
}

void add_plan(Curve& curve, const PlanDot& plan, Bytes limit) {
    curve.x.push_back(static_cast<double>(plan.memory));
    curve.values.push_back(static_cast<double>(plan.step_time));
    curve.names.push_back(plan.name);
    curve.facts.push_back({print_time(plan.step_time), print_bytes_as(plan.memory, limit), plan.fits ? "yes" : "no"});
}

// Counts what is outside of the axes.
struct Outside {
    int count = 0;
    std::int64_t most = 0;
    void add(std::int64_t number) {
        ++count;
        most = std::max(most, number);
    }
    std::string plans() const { return fmt::format("{} plan{}", count, count == 1 ? "" : "s"); }
};

void set_axes(Chart& chart, const std::vector<PlanDot>& plans, Bytes limit) {
    Bytes largest = 0;
    for (const PlanDot& plan : plans)
        if (plan.fits && static_cast<double>(plan.step_time) <= kSlowest * static_cast<double>(plans.front().step_time))
            largest = std::max(largest, plan.memory);
    if (!plans.front().fits)  // no plan does
        return;
    chart.x.most = 1.1 * static_cast<double>(largest);
    chart.y.most = kSlowest * static_cast<double>(plans.front().step_time);
    if (limit == kNoLimit)
        return;
    if (static_cast<double>(limit) < kNearLimit * static_cast<double>(largest)) {
        chart.x.levels.push_back({static_cast<double>(limit), fmt::format("memory {}", print_bytes_as(limit, limit))});
        chart.x.most = std::max(*chart.x.most, 1.1 * static_cast<double>(limit));
    } else {
        chart.remarks.push_back(fmt::format("\u2192 the memory of a device is {}", print_bytes_as(limit, limit)));
    }
}

void add_remarks(Chart& chart, const std::vector<PlanDot>& plans, Bytes limit) {
    Outside larger, slower;
    for (const PlanDot& plan : plans)
        if (static_cast<double>(plan.memory) > chart.x.most.value_or(INFINITY))
            larger.add(plan.memory);
        else if (static_cast<double>(plan.step_time) > chart.y.most.value_or(INFINITY))
            slower.add(plan.step_time);
    std::string remark;
    if (larger.count > 0)
        remark =
            fmt::format("\u2192 {} with more memory, up to {}", larger.plans(), print_bytes_as(larger.most, limit));
    if (slower.count > 0)
        remark += fmt::format("{}\u2191 {} slower, up to {}", remark.empty() ? "" : "   ", slower.plans(),
                              print_time(slower.most));
    if (!remark.empty())
        chart.remarks.push_back("not shown: " + remark);
}

}  // namespace

std::string less_memory_text(const std::vector<PlanDot>& plans, Bytes limit) {
    std::vector<const PlanDot*> front = pareto_front(plans);
    if (front.size() < 2)
        return "";
    std::reverse(front.begin(), front.end());
    std::vector<std::string> texts;
    for (std::size_t at = 1; at < front.size(); ++at)
        if (at <= kNextPlans || at + 1 == front.size())
            texts.push_back(fmt::format("{} with {} ({})", print_time(front[at]->step_time),
                                        print_bytes_as(front[at]->memory, limit), short_name(*front[at], front)));
    return fmt::format("less memory: {}\n", fmt::join(texts, "; "));
}

Chart chart_of(const std::vector<PlanDot>& plans, Bytes limit) {
    const Quantity size = has_decimal_units(limit) ? Quantity::DecimalSize : Quantity::Size;
    Chart chart{{}, {"reserved memory", size}, {"step time", Quantity::Time}};
    chart.x.from_zero = true;
    chart.facts = {"step time", "reserved memory", "fits"};
    if (plans.empty())
        return chart;
    Curve all{"other plans that fit", {}, {}, Curve::Style::Dots};
    Curve misfits{"too large", {}, {}, Curve::Style::Crosses};
    Curve steps{"none is both faster and smaller", {}, {}, Curve::Style::Steps};
    Curve ring{"", {}, {}, Curve::Style::Rings};
    const std::vector<const PlanDot*> front = pareto_front(plans);
    for (const PlanDot& plan : plans)
        if (std::find(front.begin(), front.end(), &plan) == front.end())
            add_plan(plan.fits ? all : misfits, plan, limit);
    for (const PlanDot* const plan : front) {
        add_plan(steps, *plan, limit);
        const bool best = plan == front.back();
        steps.labels.push_back(best ? "" : short_name(*plan, front));
        if (!best)
            continue;
        add_plan(ring, *plan, limit);
        ring.labels.push_back(fmt::format("best: {}, {}", short_name(*plan, front), print_time(plan->step_time)));
        chart.remarks.push_back(fmt::format("best: {}, step {}, {}", plan->name, print_time(plan->step_time),
                                            print_bytes_as(plan->memory, limit)));
    }
    set_axes(chart, plans, limit);
    add_remarks(chart, plans, limit);
    for (Curve* curve : {&all, &misfits, &steps, &ring})
        if (!curve->values.empty())
            chart.curves.push_back(std::move(*curve));
    return chart;
}

}  // namespace pw

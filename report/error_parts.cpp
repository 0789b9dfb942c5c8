#include "report/error_parts.h"

#include "report/predict.h"
#include "report/table.h"
#include "schedules/passes/passes.h"
#include "schedules/trace/trace_plan.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace pw {

namespace {

constexpr std::size_t kShown = 5;  // tasks in a table

std::string ms(Ns time) { return fmt::format("{:+.3f}", static_cast<double>(time) / 1e6); }

double part_of(Ns time, Ns step) {
    return step > 0 ? static_cast<double>(time) / static_cast<double>(step) : std::numeric_limits<double>::quiet_NaN();
}

std::string percent(Ns time, Ns step) { return step > 0 ? fmt::format("{:+.2f} %", 100 * part_of(time, step)) : "-"; }

std::string name_of(const CostPart& part) { return fmt::format("{} of stage {}", letters_of(part.op), part.stage); }

// What passes between tasks, the names of which say where.
struct Between {
    const char* name;
    Ns Mechanics::*time;
};
constexpr Between kBetween[] = {{"begin", &Mechanics::begin},
                                {"hand-over", &Mechanics::hand_over},
                                {"dispatch", &Mechanics::dispatch},
                                {"rules", &Mechanics::rules}};

// A plan that is known from its trace alone.
struct TracedPlan {
    explicit TracedPlan(const Trace& trace)
        : rules(trace_rules(trace)), plan(plan_of(trace, rules.global_norm)), proof(check(plan, checked_mode())) {}

    // The sizes of messages, by which an eager limit goes, are known to the replay.
    TransferMode checked_mode() const {
        TransferMode mode = rules.mode;
        if (mode.eager_limit > 0)
            mode.protocol = TransferMode::Protocol::Eager;
        return mode;
    }

    TraceRules rules;
    Plan plan;
    std::shared_ptr<const Proof> proof;
};

}  // namespace

ErrorParts error_parts_of_run(const Job& job, const Trace& predicted, const Trace* calibrated, const Trace& measured) {
    const TransferMode mode = simulated_mode(job);
    const bool proven = job.proof && job.proof->graph.is_of(job.plan);
    return error_parts(job.plan, proven ? job.proof : check(job.plan, mode), mode, predicted, calibrated, measured,
                       job.costs.lengths);
}

ErrorParts error_parts_of_traces(const Trace& predicted, const Trace& measured) {
    const TracedPlan traced(predicted);
    return error_parts(traced.plan, traced.proof, traced.rules.mode, predicted, nullptr, measured,
                       traced.rules.lengths);
}

double mechanics_error(const ErrorParts& parts) { return part_of(parts.mechanics.total(), parts.measured); }

std::vector<std::vector<std::string>> rows_of(const ErrorParts& parts) {
    std::vector<std::vector<std::string>> rows = {{"part of the error", "ms", "of the step"}};
    const auto add = [&](std::string name, Ns time) {
        rows.push_back({std::move(name), ms(time), percent(time, parts.measured)});
    };
    add("mechanics", parts.mechanics.total());
    for (const auto& [name, time] : kBetween)
        if (parts.mechanics.*time != 0)
            add(fmt::format("  {}", name), parts.mechanics.*time);
    add("jitter", parts.jitter);
    add("costs", parts.costs);
    Ns others = parts.costs;
    for (std::size_t k = 0; k < std::min(kShown, parts.by_task.size()); ++k)
        if (const CostPart& part = parts.by_task[k]; part.time != 0) {
            add("  " + name_of(part), part.time);
            others -= part.time;
        }
    if (parts.by_task.size() > kShown)
        add("  other tasks", others);
    if (parts.drift)
        add("drift of the machine", *parts.drift);
    else
        rows.push_back({"drift of the machine", "in costs", ""});
    add("all", parts.predicted - parts.measured);
    return rows;
}

std::string to_text(const ErrorParts& parts) {
    std::vector<std::vector<std::string>> rows = rows_of(parts);
    Table table(std::move(rows.front()));
    for (std::size_t row = 1; row < rows.size(); ++row)
        table.add(std::move(rows[row]));
    return table.print();
}

namespace {

// A part of the error, and what is said of it when it is the largest.
struct Reason {
    const char* name;
    Ns time;
    std::string cause, advice;
};

Reason mechanics_reason(const ErrorParts& parts) {
    const auto largest =
        std::max_element(std::begin(kBetween), std::end(kBetween), [&](const Between& a, const Between& b) {
            return std::abs(parts.mechanics.*a.time) < std::abs(parts.mechanics.*b.time);
        });
    return {
        "mechanics", parts.mechanics.total(),
        fmt::format("with its own task times the plan takes {} less the measured step, {} of it by {}",
                    percent(parts.mechanics.total(), parts.measured),
                    percent(parts.mechanics.*(largest->time), parts.measured), largest->name),
        "Look in --plot both.html for gaps between tasks that wait for nothing; cluster.dispatch adds what every task "
        "takes in addition to its work."};
}

Reason jitter_reason(const ErrorParts& parts) {
    return {"jitter", parts.jitter, "tasks of one kind take longer at one time than at another",
            "Measure again on a quiet machine, or with more steps (training.steps)."};
}

Reason costs_reason(const ErrorParts& parts) {
    if (parts.by_task.empty())
        return {"costs", parts.costs, "", ""};
    const CostPart& part = parts.by_task.front();
    const std::string again = parts.drift ? "" : " right before the run: how far the machine has drifted is not known";
    return {"costs", parts.costs,
            fmt::format("{} is costed {} and takes {} in the mean, which is {} of the step", name_of(part),
                        print_time(part.predicted), print_time(part.measured), percent(part.time, parts.measured)),
            is_send(part.op) ? fmt::format("Set cluster.link to what messages of stage {} take, or measure the profile "
                                           "again{}.",
                                           part.stage, again)
                             : fmt::format("Profile stage {} again on a quiet machine{}.", part.stage, again)};
}

Reason drift_reason(const ErrorParts& parts) {
    const Ns drift = parts.drift.value_or(0);
    return {"drift of the machine", drift,
            fmt::format("with costs measured during the run the plan takes {} {} than with those of the profile",
                        percent(std::abs(drift), parts.measured).substr(1), drift < 0 ? "longer" : "shorter"),
            "Measure the profile again on a quiet machine, and the run soon after it."};
}

}  // namespace

std::string why(const ErrorParts& parts) {
    std::vector<Reason> reasons = {costs_reason(parts), drift_reason(parts), jitter_reason(parts),
                                   mechanics_reason(parts)};
    std::stable_sort(reasons.begin(), reasons.end(),
                     [](const Reason& a, const Reason& b) { return std::abs(a.time) > std::abs(b.time); });
    const Ns error = parts.predicted - parts.measured;
    if (reasons.front().time == 0)
        return fmt::format("The prediction is the measured step, {}, in all its parts.\n", print_time(parts.measured));
    std::string rest;
    for (std::size_t k = 1; k < reasons.size(); ++k)
        if (reasons[k].time != 0)
            rest += fmt::format("{}{} {}", rest.empty() ? "" : ", ", reasons[k].name,
                                percent(reasons[k].time, parts.measured));
    return fmt::format(
        "The prediction of {} is {} of the measured step off, and the largest part of that is {}, {}: {}.\n"
        "The other parts are {}{}.\n{}\n",
        print_time(parts.predicted), percent(error, parts.measured), reasons.front().name,
        percent(reasons.front().time, parts.measured), reasons.front().cause, rest.empty() ? "nothing" : rest,
        parts.drift ? "" : "; drift of the machine is among the costs", reasons.front().advice);
}

namespace {

Json json_of_mechanics(const Mechanics& mechanics) {
    return {{"begin_ns", mechanics.begin},
            {"hand_over_ns", mechanics.hand_over},
            {"dispatch_ns", mechanics.dispatch},
            {"rules_ns", mechanics.rules}};
}

}  // namespace

Json to_json(const ErrorParts& parts) {
    Json by_task = Json::array();
    for (const CostPart& part : parts.by_task)
        by_task.push_back({{"op", letters_of(part.op)},
                           {"stage", part.stage},
                           {"ns", part.time},
                           {"predicted_task_ns", part.predicted},
                           {"measured_task_ns", part.measured}});
    Json json = {{"mechanics_ns", parts.mechanics.total()},
                 {"jitter_ns", parts.jitter},
                 {"costs_ns", parts.costs},
                 {"drift_ns", nullptr},
                 {"mechanics", json_of_mechanics(parts.mechanics)},
                 {"by_task", std::move(by_task)}};
    if (parts.drift)
        json["drift_ns"] = *parts.drift;
    return json;
}

ReplayedTrace replayed(const Report& measured) {
    const Trace trace = with_updates(measured.trace);
    const TracedPlan traced(trace);
    return {trace.plan_hash, trace.schedule, measured.metrics.step, measured.metrics.step_time,
            mechanics_of(traced.plan, traced.proof, traced.rules.mode, trace)};
}

Json to_json(const ReplayedTrace& replay) {
    const Ns gap = replay.mechanics.total();
    return {{"schema_version", 1},
            {"plan_hash", replay.plan_hash},
            {"schedule", replay.schedule},
            {"step", replay.step},
            {"step_time_ns", replay.step_time},
            {"replayed_ns", replay.step_time + gap},
            {"mechanics_ns", gap},
            {"mechanics_error", part_of(gap, replay.step_time)},
            {"mechanics", json_of_mechanics(replay.mechanics)}};
}

std::string to_text(const ReplayedTrace& replay) {
    const Ns step = replay.step_time, gap = replay.mechanics.total();
    Table table({"step time", "", "of the step"});
    table.add({"measured", print_time(step), ""});
    table.add({"replayed with its own task times", print_time(step + gap), percent(gap, step)});
    for (const auto& [name, time] : kBetween)
        if (const Ns part = replay.mechanics.*time; part != 0)
            table.add({fmt::format("  {}", name), fmt::format("{} ms", ms(part)), percent(part, step)});
    return table.print();
}

}  // namespace pw

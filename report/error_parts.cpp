#include "report/error_parts.h"

#include "report/answers.h"
#include "report/predict.h"
#include "report/table.h"
#include "report/traced_plan.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
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

// What passes between tasks, and the words for it.
struct Between {
    const char* name;
    Ns Mechanics::*time;
    const char* words;
};
constexpr Between kBetween[] = {
    {"begin", &Mechanics::begin, "devices whose first task starts late"},
    {"hand-over", &Mechanics::hand_over, "tasks that start some time after the message that they wait for"},
    {"dispatch", &Mechanics::dispatch, "time between one task of a device and the next"},
    {"rules", &Mechanics::rules, "tasks that start earlier than the simulator allows"}};

}  // namespace

ErrorParts error_parts_of_run(const Job& job, const Trace& predicted, const Trace* calibrated, const Trace& measured) {
    const TransferMode mode = simulated_mode(job);
    const bool proven = job.proof && job.proof->graph.is_of(job.plan);
    return error_parts(job.plan, proven ? job.proof : check(job.plan, mode), mode, predicted, calibrated, measured,
                       job.costs);
}

ErrorParts error_parts_of_traces(const Trace& predicted, const Trace& measured) {
    const TracedPlan traced(predicted);
    return error_parts(traced.plan, traced.proof, traced.rules.mode, predicted, nullptr, measured, traced.rules.costs);
}

double mechanics_error(const ErrorParts& parts) { return part_of(parts.mechanics.total(), parts.measured); }

std::vector<std::vector<std::string>> rows_of(const ErrorParts& parts) {
    std::vector<std::vector<std::string>> rows = {{"part of the error", "ms", "of the step"}};
    const auto add = [&](std::string name, Ns time) {
        rows.push_back({std::move(name), ms(time), percent(time, parts.measured)});
    };
    add("mechanics", parts.mechanics.total());
    for (const auto& [name, time, words] : kBetween)
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
        rows.push_back({"drift of the machine, a part of costs", "not known", ""});
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

// "51.5 % shorter than": the words for a difference.
std::string by_how_much(Ns time, Ns step, const char* less, const char* more) {
    return fmt::format("{} {}", percent(std::abs(time), step).substr(1), time < 0 ? less : more);
}

Reason mechanics_reason(const ErrorParts& parts) {
    const auto largest =
        std::max_element(std::begin(kBetween), std::end(kBetween), [&](const Between& a, const Between& b) {
            return std::abs(parts.mechanics.*a.time) < std::abs(parts.mechanics.*b.time);
        });
    return {
        "mechanics", parts.mechanics.total(),
        fmt::format(
            "With the run's own task times the predicted step is {} than the measured one. Most of the difference "
            "is {}: {} ({}).",
            by_how_much(parts.mechanics.total(), parts.measured, "shorter", "longer"), largest->name, largest->words,
            percent(parts.mechanics.*(largest->time), parts.measured)),
        "Look in --plot both.html for gaps between tasks that wait for nothing; cluster.dispatch adds what every task "
        "takes in addition to its work."};
}

Reason jitter_reason(const ErrorParts& parts) {
    return {"jitter", parts.jitter, "Tasks of one kind take longer at one time than at another.",
            "Measure again on a quiet machine, or with more steps (training.steps)."};
}

Reason costs_reason(const ErrorParts& parts) {
    if (parts.by_task.empty())
        return {"costs", parts.costs, "", ""};
    const CostPart& part = parts.by_task.front();
    const std::string again = parts.drift ? "" : " right before the run: how far the machine has drifted is not known";
    return {"costs", parts.costs,
            fmt::format("{} has a cost of {} and takes {} on average. This changes the step by {}.", name_of(part),
                        print_time(part.predicted), print_time(part.measured), percent(part.time, parts.measured)),
            is_send(part.op) ? fmt::format("Set cluster.link to what messages of stage {} take, or measure the profile "
                                           "again{}.",
                                           part.stage, again)
                             : fmt::format("Profile stage {} again on a quiet machine{}.", part.stage, again)};
}

Reason drift_reason(const ErrorParts& parts) {
    const Ns drift = parts.drift.value_or(0);
    return {"drift of the machine", drift,
            fmt::format("The step is {} with costs measured during the run than with the costs of the profile.",
                        by_how_much(drift, parts.measured, "longer", "shorter")),
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
        return fmt::format("Predicted and measured step are equal, {}, and so are all their parts.\n",
                           print_time(parts.measured));
    std::string others;
    for (std::size_t k = 1; k < reasons.size(); ++k)
        if (reasons[k].time != 0)
            others += fmt::format("{}{} {}", others.empty() ? "" : ", ", reasons[k].name,
                                  percent(reasons[k].time, parts.measured));
    const Reason& largest = reasons.front();
    return fmt::format(
        "Predicted {}, measured {} ({}). Largest cause: {}, {} of the measured step.{}{}\nOther causes: {}.{}\n{}\n",
        print_time(parts.predicted), print_time(parts.measured), percent(error, parts.measured), largest.name,
        percent(largest.time, parts.measured), largest.cause.empty() ? "" : " ", largest.cause,
        others.empty() ? "none" : others,
        parts.drift ? "" : " The drift of the machine is not known and counts as costs.", largest.advice);
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

namespace {

// By stage: the mean time that a micro-batch takes in the step.
std::vector<Ns> work_of_stages(const Trace& trace, int step) {
    std::vector<Ns> work(static_cast<std::size_t>(trace.stages), 0);
    std::vector<int> forwards(work.size(), 0);
    const std::vector<Ns> times = own_times(trace.events);
    for (std::size_t k = 0; k < trace.events.size(); ++k) {
        const TraceEvent& event = trace.events[k];
        if (!is_compute(event.task.op) || (!trace.asynchronous && event.step != step))
            continue;
        const auto stage = static_cast<std::size_t>(event.task.stage);
        work[stage] += times[k];
        forwards[stage] += event.task.op == Op::Forward ? 1 : 0;
    }
    for (std::size_t stage = 0; stage < work.size(); ++stage)
        work[stage] /= std::max(forwards[stage], 1);
    return work;
}

}  // namespace

ReplayedTrace replayed(const Report& measured, bool explained) {
    const Trace trace = with_updates(measured.trace);
    const TracedPlan traced(trace);
    const TransferMode& mode = traced.rules.mode;
    ReplayedTrace replay{trace.plan_hash,
                         trace.schedule,
                         measured.metrics.step,
                         measured.metrics.step_time,
                         mechanics_of(traced.plan, traced.proof, mode, trace, traced.rules.costs),
                         measured.names,
                         work_of_stages(trace, measured.metrics.step)};
    if (explained) {
        replay.explanation = explanation_of(traced.plan, traced.proof, mode, trace, traced.rules.costs);
        replay.answers = answers_of(measured, *replay.explanation, replay.mechanics);
        const Trace step = trace.asynchronous ? trace : only_step(trace, replay.step);
        replay.idle = idle_times(idle_of(step, traced, *replay.explanation), step);
    }
    return replay;
}

std::string slow_stage_of(const ReplayedTrace& replay) {
    const Explanation& all = *replay.explanation;
    const auto slowest = std::max_element(replay.work.begin(), replay.work.end());
    const auto stage = slowest - replay.work.begin();
    const Ns mean = std::accumulate(replay.work.begin(), replay.work.end(), Ns{0}) / std::ssize(replay.work);
    constexpr double kAlike = 1.01;
    const bool alike = static_cast<double>(*slowest) <= kAlike * static_cast<double>(mean);
    std::string text =
        alike ? fmt::format("All stages take about the same, the slowest, stage {}, {} for a micro-batch.\n", stage,
                            print_time(*slowest))
              : fmt::format(
                    "Stage {} is the slowest: {} for a micro-batch, and the mean of the stages is {}.\n"
                    "{} of {} of the critical path are its tasks.\n",
                    stage, print_time(*slowest), print_time(mean),
                    print_time(all.critical_of_stages[static_cast<std::size_t>(stage)]), print_time(all.makespan));
    const double change = part_of(all.balanced - all.makespan, all.makespan);
    constexpr double kLeast = -0.005;
    if (!(change <= kLeast))  // also of a step of no time
        return text + "Equal stages would not make the step shorter.\n";
    if (all.makespan == replay.step_time)
        return text + fmt::format("With equal stages the step would take {}, {} less.\n", print_time(all.balanced),
                                  print_percent(-change));
    const Ns saved = all.makespan - all.balanced;
    return text + fmt::format(
                      "With equal stages the replay would take {} instead of {}: {} less, {} of the measured step "
                      "of {}.\n",
                      print_time(all.balanced), print_time(all.makespan), print_time(saved),
                      print_percent(part_of(saved, replay.step_time)), print_time(replay.step_time));
}

namespace {

Json json_of_explained(const ReplayedTrace& replay) {
    const Explanation& all = *replay.explanation;
    Json json = to_json(all), stages = Json::array(), idle = Json::array();
    for (std::size_t device = 0; device < all.idle.size(); ++device) {
        Json causes;
        for (std::size_t cause = 0; cause < replay.idle->of.size(); ++cause)
            causes[cause == kHandOver ? "hand_over_ns" : kIdleCauses[cause].key] = replay.idle->of[cause][device];
        idle.push_back(std::move(causes));
    }
    for (std::size_t stage = 0; stage < replay.work.size(); ++stage)
        stages.push_back({{"work_ns", replay.work[stage]}, {"critical_ns", all.critical_of_stages[stage]}});
    json.update({{"answers", to_json(*replay.answers)},
                 {"measured_idle", std::move(idle)},
                 {"stages", std::move(stages)},
                 {"slowest_stage", std::max_element(replay.work.begin(), replay.work.end()) - replay.work.begin()},
                 {"makespan_ns", all.makespan},
                 {"balanced_ns", all.balanced}});
    return json;
}

std::string text_of_explained(const ReplayedTrace& replay) {
    const Explanation& all = *replay.explanation;
    Table stages({"stage", "of a micro-batch", "on the critical path", ""});
    for (std::size_t stage = 0; stage < replay.work.size(); ++stage)
        stages.add({fmt::format("{}", stage), print_time(replay.work[stage]), print_time(all.critical_of_stages[stage]),
                    print_percent(part_of(all.critical_of_stages[stage], all.makespan))});
    return fmt::format("\nIn the replay:{}\nAs measured, as pages draw it:\n{}\n{}\n{}\n{}",
                       to_text(all, replay.devices), table_of(rows_of(*replay.idle, replay.devices)).print(),
                       stages.print(), slow_stage_of(replay), to_text(*replay.answers, replay.devices));
}

}  // namespace

Json to_json(const ReplayedTrace& replay) {
    const Ns gap = replay.mechanics.total();
    Json json = {{"schema_version", 1},
                 {"plan_hash", replay.plan_hash},
                 {"schedule", replay.schedule},
                 {"step", replay.step},
                 {"step_time_ns", replay.step_time},
                 {"replayed_ns", replay.step_time + gap},
                 {"mechanics_ns", gap},
                 {"mechanics_error", part_of(gap, replay.step_time)},
                 {"mechanics", json_of_mechanics(replay.mechanics)}};
    if (replay.explanation)
        json["explanation"] = json_of_explained(replay);
    return json;
}

std::string to_text(const ReplayedTrace& replay) {
    const Ns step = replay.step_time, gap = replay.mechanics.total();
    Table table({"step time", "", "of the step"});
    table.add({"measured", print_time(step), ""});
    table.add({"replayed with its own task times", print_time(step + gap), percent(gap, step)});
    for (const auto& [name, time, words] : kBetween)
        if (const Ns part = replay.mechanics.*time; part != 0)
            table.add({fmt::format("  {}", name), fmt::format("{} ms", ms(part)), percent(part, step)});
    return table.print() + (replay.explanation ? text_of_explained(replay) : "");
}

}  // namespace pw

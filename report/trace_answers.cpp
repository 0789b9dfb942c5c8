#include "report/trace_answers.h"

#include "report/config_source.h"
#include "report/idle_causes.h"
#include "report/measured_config.h"
#include "report/predict.h"
#include "report/sweep.h"
#include "report/table.h"
#include "schedules/orders/schedule.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace pw {

namespace {

constexpr int kLeastSteps = 3;  // of which the first is left out

double share(Ns part, Ns of) { return of > 0 ? static_cast<double>(part) / static_cast<double>(of) : 0; }

int most_in_flight(const Metrics& metrics) {
    int most = 0;
    for (const DeviceMetrics& device : metrics.devices)
        most = std::max(most, device.peak_in_flight);
    return most;
}

std::vector<BubblePart> bubble_of(const Report& measured, const Explanation& explanation) {
    std::vector<BubblePart> parts;
    Ns rest = 0;
    for (const DeviceMetrics& device : measured.metrics.devices)
        rest += device.idle;
    for (const IdleCauseName& cause : kIdleCauses) {
        Ns time = 0;
        for (const IdleCauses& causes : explanation.idle)
            time += causes.*cause.time;
        rest -= time;
        if (time != 0)
            parts.push_back({cause.title, cause.key, time});
    }
    if (rest != 0)
        parts.push_back({"messages and dispatch", "mechanics_ns", rest});
    return parts;
}

std::vector<std::string> plain_schedules() {
    std::vector<std::string> names = schedules_in(std::string(kAllSchedules));
    std::erase_if(names, [](const std::string& name) {
        const Schedule& schedule = schedule_named(name);
        return schedule.needs_costs || schedule.asynchronous();
    });
    return names;
}

// Returns whether both hold the same stages on the same devices, and cut samples into as many slices.
bool is_like(const Trace& a, const Trace& b) { return a.stages_of == b.stages_of && a.slices == b.slices; }

// Returns the schedules that take less than the order of the trace, with the same times and stages on the same devices.
std::vector<StepChange> shorter_schedules(const Report& measured, Ns replayed) try {
    MeasuredConfig config = measured_config(measured);
    const auto source = [&] { return ConfigSource{"the trace", {}, print(config, "")}; };
    Notices notices;
    const Ns now =
        config.plan ? replayed : predict_numbers(make_job(source().load_with({}), notices)).metrics.step_time;
    config.plan.reset();
    config.schedule = "schedule: gpipe";
    std::vector<StepChange> changes;
    for (const SweepPoint& point : simulate_schedules(source(), plain_schedules(), {}, false).points)
        if (point.report && point.report->metrics.step_time < now && is_like(point.report->trace, measured.trace))
            changes.push_back({"schedule " + point.report->trace.schedule, point.report->trace.schedule,
                               now - point.report->metrics.step_time, most_in_flight(point.report->metrics)});
    std::stable_sort(changes.begin(), changes.end(), [](const StepChange& a, const StepChange& b) {
        return std::pair(-a.saved, a.in_flight) < std::pair(-b.saved, b.in_flight);
    });
    const auto same = [](const StepChange& a, const StepChange& b) { return a.saved == b.saved; };
    changes.erase(std::unique(changes.begin(), changes.end(), same), changes.end());
    constexpr std::size_t kMost = 3;
    changes.resize(std::min(changes.size(), kMost));
    return changes;
} catch (const Error&) {  // no config has the stages of the trace, or no schedule suits them
    return {};
}

std::vector<StepChange> changes_of(const Report& measured, const Explanation& explanation, const Mechanics& mechanics) {
    std::vector<StepChange> changes = shorter_schedules(measured, explanation.makespan);
    changes.push_back({"equal stages", "", explanation.makespan - explanation.balanced});
    changes.push_back({"messages that take no time", "", -mechanics.hand_over});
    changes.push_back({"no time between tasks that need not wait", "", -mechanics.dispatch});
    std::erase_if(changes, [](const StepChange& change) { return change.saved <= 0; });
    std::stable_sort(changes.begin(), changes.end(),
                     [](const StepChange& a, const StepChange& b) { return a.saved > b.saved; });
    return changes;
}

Ns median_of(std::vector<Ns> times) {
    if (times.empty())
        return 0;
    const auto middle = times.begin() + (std::ssize(times) - 1) / 2;
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
}

// By device, then by step: the time in tasks that compute.
std::vector<std::map<int, Ns>> work_by_step(const Trace& trace) {
    std::vector<std::map<int, Ns>> work(static_cast<std::size_t>(trace.devices));
    const std::vector<Ns> times = own_times(trace.events);
    for (std::size_t k = 0; k < times.size(); ++k)
        if (const TraceEvent& event = trace.events[k]; is_compute(event.task.op))
            work[static_cast<std::size_t>(event.device)][event.step] += times[k];
    return work;
}

// As metrics do, leaves out the first step.
void add_steps(const Trace& trace, TraceAnswers& answers) {
    constexpr double kSlow = 1.05;
    constexpr std::size_t kMostShown = 8;
    std::vector<Ns> times = step_times(trace);
    answers.steps = static_cast<int>(times.size());
    if (trace.asynchronous || answers.steps < kLeastSteps)
        return;
    std::set<int> steps;
    for (const TraceEvent& event : trace.events)
        steps.insert(event.step);
    std::vector<std::map<int, Ns>> work = work_by_step(trace);
    for (std::map<int, Ns>& by_step : work)
        by_step.erase(*steps.begin());
    steps.erase(steps.begin());
    times.erase(times.begin());
    answers.median = median_of(times);
    std::vector<Ns> usual;
    for (const std::map<int, Ns>& by_step : work) {
        std::vector<Ns> of_steps;
        for (const auto& [step, time] : by_step)
            of_steps.push_back(time);
        usual.push_back(median_of(of_steps));
    }
    auto next = times.begin();
    for (const int step : steps) {
        const Ns time = *next++;
        if (static_cast<double>(time) <= kSlow * static_cast<double>(answers.median))
            continue;
        SlowStep slow{step, time, 0, 0};
        for (std::size_t device = 0; device < work.size(); ++device)
            if (const auto found = work[device].find(step); found != work[device].end())
                if (const Ns more = found->second - usual[device]; more > slow.more) {
                    slow.device = static_cast<int>(device);
                    slow.more = more;
                }
        answers.slow_steps.push_back(slow);
    }
    std::stable_sort(answers.slow_steps.begin(), answers.slow_steps.end(),
                     [](const SlowStep& a, const SlowStep& b) { return a.time > b.time; });
    answers.slow_steps.resize(std::min(answers.slow_steps.size(), kMostShown));
}

using Rows = std::vector<std::vector<std::string>>;

Rows bubble_rows(const TraceAnswers& answers) {
    Rows rows = {{"bubble by cause", "on all devices", "of their time"}};
    Ns idle = 0;
    for (const BubblePart& part : answers.bubble) {
        rows.push_back({part.title, print_time(part.time), print_percent(share(part.time, answers.device_time))});
        idle += part.time;
    }
    rows.push_back({"all", print_time(idle), print_percent(share(idle, answers.device_time))});
    return rows;
}

Rows change_rows(const TraceAnswers& answers) {
    Rows rows = {{"with", "the step takes", "less", "in flight"}};
    rows.push_back({"nothing changed", print_time(answers.step_time), "", fmt::format("{}", answers.in_flight)});
    for (const StepChange& change : answers.changes)
        rows.push_back({change.what, print_time(answers.step_time - change.saved),
                        print_percent(share(change.saved, answers.step_time)),
                        change.schedule.empty() ? "" : fmt::format("{}", change.in_flight)});
    return rows;
}

Rows step_rows(const TraceAnswers& answers, const std::vector<std::string>& devices) {
    Rows rows = {{"slow step", "time", "over the median", "device over its own median most", "by"}};
    for (const SlowStep& slow : answers.slow_steps)
        rows.push_back({fmt::format("{}", slow.step), print_time(slow.time), print_time(slow.time - answers.median),
                        slow.more > 0 ? devices[static_cast<std::size_t>(slow.device)] : "-",
                        slow.more > 0 ? print_time(slow.more) : "-"});
    return rows;
}

std::string text_of(const Rows& rows) { return table_of(rows).print(); }

std::string words_on_steps(const TraceAnswers& answers) {
    if (answers.median == 0)
        return "";
    if (answers.slow_steps.empty())
        return fmt::format("No step after the first of {} takes 5 % more than the median, {}.\n", answers.steps,
                           print_time(answers.median));
    return fmt::format("Steps after the first: {}, in the median {}.\n", answers.steps - 1, print_time(answers.median));
}

}  // namespace

TraceAnswers answers_of(const Report& measured, const Explanation& explanation, const Mechanics& mechanics) {
    TraceAnswers answers;
    answers.step_time = measured.metrics.step_time;
    for (const DeviceMetrics& device : measured.metrics.devices)
        answers.device_time += device.busy + device.idle;
    answers.bubble = bubble_of(measured, explanation);
    answers.changes = changes_of(measured, explanation, mechanics);
    answers.in_flight = most_in_flight(measured.metrics);
    add_steps(measured.trace, answers);
    answers.hosts = times_of_hosts(measured.trace);
    return answers;
}

std::string to_text(const TraceAnswers& answers, const std::vector<std::string>& devices) {
    std::string text = fmt::format("{}\n{}", text_of(bubble_rows(answers)), text_of(change_rows(answers)));
    if (const std::string steps = words_on_steps(answers); !steps.empty())
        text += "\n" + steps;
    if (!answers.slow_steps.empty())
        text += text_of(step_rows(answers, devices));
    if (!answers.hosts.empty())
        text += fmt::format("\n{}{}", text_of(rows_of(answers.hosts)), words_on_hosts(answers.hosts));
    return text;
}

Json to_json(const TraceAnswers& answers) {
    Json bubble, changes = Json::array(), slow = Json::array();
    for (const BubblePart& part : answers.bubble)
        bubble[part.key] = part.time;
    for (const StepChange& change : answers.changes) {
        changes.push_back(
            {{"with", change.what}, {"step_time_ns", answers.step_time - change.saved}, {"saved_ns", change.saved}});
        if (!change.schedule.empty())
            changes.back().update({{"schedule", change.schedule}, {"in_flight", change.in_flight}});
    }
    for (const SlowStep& step : answers.slow_steps)
        slow.push_back(
            {{"step", step.step}, {"step_time_ns", step.time}, {"device", step.device}, {"over_median_ns", step.more}});
    return {
        {"device_time_ns", answers.device_time}, {"bubble", std::move(bubble)},    {"in_flight", answers.in_flight},
        {"changes", std::move(changes)},         {"steps", answers.steps},         {"median_step_ns", answers.median},
        {"slow_steps", std::move(slow)},         {"hosts", to_json(answers.hosts)}};
}

std::vector<PanelTable> tables_of(const TraceAnswers& answers, const std::vector<std::string>& devices) {
    std::vector<PanelTable> tables = {{"What would shorten the step", change_rows(answers)}};
    if (!answers.slow_steps.empty())
        tables.push_back({"Slow steps", step_rows(answers, devices)});
    if (!answers.hosts.empty())
        tables.push_back({"Hosts", rows_of(answers.hosts)});
    return tables;
}

}  // namespace pw

#include "report/panels.h"

#include "report/answers.h"
#include "report/error_parts.h"
#include "report/idle_causes.h"
#include "report/measured_idle.h"
#include "report/table.h"
#include "report/traced_plan.h"
#include "sim/replay.h"
#include "workloads/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace pw {

namespace {

std::vector<PanelCause> panel_causes() {
    std::vector<PanelCause> causes;
    for (const IdleCauseName& cause : kIdleCauses)
        causes.push_back({cause.title, cause.words});
    causes.push_back({"hand-over", "all inputs are there, and the task has not begun"});  // of measured traces
    return causes;
}

// The idle time that the panel draws, with its updates, which are tasks in the picture.
PanelTable idle_table(const Panel& panel, const char* title, const std::vector<Ns>* imbalance) {
    IdleTimes times(panel.trace->devices);
    for (const PanelGap& gap : panel.gaps)
        times.of[gap.cause][gap.device] += gap.to - gap.from;
    times.add_updates(*panel.trace);
    if (imbalance != nullptr)
        for (std::size_t device = 0; device < imbalance->size(); ++device) {
            times.of[number_of(&IdleCauses::imbalance)][device] += (*imbalance)[device];
            times.of[number_of(&IdleCauses::dependency)][device] -= (*imbalance)[device];
        }
    return {title, rows_of(times, panel.names)};
}

// Tasks that compute, by device.
PanelTable slack_table(const Panel& panel) {
    std::vector<std::vector<Ns>> slack(static_cast<std::size_t>(panel.trace->devices));
    std::vector<Ns> critical(slack.size(), 0);
    const std::vector<Ns> times = own_times(panel.trace->events);
    for (std::size_t k = 0; k < panel.trace->events.size(); ++k) {
        const TraceEvent& event = panel.trace->events[k];
        if (panel.critical[k] != 0 && !moves_data(event.task.op))
            critical[event.device] += times[k];
        if (is_compute(event.task.op))
            slack[event.device].push_back(panel.slack[k]);
    }
    PanelTable table{"Critical path and slack",
                     {{"device", "on the critical path", "tasks", "without slack", "median slack", "largest slack"}}};
    for (std::size_t device = 0; device < slack.size(); ++device) {
        std::vector<Ns>& own = slack[device];
        if (own.empty())
            continue;
        std::ranges::sort(own);
        table.rows.push_back({device < panel.names.size() ? panel.names[device] : std::to_string(device),
                              print_time(critical[device]), std::to_string(own.size()),
                              std::to_string(std::ranges::count_if(own, [](Ns time) { return time <= 0; })),
                              print_time(own[own.size() / 2]), print_time(own.back())});
    }
    return table;
}

// Where each event of the whole trace is in the part that is drawn, or -1.
std::vector<int> places_in(const Trace& drawn, const Trace& whole) {
    std::vector<int> places;
    places.reserve(whole.events.size());
    std::size_t next = 0;
    for (const TraceEvent& event : whole.events) {
        const bool is_drawn = next < drawn.events.size() && drawn.events[next] == event;
        places.push_back(is_drawn ? static_cast<int>(next++) : -1);
    }
    if (next != drawn.events.size())
        fail("the picture has events that its trace lacks");
    return places;
}

int at(const std::vector<int>& places, int event) { return event < 0 ? -1 : places[static_cast<std::size_t>(event)]; }

// `begin` is when the trace begins.
void add_gaps(Panel& panel, const std::vector<IdlePart>& parts, const std::vector<int>& places, Ns begin) {
    panel.causes = panel_causes();
    Ns end = 0;
    for (const TraceEvent& event : panel.trace->events)
        end = std::max(end, event.end);
    for (const IdlePart& part : parts) {
        const PanelGap gap{part.device,           begin + part.from,          std::min(begin + part.to, end),
                           number_of(part.cause), at(places, part.waits_for), part.with_equal_stages};
        if (gap.from < gap.to)
            panel.gaps.push_back(gap);
    }
}

void add_nodes(Panel& panel, const std::vector<int>& places, const std::vector<int>& last_inputs,
               const Explanation& explanation) {
    const std::size_t events = panel.trace->events.size();
    panel.waits_for.assign(events, -1);
    panel.slack.assign(events, 0);
    panel.critical.assign(events, 0);
    for (std::size_t node = 0; node < places.size(); ++node)
        if (places[node] >= 0) {
            panel.waits_for[places[node]] = at(places, last_inputs[node]);
            panel.slack[places[node]] = explanation.slack[node];
        }
    for (const int node : explanation.path)
        if (at(places, node) >= 0)
            panel.critical[at(places, node)] = 1;
}

// What a page says of the cluster of which the devices in the picture are one replica's stages.
PanelTable cluster_table(const ClusterRate& cluster) {
    PanelTable table{"The whole cluster",
                     {{"quantity", "value"},
                      {"devices", std::to_string(cluster.devices)},
                      {"parallel", cluster.degrees},
                      {"tokens/s", fmt::format("{:.5g}", cluster.tokens_per_second)},
                      {"of the peak (MFU)", print_percent(cluster.utilisation)}}};
    if (cluster.step)
        for (const StepPartFacts& facts : kStepParts)
            if (const Ns time = (*cluster.step)[facts.part]; time != 0)
                table.rows.push_back({fmt::format("step: {}", facts.words), print_time(time)});
    return table;
}

}  // namespace

Panel panel_of(const Report& report, const Trace& drawn) {
    const Metrics& metrics = report.metrics;
    Panel panel{&drawn, title_of(report)};
    panel.names = report.names;
    for (const Bytes limit : report.limits)
        panel.limits.push_back(limit == kUnlimited ? std::nullopt : std::optional(limit));
    panel.numbers = {
        {"step time", print_time(metrics.step_time), static_cast<double>(metrics.step_time)},
        {"bubble rate", print_percent(metrics.bubble_rate), metrics.bubble_rate},
        {"samples/s", print_rate(metrics.samples_per_second, false), metrics.samples_per_second},
        {"peak memory", print_bytes(largest_peak(report)), static_cast<double>(largest_peak(report))},
    };
    if (report.cluster)
        panel.tables.push_back(cluster_table(*report.cluster));
    return panel;
}

void add_explanation(Panel& panel, const Explanation& explanation) {
    std::vector<int> places(explanation.slack.size());
    for (std::size_t node = 0; node < places.size(); ++node)
        places[node] = static_cast<int>(node);
    add_gaps(panel, explanation.parts, places, begin_of(*panel.trace));
    add_nodes(panel, places, explanation.last_inputs, explanation);
    std::vector<Ns> imbalance;
    for (const IdleCauses& idle : explanation.idle)
        imbalance.push_back(idle.imbalance);
    panel.tables.push_back(idle_table(panel, "Idle time by cause", &imbalance));
    panel.tables.push_back(slack_table(panel));
}

void explain_trace(Panel& panel, const Trace& whole) {
    Panel explained = panel;
    try {
        const Trace trace = with_updates(whole);
        const TracedPlan traced(trace);
        const Explanation all = explanation_of(traced.plan, traced.proof, traced.rules.mode, trace, traced.rules.costs);
        const std::vector<int> places = places_in(*panel.trace, trace);
        add_gaps(explained, idle_of(trace, traced, all), places, begin_of(trace));
        std::vector<Ns> ends;
        for (const TraceEvent& event : trace.events)
            ends.push_back(event.end);
        add_nodes(explained, places, last_inputs(traced.proof->graph, ends), all);
        explained.tables.push_back(idle_table(
            explained, trace.label == kPredicted ? "Idle time by cause" : "Idle time by cause, as measured", nullptr));
        explained.tables.push_back(slack_table(explained));
    } catch (const Error&) {
        return;  // traces of other programs need not have a whole plan
    }
    panel = std::move(explained);
}

namespace {

std::vector<int> steps_of(const Trace& trace) {
    std::vector<int> steps;
    for (const TraceEvent& event : trace.events)
        steps.push_back(event.step);
    std::ranges::sort(steps);
    steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
    return steps;
}

// Explains each step of a synchronous trace on its own, since a plan is one step. The tables of a step are left out.
void explain_steps(Panel& panel, const std::vector<int>& steps) {
    const std::vector<TraceEvent>& events = panel.trace->events;
    for (const int step : steps) {
        std::vector<int> places;  // of the step's events in the panel
        Ns begin = std::numeric_limits<Ns>::max();
        for (std::size_t event = 0; event < events.size(); ++event)
            if (events[event].step == step) {
                places.push_back(static_cast<int>(event));
                begin = std::min(begin, events[event].start);
            }
        const Trace trace = only_step(*panel.trace, step);
        Panel explained{&trace, ""};
        explain_trace(explained, trace);
        if (explained.critical.empty())
            continue;
        panel.causes = explained.causes;
        for (PanelGap gap : explained.gaps) {
            gap.from += begin;
            gap.to += begin;
            gap.waits_for = at(places, gap.waits_for);
            panel.gaps.push_back(gap);
        }
        panel.waits_for.resize(events.size(), -1);
        panel.slack.resize(events.size(), 0);
        panel.critical.resize(events.size(), 0);
        for (std::size_t event = 0; event < places.size(); ++event) {
            const auto place = static_cast<std::size_t>(places[event]);
            panel.waits_for[place] = at(places, explained.waits_for[event]);
            panel.slack[place] = explained.slack[event];
            panel.critical[place] = explained.critical[event];
        }
    }
    std::ranges::stable_sort(panel.gaps, {}, [](const PanelGap& gap) { return std::pair(gap.device, gap.from); });
}

// Adds what the trace of another program answers, before further tables.
void add_answers(Panel& panel, const Report& report) try {
    const ReplayedTrace replay = replayed(report, true);
    std::vector<PanelTable> tables = tables_of(*replay.answers, replay.devices);
    tables.push_back({"Idle time by cause, in the replay", rows_of(*replay.explanation, replay.devices)});
    panel.tables.insert(panel.tables.begin(), tables.begin(), tables.end());
    if (std::ranges::any_of(replay.answers->hosts, &HostTimes::is_slow))
        panel.advice = words_on_hosts(replay.answers->hosts);
} catch (const Error&) {  // such a trace need not have a whole plan
}

}  // namespace

Panel drawn_panel(const Report& report, const Trace& drawn, const std::string& file) {
    Panel panel = panel_of(report, drawn);
    if (!shows_causes(file))
        return panel;
    const std::vector<int> steps = steps_of(drawn);
    if (drawn.asynchronous || steps.size() == 1)
        explain_trace(panel, drawn.asynchronous ? report.trace : drawn);
    else
        explain_steps(panel, steps);
    if (report.trace.schedule == kForeign)
        add_answers(panel, report);
    return panel;
}

}  // namespace pw

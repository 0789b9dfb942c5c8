#include "viz/picture.h"

#include "viz/formats.h"
#include "workloads/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <map>
#include <set>

namespace pw {

namespace {

constexpr int kMaxLanes = 6;  // further overlapping tasks are drawn on top of each other

int row_of(Op op) { return moves_data(op) ? 1 : 0; }

// Returns the stages of every device in the order of their shades: ascending. Where no two stages run the same
// micro-batch, the stages that run the first micro-batches come first. So each copy of a model in two directions has a
// single shade.
std::vector<std::vector<int>> shown_stages(const Trace& trace) {
    std::vector<std::map<int, std::set<int>>> run(trace.stages_of.size());  // by device and stage: micro-batches
    for (const TraceEvent& event : trace.events)
        if (event.task.op == Op::Forward && event.device < std::ssize(run))
            run[event.device][event.task.stage].insert(event.task.microbatch);
    std::vector<std::vector<int>> shown = trace.stages_of;
    for (std::size_t device = 0; device < run.size(); ++device) {
        std::set<int> all;
        std::size_t count = 0;
        for (const auto& [stage, microbatches] : run[device]) {
            all.insert(microbatches.begin(), microbatches.end());
            count += microbatches.size();
        }
        const auto first_of = [&](int stage) {
            const auto found = run[device].find(stage);
            return found == run[device].end() ? std::numeric_limits<int>::max() : *found->second.begin();
        };
        if (all.size() == count)
            std::ranges::stable_sort(shown[device], {}, first_of);
    }
    return shown;
}

int chunk_of(const std::vector<std::vector<int>>& stages_of, const TraceEvent& event) {
    if (event.device >= std::ssize(stages_of))
        return 0;
    const std::vector<int>& stages = stages_of[event.device];
    const auto found = std::find(stages.begin(), stages.end(), event.task.stage);
    return found == stages.end() ? 0 : static_cast<int>(found - stages.begin());
}

void check(const Panel& panel, int most) {
    if (!panel.trace)
        fail("panel '{}' has no trace", panel.title);
    const Trace& trace = *panel.trace;
    if (trace.events.empty())
        fail("panel '{}': the trace has no events to draw", panel.title);
    check_height(panel.title, trace.devices, most);
    for (const TraceEvent& event : trace.events)
        if (event.device < 0 || event.device >= trace.devices || event.end < event.start)
            fail("panel '{}': event {} on device {} from {} to {} ns does not fit a trace of {} devices", panel.title,
                 print(event.task), event.device, event.start, event.end, trace.devices);
}

bool has_several_versions(const Trace& trace) {
    std::set<int> versions;
    for (const TraceEvent& event : trace.events)
        if (is_compute(event.task.op) && event.version >= 0)
            versions.insert(event.version);
    return versions.size() > 1;
}

// Sets how many lanes are shared by tasks that overlap each other. Tasks that overlap nothing have the whole height.
void share_height(std::vector<Box>& tasks, Ns slack) {
    std::vector<Box*> sorted;
    for (Box& box : tasks)
        sorted.push_back(&box);
    std::ranges::stable_sort(sorted, {}, [](const Box* box) { return box->start; });
    Ns end = 0;
    for (std::size_t first = 0, next = 0; first < sorted.size(); first = next) {
        int lanes = 1;
        for (end = sorted[first]->end; next < sorted.size() && (next == first || sorted[next]->start < end - slack);
             ++next) {
            end = std::max(end, sorted[next]->end);
            lanes = std::max(lanes, sorted[next]->lane + 1);
        }
        for (std::size_t k = first; k < next; ++k)
            sorted[k]->lanes = lanes;
    }
}

Timeline timeline_of(const Panel& panel, int most) {
    check(panel, most);
    const Trace& trace = *panel.trace;
    Timeline timeline;
    timeline.title = panel.title;
    timeline.name = trace.label.empty() ? panel.title : trace.label;
    timeline.has_versions = has_several_versions(trace);
    Trace head;  // for labels
    head.stages_of = shown_stages(trace);
    for (int device = 0; device < trace.devices; ++device)
        timeline.rows.push_back({device, device_label(head, device, " · ", ""), {}, {}, {}});
    for (const std::vector<int>& stages : trace.stages_of)
        timeline.chunks = std::max(timeline.chunks, static_cast<int>(stages.size()));

    Ns begin = std::numeric_limits<Ns>::max(), end = 0;
    for (const TraceEvent& event : trace.events) {
        begin = std::min(begin, event.start);
        end = std::max(end, event.end);
    }
    timeline.length = end - begin;
    // Tasks that touch by a rounding of clocks do not overlap.
    const std::vector<int> lanes = lanes_of(trace, row_of, timeline.length / 2000);
    for (std::size_t i = 0; i < trace.events.size(); ++i) {
        const TraceEvent& event = trace.events[i];
        const bool transfer = moves_data(event.task.op);
        const int lane = std::min(lanes[i], kMaxLanes - 1);
        Row& row = timeline.rows[event.device];
        (transfer ? row.transfers : row.tasks)
            .push_back({&event, event.start - begin, event.end - begin, chunk_of(head.stages_of, event), lane, 1});
        timeline.has_transfers = timeline.has_transfers || transfer;
        timeline.has_predictions = timeline.has_predictions || event.ahead > 0;
        if (!transfer)
            timeline.lanes = std::max(timeline.lanes, lane + 1);
    }
    if (timeline.lanes > 1)
        for (Row& row : timeline.rows)
            share_height(row.tasks, timeline.length / 2000);
    for (const MemorySample& sample : trace.memory)
        if (sample.device >= 0 && sample.device < trace.devices)
            timeline.rows[sample.device].memory.emplace_back(std::clamp<Ns>(sample.time - begin, 0, timeline.length),
                                                             total(sample.use));
    return timeline;
}

// If there are two curves, a predicted curve next to a measured curve is dashed, or the later curve if both are of a
// kind. If there are more, the curves that repeat a colour are dashed. Traces of the same kind have the names of their
// schedules, or numbers.
void choose_dashes(std::vector<Timeline>& timelines, const std::vector<Panel>& panels) {
    const auto same = [&](const Timeline& timeline) { return timeline.name == timelines[0].name; };
    const bool alike = std::all_of(timelines.begin(), timelines.end(), same);
    std::set<std::string> schedules;
    for (const Panel& panel : panels)
        if (!panel.trace->schedule.empty())
            schedules.insert(panel.trace->schedule);
    for (std::size_t i = 0; i < timelines.size(); ++i) {
        if (timelines.size() > 2)
            timelines[i].dashed = i >= kSeriesColours;
        else
            timelines[i].dashed = alike ? i > 0 : timelines[i].name == "predicted";
        if (alike && timelines.size() > 1)
            timelines[i].name =
                schedules.size() == timelines.size() ? panels[i].trace->schedule : fmt::format("panel {}", i + 1);
    }
}

Colour mix(Colour from, Colour to, double part) {
    Colour mixed = 0;
    for (const int shift : {16, 8, 0}) {
        const double a = (from >> shift) & 0xff, b = (to >> shift) & 0xff;
        mixed |= static_cast<Colour>(a + (b - a) * part + 0.5) << shift;
    }
    return mixed;
}

}  // namespace

void check_height(const std::string& what, int devices, int most) {
    if (devices > most)
        fail(
            "cannot draw '{}': it shows up to {} devices, the trace has {}\n  help: write {}.json and open it in "
            "Perfetto",
            what, most, devices,
            devices <= kMostDevicesOfPage ? fmt::format(".html, which shows up to {}, or ", kMostDevicesOfPage) : "");
}

Picture picture_of(const std::vector<Panel>& panels, int most) {
    if (panels.empty())
        fail("there is no trace to draw");
    Picture picture;
    for (const Panel& panel : panels) {
        picture.timelines.push_back(timeline_of(panel, most));
        picture.length = std::max(picture.length, picture.timelines.back().length);
        for (const Row& row : picture.timelines.back().rows)
            for (const auto& [time, bytes] : row.memory)
                picture.memory = std::max(picture.memory, bytes);
    }
    choose_dashes(picture.timelines, panels);
    picture.time = time_unit_for(picture.length);
    picture.bytes = bytes_unit_for(picture.memory);
    return picture;
}

Unit time_unit_for(Ns length) {
    if (length < 2'000)
        return {"ns", 1};
    if (length < 2'000'000)
        return {"us", 1e3};
    if (length < 20'000'000'000)
        return {"ms", 1e6};
    return {"s", 1e9};
}

Unit bytes_unit_for(Bytes size) {
    constexpr std::string_view kNames[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    std::size_t i = 0;
    double unit = 1;
    for (; i + 1 < std::size(kNames) && static_cast<double>(size) >= 1.5 * 1024 * unit; ++i)
        unit *= 1024;
    return {kNames[i], unit};
}

std::string hex(Colour colour) { return fmt::format("#{:06x}", colour); }

Colour colour_of(Op op, int chunk, int chunks) {
    const Colour colour = facts_of(op).colour;
    if (moves_data(op) || chunks <= 1)
        return colour;
    return mix(colour, 0xffffff, 0.6 * chunk / (chunks - 1));
}

Colour text_colour_on(Colour background) {
    const double light =
        0.299 * ((background >> 16) & 0xff) + 0.587 * ((background >> 8) & 0xff) + 0.114 * (background & 0xff);
    return light > 140 ? 0x1f2328 : 0xffffff;
}

// Along viridis without its lightest end.
Colour curve_colour(int device, int devices) {
    constexpr Colour kStops[] = {0x440154, 0x3b528b, 0x21918c, 0x5ec962, 0xd8c51f};
    const double at = devices <= 1 ? 1.0 : 4.0 * device / (devices - 1);
    const int stop = std::min(static_cast<int>(at), 3);
    return mix(kStops[stop], kStops[stop + 1], at - stop);
}

Colour series_colour(std::size_t number) {
    constexpr Colour kColours[kSeriesColours] = {0x2f6db5, 0xe08214, 0x0b8a7d, 0x9a6bb5, 0x444c56,
                                                 0x8fbf4d, 0xb3261e, 0x8c5a2b, 0x45b5d8, 0xd36ba6};
    return kColours[number % kSeriesColours];
}

std::string version_label(const TraceEvent& event) {
    const std::string version = fmt::format("v{}", event.version);
    return event.ahead > 0 ? fmt::format("{}+{}", version, event.ahead) : version;
}

std::string_view words_in_legend(Op op) {
    if (is_copy(op))
        return "host copies";
    if (!is_transfer(op))
        return words_of(op);
    return carries_gradients(op) ? "gradients" : "activations";
}

Op shown_as(Op op) { return is_recv(op) ? *facts_of(op).other_end : is_copy(op) ? Op::Offload : op; }

std::vector<Op> legend_of(const Picture& picture) {
    std::set<Op> ops;
    for (const Timeline& timeline : picture.timelines)
        for (const Row& row : timeline.rows) {
            for (const Box& box : row.tasks)
                ops.insert(box.event->task.op);
            for (const Box& box : row.transfers) {
                const Op op = box.event->task.op;
                ops.insert(shown_as(op));
            }
        }
    return {ops.begin(), ops.end()};
}

}  // namespace pw

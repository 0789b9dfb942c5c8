// Writes traces as one page with everything inside: the data in columns, the script that draws them on canvases, and
// tables. The scripts and styles are the remaining files of this folder.
#include "schedules/trace/device_groups.h"
#include "viz/formats.h"
#include "viz/html.h"
#include "viz/page/assets.h"
#include "viz/page/columns.h"
#include "viz/picture.h"
#include "viz/view.h"
#include "workloads/text/files.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace pw {

namespace {

using nlohmann::ordered_json;
using Values = std::vector<std::int64_t>;

// What the page has of every box, a column each.
struct BoxColumn {
    std::string_view name;
    std::int64_t (*of)(const Box& box);
};
constexpr BoxColumn kBoxColumns[] = {
    {"start", [](const Box& box) -> std::int64_t { return box.start; }},
    {"duration", [](const Box& box) -> std::int64_t { return box.end - box.start; }},
    {"op", [](const Box& box) -> std::int64_t { return static_cast<int>(box.event->task.op); }},
    {"stage", [](const Box& box) -> std::int64_t { return box.event->task.stage; }},
    {"microbatch", [](const Box& box) -> std::int64_t { return box.event->task.whole(); }},
    {"slice", [](const Box& box) -> std::int64_t { return box.event->task.slice(); }},
    {"bytes", [](const Box& box) -> std::int64_t { return box.event->bytes; }},
    {"version", [](const Box& box) -> std::int64_t { return box.event->version; }},
    {"ahead", [](const Box& box) -> std::int64_t { return box.event->ahead; }},
    {"peer", [](const Box& box) -> std::int64_t { return box.event->task.peer; }},
    {"chunk", [](const Box& box) -> std::int64_t { return box.chunk; }},
    {"step", [](const Box& box) -> std::int64_t { return box.event->step; }},
};

// The boxes in the order of the page: device by device, its lanes of tasks, its sends, its receives, each by time.
// Where tasks overlap, the first lane has the tasks that overlap no other.
class BoxOrder {
public:
    BoxOrder(const Timeline& timeline, const Trace& trace) : position_(trace.events.size(), -1) {
        for (const Row& row : timeline.rows) {
            std::vector<std::pair<int, const Box*>> boxes;  // lane
            for (const Box& box : row.tasks)
                boxes.emplace_back(box.lanes == 1 ? 0 : box.lane + 1, &box);
            for (const Box& box : row.transfers)
                boxes.emplace_back(brings_data(box.event->task.op) ? kReceives : kSends, &box);
            std::stable_sort(boxes.begin(), boxes.end(), [](const auto& a, const auto& b) {
                return std::tuple(a.first, a.second->start) < std::tuple(b.first, b.second->start);
            });
            std::vector<int> lanes(static_cast<std::size_t>(timeline.lanes > 1 ? timeline.lanes + 1 : 1), 0);
            int sends = 0, receives = 0;
            for (const auto& [lane, box] : boxes) {
                position_[static_cast<std::size_t>(box->event - trace.events.data())] =
                    static_cast<std::int64_t>(boxes_.size());
                boxes_.push_back(box);
                ++(lane == kSends ? sends : lane == kReceives ? receives : lanes[static_cast<std::size_t>(lane)]);
            }
            counts_.push_back({{"lanes", lanes}, {"sends", sends}, {"receives", receives}});
        }
    }

    const std::vector<const Box*>& boxes() const { return boxes_; }
    // Returns the box of an event. Returns -1 for none.
    std::int64_t of_event(int event) const { return event < 0 ? -1 : position_[static_cast<std::size_t>(event)]; }
    const ordered_json& counts_of_rows() const { return counts_; }

private:
    static constexpr int kSends = 1 << 20, kReceives = kSends + 1;  // after all lanes
    std::vector<std::int64_t> position_;
    std::vector<const Box*> boxes_;
    ordered_json counts_ = ordered_json::array();
};

template <class Items, class Value>
Values values_of(const Items& items, Value value) {
    Values values;
    values.reserve(items.size());
    for (const auto& item : items)
        values.push_back(value(item));
    return values;
}

ordered_json json_of_boxes(const Panel& panel, const BoxOrder& order, Columns& columns) {
    const std::vector<const Box*>& boxes = order.boxes();
    ordered_json json;
    for (const BoxColumn& column : kBoxColumns)
        json[std::string(column.name)] = columns.add(values_of(boxes, [&](const Box* box) { return column.of(*box); }));
    const auto number_of = [&](const Box* box) {
        return static_cast<std::size_t>(box->event - panel.trace->events.data());
    };
    if (!panel.waits_for.empty())  // how far back: alike for many neighbours
        json["back"] = columns.add(values_of(boxes, [&, at = std::int64_t{0}](const Box* box) mutable {
            const std::int64_t input = order.of_event(panel.waits_for[number_of(box)]), own = at++;
            return input < 0 ? 0 : own - input;
        }));
    if (!panel.slack.empty())
        json["slack"] = columns.add(values_of(boxes, [&](const Box* box) { return panel.slack[number_of(box)]; }));
    if (!panel.critical.empty())
        json["critical"] = columns.add(
            values_of(boxes, [&](const Box* box) { return std::int64_t{panel.critical[number_of(box)] != 0}; }));
    return json;
}

ordered_json json_of_gaps(const Panel& panel, const BoxOrder& order, Ns begin, Columns& columns) {
    Values counts(static_cast<std::size_t>(panel.trace->devices), 0);
    for (const PanelGap& gap : panel.gaps)
        ++counts[static_cast<std::size_t>(gap.device)];
    const auto column = [&](auto value) { return columns.add(values_of(panel.gaps, value)); };
    return {{"counts", columns.add(counts)},
            {"start", column([&](const PanelGap& gap) { return gap.from - begin; })},
            {"duration", column([](const PanelGap& gap) { return gap.to - gap.from; })},
            {"cause", column([](const PanelGap& gap) { return std::int64_t{gap.cause}; })},
            {"waits_for", column([&](const PanelGap& gap) { return order.of_event(gap.waits_for); })},
            {"equal", column([](const PanelGap& gap) { return gap.with_equal_stages; })}};
}

ordered_json json_of_memory(const Timeline& timeline, Columns& columns) {
    Values counts, times, bytes;
    for (const Row& row : timeline.rows) {
        counts.push_back(std::ssize(row.memory));
        for (const auto& [time, use] : row.memory) {
            times.push_back(time);
            bytes.push_back(use);
        }
    }
    return {{"counts", columns.add(counts)}, {"time", columns.add(times)}, {"bytes", columns.add(bytes)}};
}

ordered_json json_of_groups(const Trace& trace) {
    ordered_json all = ordered_json::array();
    for (const DeviceGroups& groups : groups_of(trace))
        all.push_back({{"kind", groups.kind}, {"names", groups.names}, {"of", groups.of}});
    return all;
}

ordered_json json_of_panel(const Panel& panel, const Timeline& timeline, std::size_t number, Columns& columns) {
    const Trace& trace = *panel.trace;
    Ns begin = trace.events.front().start;
    for (const TraceEvent& event : trace.events)
        begin = std::min(begin, event.start);
    const BoxOrder order(timeline, trace);
    ordered_json labels = ordered_json::array(), limits = ordered_json::array(), causes = ordered_json::array();
    for (const Row& row : timeline.rows)
        labels.push_back(row.label);
    for (const std::optional<Bytes>& limit : panel.limits)
        limits.push_back(limit ? ordered_json(*limit) : ordered_json());
    for (const PanelCause& cause : panel.causes)
        causes.push_back({{"title", cause.title}, {"words", cause.words}});
    return {{"title", timeline.title},
            {"name", timeline.name},
            {"advice", panel.advice},
            {"label", trace.label},
            {"schedule", trace.schedule},
            {"length", timeline.length},
            {"lanes", timeline.lanes},
            {"chunks", timeline.chunks},
            {"versions", timeline.has_versions},
            {"dashed", timeline.dashed},
            {"colour", hex(series_colour(number))},
            {"labels", labels},
            {"names", panel.names},
            {"stages", trace.stages_of},
            {"groups", json_of_groups(trace)},
            {"limits", limits},
            {"causes", causes},
            {"rows", order.counts_of_rows()},
            {"boxes", json_of_boxes(panel, order, columns)},
            {"gaps", json_of_gaps(panel, order, begin, columns)},
            {"memory", json_of_memory(timeline, columns)}};
}

// By the number of the operation. This is the page's only table of operations.
ordered_json json_of_ops() {
    ordered_json ops = ordered_json::array();
    for (const OpFacts& facts : kOpFacts)
        ops.push_back({{"letters", facts.letters},
                       {"words", facts.words},
                       {"colour", hex(facts.colour)},
                       {"compute", is_compute(facts.op)},
                       {"hatched", facts.op == Op::Recompute},
                       {"transfer", moves_data(facts.op)},
                       {"receive", brings_data(facts.op)},
                       {"gradients", carries_gradients(facts.op)}});
    return ops;
}

std::string rows_of(const PanelTable& table) {
    std::string text;
    for (const std::vector<std::string>& row : table.rows) {
        const bool head = &row == &table.rows.front();
        text += head ? "<thead><tr>" : "<tr>";
        for (const std::string& value : row)
            text += fmt::format("<{0}>{1}</{0}>", head ? "th" : "td", html_escaped(value));
        text += head ? "</tr></thead>\n" : "</tr>\n";
    }
    return text;
}

// The panels with their numbers, which a reader may sort.
std::string ranking_of(const std::vector<Panel>& panels) {
    const auto has_numbers = [](const Panel& panel) { return !panel.numbers.empty(); };
    if (panels.size() < 2 || !std::any_of(panels.begin(), panels.end(), has_numbers))
        return "";
    std::string text = "<table id=\"ranking\"><thead><tr><th>plan</th>";
    for (const PanelNumber& number : std::find_if(panels.begin(), panels.end(), has_numbers)->numbers)
        text += fmt::format("<th>{}</th>", html_escaped(number.name));
    text += "</tr></thead>\n<tbody>\n";
    for (std::size_t k = 0; k < panels.size(); ++k) {
        const std::string& title = panels[k].title;
        text += fmt::format("<tr data-panel=\"{}\"><td>{}</td>", k, html_escaped(title.substr(0, title.find(": "))));
        for (const PanelNumber& number : panels[k].numbers)
            text += fmt::format("<td data-value=\"{}\">{}</td>", number.value, html_escaped(number.text));
        text += "</tr>\n";
    }
    return text + "</tbody></table>\n";
}

// A long table is folded.
std::string section_of(const PanelTable& table, const std::string& of_panel) {
    constexpr std::size_t kLong = 20;  // rows
    return fmt::format("<details{}><summary>{}{}</summary><div class=\"wide\"><table>\n{}</table></div></details>\n",
                       table.rows.size() > kLong ? "" : " open", html_escaped(table.title), of_panel, rows_of(table));
}

// Tables, and the config of every plan, folded. A table that only one of several panels has is about all panels, and
// comes first.
std::string details_of(const std::vector<Panel>& panels) {
    std::map<std::string, int> times;
    for (const Panel& panel : panels)
        for (const PanelTable& table : panel.tables)
            ++times[table.title];
    std::string about_all, text;
    for (const Panel& panel : panels) {
        const std::string of_panel = panels.size() > 1 ? " · " + html_escaped(panel.title) : "";
        for (const PanelTable& table : panel.tables)
            if (times[table.title] == 1)
                about_all += section_of(table, "");
            else
                text += section_of(table, of_panel);
        if (!panel.trace->config.empty())
            text += fmt::format("<details><summary>config{}</summary><pre>{}</pre></details>\n", of_panel,
                                html_escaped(panel.trace->config));
    }
    return about_all + text;
}

std::string json_text(const ordered_json& json) {
    std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    for (std::size_t at = 0; (at = text.find('<', at)) != std::string::npos; at += 6)
        text.replace(at, 1, "\\u003c");  // a title must not end the script
    return text;
}

}  // namespace

// A page has all of its traces. The range is what it shows first.
void timeline_page(const std::vector<Panel>& panels, const View& view, const std::string& file) {
    const Picture picture = picture_of(panels, kMostDevicesOfPage);
    const Shown shown = shown_part(picture, view);
    Columns columns;
    ordered_json json_of_panels = ordered_json::array(), legend = ordered_json::array();
    for (std::size_t k = 0; k < panels.size(); ++k)
        json_of_panels.push_back(json_of_panel(panels[k], picture.timelines[k], k, columns));
    for (const Op op : legend_of(picture))
        legend.push_back({{"op", static_cast<int>(op)}, {"words", words_in_legend(op)}});
    const ordered_json facts = {
        {"title", view.title},      {"length", picture.length}, {"shown", {shown.from, shown.to}},
        {"memory", picture.memory}, {"ops", json_of_ops()},     {"legend", legend},
        {"panels", json_of_panels}};
    const std::string& title = view.title.empty() ? picture.timelines[0].title : view.title;
    std::string page = fmt::format(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\">"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{}</title>\n<style>\n{}{}"
        "</style></head>\n<body>\n{}",
        html_escaped(title), kPageStyle, kTimelineStyle, kTimelineBody);
    page += fmt::format("<script type=\"text/plain\" id=\"columns\">{}</script>\n", columns.text());
    page += fmt::format("<script type=\"application/json\" id=\"facts\">{}</script>\n", json_text(facts));
    page += fmt::format("<script>\n{}</script>\n</body>\n</html>\n", kTimelineScript);
    const auto put = [&](std::string_view mark, const std::string& text) {
        page.replace(page.find(mark), mark.size(), text);
    };
    put("<!--tables-->", details_of(panels));
    put("<!--ranking-->", ranking_of(panels));
    write_file(file, page);
}

}  // namespace pw

#include "viz/timeline_layout.h"

#include "workloads/median.h"
#include "workloads/text/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace pw {

namespace {

double characters_in(std::string_view text) {
    return static_cast<double>(
        std::count_if(text.begin(), text.end(), [](char letter) { return !continues_character(letter); }));
}

}  // namespace

double text_width(std::string_view text, double font) { return 0.56 * font * characters_in(text); }

std::vector<std::string> lines_within(std::string_view text, double font, double width) {
    std::vector<std::string> lines;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find(' ', begin), text.size());
        const std::string word(text.substr(begin, end - begin));
        if (!lines.empty() && text_width(lines.back() + ' ' + word, font) <= width)
            lines.back() += ' ' + word;
        else
            lines.push_back(word);
        begin = end + 1;
    }
    return lines;
}

namespace {

// Wide enough for the number of a typical forward, or its predicted version, within reason.
int width_for(const Picture& picture, int margins, double scale) {
    std::vector<Ns> forwards;
    int widest = 12;
    for (const Timeline& timeline : picture.timelines) {
        widest = timeline.has_predictions ? 20 : widest;
        for (const Row& row : timeline.rows)
            for (const Box& box : row.tasks)
                if (box.event->task.op == Op::Forward && box.end > box.start)
                    forwards.push_back(box.end - box.start);
    }
    if (forwards.empty())
        return 1200;
    const double boxes = static_cast<double>(picture.length) / static_cast<double>(upper_median(std::move(forwards)));
    return std::clamp(static_cast<int>(std::ceil((widest * scale * boxes + margins) / 50)) * 50, 1200, 1800);
}

bool is_drawn(const Box& box) { return box.end > box.start; }

// The operations that are seen: updates of models without weights take no time.
std::vector<Op> seen_operations(const Picture& picture) {
    std::vector<Op> seen;
    for (const Op op : legend_of(picture)) {
        const auto shows = [&](const Box& box) {
            const Op own = box.event->task.op;
            return is_drawn(box) && shown_as(own) == op;
        };
        if (std::ranges::any_of(picture.timelines, [&](const Timeline& timeline) {
                return std::ranges::any_of(timeline.rows, [&](const Row& row) {
                    return std::ranges::any_of(row.tasks, shows) || std::ranges::any_of(row.transfers, shows);
                });
            }))
            seen.push_back(op);
    }
    return seen;
}

std::vector<LegendItem> entries_of_tasks(const Picture& picture, const TimelineLayout& layout) {
    using Mark = LegendItem::Mark;
    std::vector<LegendItem> entries;
    bool sends = false;
    for (const Op op : seen_operations(picture)) {
        entries.push_back({std::string(words_in_legend(op)), moves_data(op) ? Mark::Lane : Mark::Box,
                           colour_of(op, 0, 1), op == Op::Recompute});
        sends = sends || moves_data(op);
    }
    const auto add_note = [&](std::string text) { entries.push_back({.text = std::move(text), .font = 10}); };
    if (std::ranges::any_of(picture.timelines, [](const Timeline& timeline) { return timeline.chunks > 1; }))
        add_note("(lighter: further stages of a device)");
    if (sends)
        add_note("(sends above, receives below)");
    if (std::ranges::any_of(picture.timelines, [&](const Timeline& timeline) {
            return std::ranges::any_of(timeline.rows,
                                       [&](const Row& row) { return draws_bands(layout, picture, timeline, row); });
        }))
        add_note("(bands: parts of the time)");
    return entries;
}

std::vector<LegendItem> entries_of_memory(const Picture& picture) {
    using Mark = LegendItem::Mark;
    std::vector<LegendItem> entries;
    const bool per_panel = has_curve_per_panel(picture);
    if (per_panel) {
        for (std::size_t i = 0; i < picture.timelines.size(); ++i)
            for (const Row* row : rows_with_memory(picture, picture.timelines[i]))
                entries.push_back({picture.timelines[i].name, Mark::Stroke, memory_colour(picture, i, *row),
                                   picture.timelines[i].dashed});
        entries.push_back({.text = "(the device with the highest peak)", .font = 10});
        return entries;
    }
    const Timeline& widest =
        *std::ranges::max_element(picture.timelines, {}, [](const Timeline& timeline) { return timeline.rows.size(); });
    const std::size_t devices = widest.rows.size(), every = (devices + 15) / 16;
    for (std::size_t device = 0; device < devices; device += every)
        entries.push_back({fmt::format("{}{}", device == 0 ? "device " : "", device), Mark::Stroke,
                           curve_colour(static_cast<int>(device), static_cast<int>(devices))});
    if (picture.timelines.size() > 1)
        for (const Timeline& timeline : picture.timelines)
            entries.push_back({timeline.name, Mark::Stroke, 0x57606a, timeline.dashed});
    return entries;
}

// Places the entries one after the other in lines from `left` on, the first line from `first` on. Returns the number of
// lines.
int place(std::vector<LegendItem>& entries, const TimelineLayout& layout, double first) {
    double x = first;
    int line = 0;
    for (LegendItem& entry : entries) {
        const double width = layout.scale * (mark_width(entry.mark) + text_width(entry.text, entry.font));
        if (x + width > layout.width - 4 && x > layout.title_left) {
            x = layout.title_left;
            ++line;
        }
        entry.x = x;
        entry.line = line;
        x += width + 14 * layout.scale;
    }
    return entries.empty() ? 0 : line + 1;
}

void lay_out_legends(const Picture& picture, const View& view, TimelineLayout& layout) {
    constexpr double kMemoryWord = 70;
    const double one_line = 34 * layout.scale;
    if (view.legend) {
        layout.legend_entries = entries_of_tasks(picture, layout);
        const int lines = place(layout.legend_entries, layout, layout.title_left);
        layout.legend = one_line + (std::max(lines, 1) - 1) * 1.2 * layout.line;
    }
    if (picture.memory == 0)
        return;
    if (view.legend)
        layout.memory_entries = entries_of_memory(picture);
    const int lines = place(layout.memory_entries, layout, layout.title_left + kMemoryWord * layout.scale);
    layout.memory_title = 30 * layout.scale + (std::max(lines, 1) - 1) * 1.2 * layout.line;
}

// Wide enough for the longest label, and for the numbers of memory.
int left_margin(const Picture& picture, double scale) {
    double label = 0;
    for (const Timeline& timeline : picture.timelines)
        for (const Row& row : timeline.rows)
            label = std::max(label, text_width(row.label, 11));
    return static_cast<int>(scale * std::clamp(label + 22, picture.memory > 0 ? 72.0 : 30.0, 300.0));
}

}  // namespace

double mark_width(LegendItem::Mark mark) {
    using Mark = LegendItem::Mark;
    return mark == Mark::None ? 0 : mark == Mark::Box ? 20 : mark == Mark::Lane ? 24 : 27;
}

bool draws_bands(const TimelineLayout& layout, const Picture& picture, const Timeline& timeline, const Row& row) {
    constexpr double kThinnest = 2.5;  // pixels for each task, on average
    if (row.tasks.empty() || timeline.lanes > 1)
        return false;
    Ns from = row.tasks.front().start, to = from;
    for (const Box& box : row.tasks) {
        from = std::min(from, box.start);
        to = std::max(to, box.end);
    }
    return static_cast<double>(row.tasks.size()) * kThinnest > layout.pixels(picture, to - from);
}

bool has_curve_per_panel(const Picture& picture) { return picture.timelines.size() > 2; }

std::vector<const Row*> rows_with_memory(const Picture& picture, const Timeline& timeline) {
    std::vector<const Row*> rows;
    for (const Row& row : timeline.rows)
        if (!row.memory.empty())
            rows.push_back(&row);
    if (!has_curve_per_panel(picture) || rows.size() < 2)
        return rows;
    const auto peak = [](const Row* row) {
        return std::ranges::max_element(row->memory, {}, &std::pair<Ns, Bytes>::second)->second;
    };
    return {*std::ranges::max_element(rows, {}, peak)};
}

Colour memory_colour(const Picture& picture, std::size_t panel, const Row& row) {
    if (has_curve_per_panel(picture))
        return series_colour(panel);
    return curve_colour(row.device, static_cast<int>(picture.timelines[panel].rows.size()));
}

TimelineLayout layout_of(const Picture& picture, const View& view) {
    TimelineLayout layout;
    const double scale = layout.scale = view.font / 11;
    int lanes = 1;
    bool versions = false, transfers = false;
    std::size_t devices = 0;
    for (const Timeline& timeline : picture.timelines) {
        lanes = std::max(lanes, timeline.lanes);
        versions = versions || timeline.has_versions;
        transfers = transfers || timeline.has_transfers;
        devices = std::max(devices, timeline.rows.size());
    }
    layout.left = left_margin(picture, scale);
    layout.width = view.width > 0 ? view.width : width_for(picture, layout.left + layout.right, scale);
    for (double* height : {&layout.lane, &layout.lane_gap, &layout.line, &layout.axis})
        *height *= scale;
    layout.task = scale * (lanes > 1 ? 18.0 * lanes : versions ? 30 : devices > 8 ? 20 : 24);
    layout.gap = scale * (devices > 8 ? 6 : 9);

    const double narrow = 700 * scale;  // below, texts begin at the edge
    layout.title_left = layout.width < narrow ? 8 : layout.left;
    const double room = layout.width - layout.title_left - 4;
    layout.heading_lines = lines_within(view.title, 14.5 * scale, room);
    layout.heading = layout.heading_lines.empty()
                         ? 0
                         : 26 * scale + static_cast<double>(layout.heading_lines.size() - 1) * 1.2 * layout.line;
    lay_out_legends(picture, view, layout);
    layout.top = layout.heading + std::max(layout.legend, 8.0);

    double y = 0;
    for (const Timeline& timeline : picture.timelines) {
        layout.titles.push_back(view.titles ? lines_within(timeline.title, 13.5 * scale, room)
                                            : std::vector<std::string>());
        layout.title_tops.push_back(y);
        if (view.titles)
            y += 11 * scale + static_cast<double>(std::max<std::size_t>(layout.titles.back().size(), 1)) * layout.line;
        std::vector<double>& tops = layout.rows.emplace_back();
        for (std::size_t row = 0; row < timeline.rows.size(); ++row) {
            tops.push_back(y);
            y += layout.task + (transfers ? 2 * (layout.lane + layout.lane_gap) : 0) + layout.gap;
        }
    }
    layout.timelines_end = y;
    layout.memory = picture.memory == 0 ? 0 : scale * (devices > 8 ? 200 : 130);
    layout.height = static_cast<int>(
        std::ceil(layout.top + y + layout.axis + (layout.memory > 0 ? layout.memory_title + layout.memory : 0)));
    return layout;
}

}  // namespace pw

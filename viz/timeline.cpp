// Writes timelines as a gnuplot script: the legend and the axes, and the remaining parts by timeline_script.h.
#include "viz/formats.h"
#include "viz/timeline_script.h"
#include "viz/view.h"
#include "workloads/error.h"
#include "workloads/median.h"
#include "workloads/units.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace pw {

namespace {

void add_lines(TimelineScript& script, const std::vector<std::string>& lines, double y, const std::string& font) {
    for (std::size_t i = 0; i < lines.size(); ++i)
        script.add_label(script.layout.title_left, y + 1.2 * static_cast<double>(i) * script.layout.line, lines[i],
                         font);
}

// Faint backgrounds of the transfers, as long as the trace.
void add_lanes(TimelineScript& script, const Timeline& timeline, double top) {
    if (!timeline.has_transfers || timeline.length <= script.from)
        return;
    for (const int lane : {0, 1}) {
        const double y = script.top_of_lane(top, lane == 1);
        script.add("set object rectangle from {:.6f},{:.2f} to {:.6f},{:.2f} back fc rgb '{}' fs solid 1 noborder\n",
                   script.in_unit(script.from), y, script.in_unit(timeline.length), y + script.layout.lane,
                   hex(kLaneBed));
    }
}

void add_rows(TimelineScript& script) {
    const Picture& picture = script.picture;
    script.add("\n# one row for each device, panels one above the other\n");
    script.add("set tmargin at screen {:.5f}\nset bmargin at screen {:.5f}\nset yrange [{:.2f}:0]\n",
               script.y_of(script.layout.top), script.y_of(script.layout.top + script.layout.timelines_end),
               script.layout.timelines_end);
    for (std::size_t i = 0; i < picture.timelines.size(); ++i)
        add_lines(script, script.layout.titles[i],
                  script.layout.top + script.layout.title_tops[i] + 13 * script.layout.scale, script.bold(12));
    std::string tics;
    for (std::size_t i = 0; i < picture.timelines.size(); ++i)
        for (const Row& row : picture.timelines[i].rows) {
            const double top = script.layout.rows[i][row.device];
            tics += fmt::format("{}{} {:.2f}", tics.empty() ? "" : ", ", gnuplot_text(script.file, row.label),
                                top + script.layout.task / 2);
            add_lanes(script, picture.timelines[i], top);
        }
    script.add("set ytics ({}) scale 0 font '{}' tc rgb '#1f2328'\n", tics, script.font(11));
    script.add("set grid xtics back lt 1 lc rgb '#e3e6ea' lw 0.7\n");
    if (script.layout.memory > 0)
        script.add("set xtics format '' scale 0\n");
    else
        script.add(
            "set xtics format '%g' scale 0 font '{0}' tc rgb '#57606a'\nset xlabel 'time in {1}' offset 0,0.3 font "
            "'{0}' "
            "tc rgb '#1f2328'\n",
            script.font(11), picture.time.name);
}

// On the clock of the trace.
Ns begin_of(const Timeline& timeline) {
    for (const Row& row : timeline.rows)
        for (const std::vector<Box>* boxes : {&row.tasks, &row.transfers})
            if (!boxes->empty())
                return boxes->front().event->start - boxes->front().start;
    return 0;
}

}  // namespace

void TimelineScript::add_label(double x, double y, std::string_view text, std::string_view font) {
    add("set label {} at screen {:.5f},{:.5f} left font '{}' tc rgb '#1f2328'\n", gnuplot_text(file, text), x_of(x),
        y_of(y), font);
}

void TimelineScript::add_swatch(double x, double y, double width, double height, Colour colour, std::string_view fill) {
    add("set object rectangle from screen {:.5f},{:.5f} to screen {:.5f},{:.5f} fc rgb '{}' fs {} noborder\n", x_of(x),
        y_of(y + height / 2), x_of(x + width), y_of(y - height / 2), hex(colour), fill);
}

void TimelineScript::add_legend(const std::vector<LegendItem>& entries, double y) {
    using Mark = LegendItem::Mark;
    const double scale = layout.scale;
    for (const LegendItem& entry : entries) {
        const double middle = y + 1.2 * entry.line * layout.line;
        if (entry.mark == Mark::Stroke)
            add("set arrow from screen {0:.5f},{1:.5f} to screen {2:.5f},{1:.5f} nohead {4} lw 2 lc rgb '{3}'\n",
                x_of(entry.x), y_of(middle), x_of(entry.x + 22 * scale), hex(entry.colour),
                entry.striped ? "lt 2 dt (7,4)" : "lt 1");
        else if (entry.mark != Mark::None)
            add_swatch(entry.x, middle, (entry.mark == Mark::Lane ? 18 : 14) * scale,
                       entry.mark == Mark::Lane ? layout.lane : 12 * scale, entry.colour);
        if (entry.mark == Mark::Box && entry.striped)
            add_swatch(entry.x, middle, 14 * scale, 12 * scale, kHatch, "transparent pattern 4");
        add_label(entry.x + scale * mark_width(entry.mark), middle, entry.text, font(entry.font));
    }
}

namespace {

// Leaves out what the view does not show, and names devices as it does.
void leave_out(Picture& picture, const View& view) {
    for (Timeline& timeline : picture.timelines) {
        if (!view.names.empty() && view.names.size() != timeline.rows.size())
            fail("{} names for {} devices\n  help: name each device of the plan", view.names.size(),
                 timeline.rows.size());
        for (Row& row : timeline.rows) {
            if (!view.transfers)
                row.transfers.clear();
            if (!view.memory)
                row.memory.clear();
            if (static_cast<std::size_t>(row.device) < view.names.size())
                row.label = view.names[static_cast<std::size_t>(row.device)];
        }
    }
    if (!view.transfers)
        for (Timeline& timeline : picture.timelines)
            timeline.has_transfers = false;
    if (!view.memory)
        picture.memory = 0;
}

// A few plans that take much longer than most would make the rest narrow. The axis ends with the longest of the rest,
// and the title of a longer plan says how much of it is drawn.
void cut_long_ones(Picture& picture, View& view) {
    constexpr std::size_t kLeast = 3;
    constexpr Ns kFar = 2;
    if (view.has_range() || picture.timelines.size() < kLeast)
        return;
    std::vector<Ns> lengths;
    for (const Timeline& timeline : picture.timelines)
        lengths.push_back(timeline.length);
    const Ns most = kFar * upper_median(lengths);
    Ns end = 0;
    for (const Ns length : lengths)
        if (length <= most)
            end = std::max(end, length);
    if (end == picture.length)
        return;
    view.to = end;
    for (Timeline& timeline : picture.timelines)
        if (timeline.length > end)
            timeline.title += fmt::format(" (drawn to {} of {})", print_time(end), print_time(timeline.length));
}

}  // namespace

void timeline_by_gnuplot(const std::vector<Panel>& panels, const View& whole, const std::string& file) {
    Picture picture = picture_of(panels);
    View view = whole;
    leave_out(picture, view);
    cut_long_ones(picture, view);
    const Shown shown = shown_part(picture, view);
    std::vector<Ns> begins;
    for (const Timeline& timeline : picture.timelines)
        begins.push_back(begin_of(timeline));
    crop(picture, shown);
    TimelineScript script(picture, shown.from, std::move(begins), view, file);
    const TimelineLayout& layout = script.layout;
    script.add("{}", gnuplot_output(file, {layout.width, layout.height, view.font}));
    script.add("\nset multiplot\nset border 0\nunset key\n");
    script.add("set lmargin at screen {:.5f}\nset rmargin at screen {:.5f}\nset xrange [{:.6f}:{:.6f}]\n",
               static_cast<double>(layout.left) / layout.width, 1 - static_cast<double>(layout.right) / layout.width,
               script.in_unit(shown.from), script.in_unit(shown.to));
    add_lines(script, layout.heading_lines, 15.6 * layout.scale, script.bold(13));
    script.add("\n# legend\n");
    script.add_legend(layout.legend_entries, layout.heading + 17 * layout.scale);
    add_rows(script);
    add_boxes(script);
    if (layout.memory > 0)
        add_memory(script);
    script.add("unset multiplot\n");
    script.names.picture = view.title;
    for (const Timeline& timeline : picture.timelines)
        script.names.picture += (script.names.picture.empty() ? "" : "; ") + timeline.title;
    draw_by_gnuplot(file, script.script, script.data, script.names);
}

}  // namespace pw

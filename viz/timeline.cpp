// Writes timelines as a gnuplot script: the legend and the axes, and its other parts by timeline_script.h.
#include "viz/formats.h"
#include "viz/timeline_script.h"
#include "viz/view.h"

#include <string>
#include <utility>
#include <vector>

namespace pw {

namespace {

void add_timeline_legend(TimelineScript& script) {
    script.add("\n# legend\n");
    double x = script.layout.left;
    const double y = script.layout.heading + kLegend * 0.5;
    bool sends = false;
    for (const Op op : legend_of(script.picture)) {
        const std::string_view words = words_in_legend(op);
        script.add_swatch(x, y, is_transfer(op) ? 18 : 14, is_transfer(op) ? kLane : 12, colour_of(op, 0, 1));
        if (op == Op::Recompute)
            script.add_swatch(x, y, 14, 12, kHatch, "transparent pattern 4");
        x += is_transfer(op) ? 24 : 20;
        script.add_label(x, y, words, "sans-serif,11");
        x += text_width(words, 11) + 12;
        sends = sends || is_transfer(op);
    }
    bool shades = false;
    for (const Timeline& timeline : script.picture.timelines)
        shades = shades || timeline.chunks > 1;
    const auto add_note = [&](std::string_view note) {
        if (x + text_width(note, 10) >= script.layout.width)
            return;
        script.add_label(x - 4, y, note, "sans-serif,10");
        x += text_width(note, 10) + 8;
    };
    if (shades)
        add_note("(lighter: further stages of a device)");
    if (sends)
        add_note("(sends above, receives below)");
}

// Faint backgrounds of the transfers, as long as the trace.
void add_lanes(TimelineScript& script, const Timeline& timeline, double top) {
    if (!timeline.has_transfers || timeline.length <= script.from)
        return;
    for (const int lane : {0, 1}) {
        const double y = script.top_of_lane(top, lane == 1);
        script.add("set object rectangle from {:.6f},{:.2f} to {:.6f},{:.2f} back fc rgb '{}' fs solid 1 noborder\n",
                   script.in_unit(script.from), y, script.in_unit(timeline.length), y + kLane, hex(kLaneBed));
    }
}

void add_rows(TimelineScript& script) {
    const Picture& picture = script.picture;
    script.add("\n# one row for each device, panels one above the other\n");
    script.add("set tmargin at screen {:.5f}\nset bmargin at screen {:.5f}\nset yrange [{:.2f}:0]\n",
               script.y_of(script.layout.top()), script.y_of(script.layout.top() + script.layout.timelines_end),
               script.layout.timelines_end);
    for (std::size_t i = 0; i < picture.timelines.size(); ++i)
        script.add("set label {} at graph 0, first {:.2f} left font '{},12' tc rgb '#1f2328'\n",
                   gnuplot_quoted(picture.timelines[i].title), script.layout.titles[i], gnuplot_bold(script.file));
    std::string tics;
    for (std::size_t i = 0; i < picture.timelines.size(); ++i)
        for (const Row& row : picture.timelines[i].rows) {
            const double top = script.layout.rows[i][row.device];
            tics += fmt::format("{}{} {:.2f}", tics.empty() ? "" : ", ", gnuplot_quoted(row.label),
                                top + script.layout.task / 2);
            add_lanes(script, picture.timelines[i], top);
        }
    script.add("set ytics ({}) scale 0 font 'sans-serif,11' tc rgb '#1f2328'\n", tics);
    script.add("set grid xtics back lt 1 lc rgb '#e3e6ea' lw 0.7\n");
    if (script.layout.memory > 0)
        script.add("set xtics format '' scale 0\n");
    else
        script.add(
            "set xtics format '%g' scale 0 tc rgb '#57606a'\nset xlabel 'time in {}' offset 0,0.3 tc rgb "
            "'#1f2328'\n",
            picture.time.name);
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
    add("set label {} at screen {:.5f},{:.5f} left font '{}' tc rgb '#1f2328'\n", gnuplot_quoted(text), x_of(x),
        y_of(y), font);
}

void TimelineScript::add_swatch(double x, double y, double width, double height, Colour colour, std::string_view fill) {
    add("set object rectangle from screen {:.5f},{:.5f} to screen {:.5f},{:.5f} fc rgb '{}' fs {} noborder\n", x_of(x),
        y_of(y + height / 2), x_of(x + width), y_of(y - height / 2), hex(colour), fill);
}

void timeline_by_gnuplot(const std::vector<Panel>& panels, const View& view, const std::string& file) {
    Picture picture = picture_of(panels);
    const Shown shown = shown_part(picture, view);
    std::vector<Ns> begins;
    for (const Timeline& timeline : picture.timelines)
        begins.push_back(begin_of(timeline));
    crop(picture, shown);
    TimelineScript script(picture, shown.from, std::move(begins), view, file);
    const TimelineLayout& layout = script.layout;
    script.add("{}", gnuplot_output(file, layout.width, layout.height));
    script.add("\nset multiplot\nset border 0\nunset key\n");
    script.add("set lmargin at screen {:.5f}\nset rmargin at screen {:.5f}\nset xrange [{:.6f}:{:.6f}]\n",
               static_cast<double>(layout.left) / layout.width, 1 - static_cast<double>(kRight) / layout.width,
               script.in_unit(shown.from), script.in_unit(shown.to));
    if (!view.title.empty())
        script.add_label(layout.left, kHeading * 0.6, view.title, fmt::format("{},13", gnuplot_bold(file)));
    add_timeline_legend(script);
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

// The memory of the devices below a timeline.
#include "viz/timeline_script.h"

#include <string>

namespace pw {

namespace {

void put_memory(TimelineScript& script, Ns time, Bytes bytes) {
    script.put("{:.6f} {:.6f}\n", script.in_unit(time), static_cast<double>(bytes) / script.picture.bytes.size);
}

void add_stroke(TimelineScript& script, double x, double y, Colour colour, bool dashed) {
    script.add("set arrow from screen {0:.5f},{1:.5f} to screen {2:.5f},{1:.5f} nohead {4} lw 2 lc rgb '{3}'\n",
               script.x_of(x), script.y_of(y), script.x_of(x + 22), hex(colour), dashed ? "lt 2 dt (7,4)" : "lt 1");
}

void add_memory_legend(TimelineScript& script, double y) {
    const Picture& picture = script.picture;
    double x = script.layout.left;
    script.add_label(x, y, "Memory", fmt::format("{},12", gnuplot_bold(script.file)));
    x += 70;
    std::size_t widest = 0;
    for (std::size_t i = 0; i < picture.timelines.size(); ++i)
        if (picture.timelines[i].rows.size() > picture.timelines[widest].rows.size())
            widest = i;
    const int devices = static_cast<int>(picture.timelines[widest].rows.size());
    const int every = (devices + 15) / 16;
    for (int device = 0; device < devices; device += every) {
        const std::string name = fmt::format("{}{}", device == 0 ? "device " : "", device);
        add_stroke(script, x, y, curve_colour(device, devices), false);
        script.add_label(x + 27, y, name, "sans-serif,11");
        x += 27 + text_width(name, 11) + 14;
    }
    if (picture.timelines.size() < 2)
        return;
    x += 16;
    for (const Timeline& timeline : picture.timelines) {
        add_stroke(script, x, y, 0x57606a, timeline.dashed);
        script.add_label(x + 27, y, timeline.name, "sans-serif,11");
        x += 27 + text_width(timeline.name, 11) + 14;
    }
}

}  // namespace

void add_memory(TimelineScript& script) {
    const Picture& picture = script.picture;
    const double top = script.layout.top() + script.layout.timelines_end;
    script.add("\n# memory\nunset label\nunset object\n");
    add_memory_legend(script, top + kMemoryTitle * 0.6);
    script.add("set tmargin at screen {:.5f}\nset bmargin at screen {:.5f}\n", script.y_of(top + kMemoryTitle),
               script.y_of(top + kMemoryTitle + script.layout.memory));
    script.add("unset ytics\nset ytics autofreq scale 0 format '%g {}' font 'sans-serif,11' tc rgb '#57606a'\n",
               picture.bytes.name);
    script.add("set grid xtics ytics back lt 1 lc rgb '#e3e6ea' lw 0.7\nset xtics format '%g' tc rgb '#57606a'\n");
    script.add("set xlabel 'time in {}' offset 0,0.3 tc rgb '#1f2328'\nset yrange [0:{:.6f}]\n\n", picture.time.name,
               1.08 * static_cast<double>(picture.memory) / picture.bytes.size);
    script.put("# Memory: time in {}, {}\n", picture.time.name, picture.bytes.name);
    std::string lines;
    for (std::size_t i = 0; i < picture.timelines.size(); ++i) {
        const Timeline& timeline = picture.timelines[i];
        for (const Row& row : timeline.rows) {
            if (row.memory.empty())
                continue;
            const std::string name = fmt::format("memory.{}.{}", i, row.device);
            script.put("# {}\n", name);
            for (const auto& [time, bytes] : row.memory)
                put_memory(script, time, bytes);
            put_memory(script, timeline.length, row.memory.back().second);
            script.put("\n\n");
            script.names.parts.push_back({fmt::format("memory of device {}{}", row.device,
                                                      picture.timelines.size() > 1 ? ", " + timeline.title : "")});
            lines += fmt::format("{} index '{}' using 1:2 with steps lw {} dt {} lc rgb '{}', \\\n     ", kGnuplotData,
                                 name, timeline.rows.size() > 8 ? "1.0" : "1.6", timeline.dashed ? "(7,4)" : "solid",
                                 hex(curve_colour(row.device, static_cast<int>(timeline.rows.size()))));
        }
    }
    lines.resize(lines.rfind(','));
    script.add("plot {}\n", lines);
}

}  // namespace pw

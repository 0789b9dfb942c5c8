// The memory of the devices below a timeline.
#include "viz/timeline_script.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace pw {

namespace {

void put_memory(TimelineScript& script, Ns time, Bytes bytes) {
    script.put("{:.6f} {:.6f}\n", script.in_unit(time), static_cast<double>(bytes) / script.picture.bytes.size);
}

// Returns a curve that changes more often than pixels can show as its peaks: the most of every few pixels.
std::vector<std::pair<Ns, Bytes>> peaks_of(const TimelineScript& script,
                                           const std::vector<std::pair<Ns, Bytes>>& curve) {
    constexpr double kWindow = 6;  // pixels
    const double columns = script.layout.field() / kWindow;
    if (static_cast<double>(curve.size()) < 4 * columns)
        return curve;
    const auto window_of = [&](Ns time) { return static_cast<int>(script.pixels(time - script.from) / kWindow); };
    const auto begin_of = [&](int window) {
        return script.from +
               static_cast<Ns>(window * kWindow / script.layout.field() * static_cast<double>(script.picture.length));
    };
    std::vector<std::pair<Ns, Bytes>> peaks;
    Bytes before = 0;
    for (std::size_t i = 0; i < curve.size();) {
        const int window = window_of(curve[i].first);
        const Ns begin = begin_of(window);
        Bytes most = before;
        for (; i < curve.size() && window_of(curve[i].first) == window; ++i)
            most = std::max(most, before = curve[i].second);
        if (peaks.empty() || peaks.back().second != most)
            peaks.emplace_back(begin, most);
        if (before != most && (i == curve.size() || window_of(curve[i].first) > window + 1))
            peaks.emplace_back(begin_of(window + 1), before);
    }
    return peaks;
}

}  // namespace

void add_memory(TimelineScript& script) {
    const Picture& picture = script.picture;
    const TimelineLayout& layout = script.layout;
    const double top = layout.top + layout.timelines_end;
    script.add("\n# memory\nunset label\nunset object\n");
    const double legend = top + 18 * layout.scale;
    script.add_label(layout.title_left, legend, "Memory", script.bold(12));
    script.add_legend(layout.memory_entries, legend);
    script.add("set tmargin at screen {:.5f}\nset bmargin at screen {:.5f}\n", script.y_of(top + layout.memory_title),
               script.y_of(top + layout.memory_title + layout.memory));
    script.add("unset ytics\nset ytics autofreq scale 0 format '%g {}' font '{}' tc rgb '#57606a'\n",
               picture.bytes.name, script.font(11));
    script.add(
        "set grid xtics ytics back lt 1 lc rgb '#e3e6ea' lw 0.7\nset xtics format '%g' font '{}' tc rgb '#57606a'\n",
        script.font(11));
    script.add("set xlabel 'time in {}' offset 0,0.3 font '{}' tc rgb '#1f2328'\nset yrange [0:{:.6f}]\n\n",
               picture.time.name, script.font(11), 1.08 * static_cast<double>(picture.memory) / picture.bytes.size);
    script.put("# Memory: time in {}, {}\n", picture.time.name, picture.bytes.name);
    std::string lines;
    for (std::size_t i = 0; i < picture.timelines.size(); ++i) {
        const Timeline& timeline = picture.timelines[i];
        for (const Row* const drawn : rows_with_memory(picture, timeline)) {
            const Row& row = *drawn;
            const std::string name = fmt::format("memory.{}.{}", i, row.device);
            script.put("# {}\n", name);
            for (const auto& [time, bytes] : peaks_of(script, row.memory))
                put_memory(script, time, bytes);
            put_memory(script, std::max(timeline.length, row.memory.back().first), row.memory.back().second);
            script.put("\n\n");
            script.names.parts.push_back({fmt::format("memory of device {}{}", row.device,
                                                      picture.timelines.size() > 1 ? ", " + timeline.title : "")});
            lines += fmt::format("{} index '{}' using 1:2 with steps lw {} dt {} lc rgb '{}', \\\n     ", kGnuplotData,
                                 name, timeline.rows.size() > 8 ? "1.0" : "1.6", timeline.dashed ? "(7,4)" : "solid",
                                 hex(memory_colour(picture, i, row)));
        }
    }
    lines.resize(lines.rfind(','));
    script.add("plot {}\n", lines);
}

}  // namespace pw

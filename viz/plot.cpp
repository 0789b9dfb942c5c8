#include "viz/plot.h"

#include "schedules/trace/trace_json.h"
#include "viz/formats.h"
#include "viz/picture.h"
#include "workloads/error.h"
#include "workloads/text/files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

namespace pw {

namespace {

bool has_values(const Chart& chart) {
    return std::any_of(chart.curves.begin(), chart.curves.end(),
                       [](const Curve& curve) { return !curve.values.empty(); });
}

std::string suffixes() {
    std::string list;
    for (const Format& format : kFormats)
        list += fmt::format("{}{}", list.empty() ? "" : " ", format.suffix);
    return list;
}

}  // namespace

std::string plot_formats() {
    std::string list;
    for (const Format& format : kFormats)
        list += fmt::format("{}{}", list.empty() ? "" : ", ", format.suffix.substr(1));
    return list;
}

const Format& format_of(const std::string& file) {
    const std::string suffix = std::filesystem::path(file).extension().string();
    const Format* const found = std::find_if(std::begin(kFormats), std::end(kFormats),
                                             [&](const Format& format) { return format.suffix == suffix; });
    if (found == std::end(kFormats))
        fail("cannot plot to '{}': the suffix must be one of {}\n  help: give the file one of them, in small letters",
             file, suffixes());
    if (std::any_of(file.begin(), file.end(), [](unsigned char c) { return c < ' '; }))
        fail("cannot plot to '{}': the name has control characters", file);
    return *found;
}

void plot(const std::vector<Panel>& panels, const std::string& file) { format_of(file).timeline(panels, file); }

void plot_chart(const Chart& chart, const std::string& file) {
    const Format& format = format_of(file);
    if (!has_values(chart))
        fail("cannot plot '{}': there are no values", file);
    format.chart(chart, file);
}

void plot_curves(const std::vector<Curve>& curves, const std::string& x_label, const std::string& y_label,
                 const std::string& file) {
    plot_chart({curves, {x_label}, {y_label}}, file);
}

void check_plot_file(const std::string& file) {
    if (file.empty())
        return;
    (void)format_of(file);
    check_target_file(file);
}

void check_timeline(const std::string& file, int devices) {
    check_plot_file(file);
    if (!file.empty() && format_of(file).most_devices > 0)
        check_height(file, devices, format_of(file).most_devices);
}

bool shows_causes(const std::string& file) { return !file.empty() && format_of(file).timeline == timeline_page; }

// The trace itself.
void timeline_json(const std::vector<Panel>& panels, const std::string& file) {
    if (panels.size() != 1 || !panels[0].trace)
        fail("cannot plot {} traces to '{}': a .json file holds one trace", panels.size(), file);
    write_trace(*panels[0].trace, file);
}

}  // namespace pw

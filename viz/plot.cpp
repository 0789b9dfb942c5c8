#include "viz/plot.h"

#include "schedules/trace/trace_json.h"
#include "viz/formats.h"
#include "viz/picture.h"
#include "viz/view.h"
#include "workloads/error.h"
#include "workloads/text/files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <system_error>

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

void plot(const std::vector<Panel>& panels, const std::string& file, const View& view) {
    const Format& format = format_of(file);
    if (!view.is_plain() && format.timeline != timeline_by_gnuplot)
        fail(
            "'{}' has all parts of a timeline, in text of one size\n  help: leave out --figure, --without, --font-size "
            "and --device-names, or draw to .svg, .png, .pdf or .tex",
            file);
    format.timeline(panels, view, file);
}

void plot_chart(const Chart& chart, const std::string& file, const View& view) {
    const Format& format = format_of(file);
    if (!has_values(chart))
        fail("cannot plot '{}': there are no values", file);
    if (!view.is_plain() && format.chart != chart_by_gnuplot)
        fail(
            "'{}' has its titles, and text of one size\n  help: leave out --figure, --without and --font-size, or draw "
            "to "
            ".svg, .png, .pdf or .tex",
            file);
    if (!view.memory || !view.transfers || !view.legend || !view.names.empty())
        fail(
            "'{}' is a chart, without devices and the parts of a timeline\n  help: of the parts, --without titles is "
            "for "
            "charts",
            file);
    format.chart(chart, view, file);
}

void plot_curves(const std::vector<Curve>& curves, const std::string& x_label, const std::string& y_label,
                 const std::string& file, const View& view) {
    plot_chart({curves, {x_label}, {y_label}}, file, view);
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

std::string note_on_size(const std::string& file) {
    constexpr std::uintmax_t kMost = 10'000'000;
    std::error_code missing;
    const std::uintmax_t size = std::filesystem::file_size(file, missing);
    if (missing || size <= kMost || std::filesystem::path(file).extension() != ".svg")
        return "";
    return fmt::format("{} has {:.0f} MB, and browsers need seconds to draw it: a page (.html) draws what is in view",
                       file, static_cast<double>(size) / 1e6);
}

bool shows_causes(const std::string& file) { return !file.empty() && format_of(file).timeline == timeline_page; }

// The trace itself.
void timeline_json(const std::vector<Panel>& panels, const View& view, const std::string& file) {
    if (panels.size() != 1 || !panels[0].trace)
        fail("cannot plot {} traces to '{}': a .json file holds one trace", panels.size(), file);
    if (view.has_range() || !view.title.empty())
        fail("'{}' gets the trace itself, without a title and whole\n  help: draw the part to .svg, .png or .html",
             file);
    write_trace(*panels[0].trace, file);
}

}  // namespace pw

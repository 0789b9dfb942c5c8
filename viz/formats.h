// The kinds of files that plots are written to. To add a kind, write its two writers, and declare them and name them in
// a row here. gnuplot's kinds share writers and have a row in gnuplot.cpp.
#pragma once

#include "viz/picture.h"
#include "viz/plot.h"

#include <string>
#include <string_view>
#include <vector>

namespace pw {

// A writer throws Error: BadInput for data that its format cannot show, RunFailed if the file cannot be written.
using TimelineWriter = void(const std::vector<Panel>& panels, const View& view, const std::string& file);
using ChartWriter = void(const Chart& chart, const View& view, const std::string& file);

TimelineWriter timeline_by_gnuplot, timeline_page, timeline_text, timeline_json;
ChartWriter chart_by_gnuplot, chart_page, chart_text, chart_json;

struct Format {
    std::string_view suffix;                   // suffix of the file name that chooses the kind
    TimelineWriter* timeline;                  // writer of traces
    ChartWriter* chart;                        // writer of curves
    int most_devices = kMostDevicesOfPicture;  // of a timeline, which has a row for each, or 0: any number
};

inline constexpr int kMostDevicesOfPage = 4096;

// The formats are in the order in which help texts and messages list them.
inline constexpr Format kFormats[] = {
    {".svg", timeline_by_gnuplot, chart_by_gnuplot},
    {".png", timeline_by_gnuplot, chart_by_gnuplot},
    {".pdf", timeline_by_gnuplot, chart_by_gnuplot},
    {".tex", timeline_by_gnuplot, chart_by_gnuplot},
    {".html", timeline_page, chart_page, kMostDevicesOfPage},
    {".txt", timeline_text, chart_text},
    {".json", timeline_json, chart_json, 0},
    {".gp", timeline_by_gnuplot, chart_by_gnuplot},  // the script
};

// Returns the format of the suffix of the file's name. Throws Error (BadInput) listing the suffixes if the name has
// none of them.
const Format& format_of(const std::string& file);

}  // namespace pw

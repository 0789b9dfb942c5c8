// Traces to pictures and text. The suffix of the file chooses among plot_formats(): svg, png, pdf (gnuplot), html (one
// self-contained page), txt (grid), json (Chrome trace), gp (the script that gnuplot draws an svg from).
#pragma once

#include "schedules/trace.h"

#include <string>
#include <vector>

namespace pw {

struct Panel {
    const Trace* trace;
    std::string title;  // "predicted, 1f1b: step 812.3 ms, bubble 11.2 %"
};

// Panels one above the other on one time axis: one row per device, tasks coloured by operation with
// the micro-batch number, transfers as thin lanes below, weight versions where there are several,
// memory curves at the bottom.
void plot(const std::vector<Panel>& panels, const std::string& file);

// The suffixes without their dots, for help texts: "svg, png, ...".
std::string plot_formats();

// Before long work for a picture: throw Error where the suffix is none of these or a timeline would have more devices
// than it shows (BadInput), or the file cannot be written (RunFailed). An empty name is none and fine.
void check_plot_file(const std::string& file);
void check_timeline(const std::string& file, int devices);

// svg, png and pdf need it.
bool has_gnuplot();

// What plot() writes to a .txt file: a grid for the terminal.
std::string text_of(const std::vector<Panel>& panels);

// Values along a line or as points. Those that are not finite leave a gap.
struct Curve {
    enum class Style {
        Line,
        LineWithPoints,
        Steps,    // each value holds until the next point: a Pareto front
        Points,   // no line
        Crosses,  // red, on top of the points that they mark
        Dots,     // small and grey, the background of other curves
        Bars,     // from zero up, around whole numbers of x
    };
    std::string title;
    std::vector<double> values;
    std::vector<double> x = {};  // where the values stand; empty: 0, 1, 2, ...
    Style style = Style::Line;
    std::vector<std::string> labels = {};  // of the points; empty: none. One that would hide others is left out
};

// What numbers of an axis mean: they are given in ns, bytes, bytes/s, FLOP/s and shown in a unit that suits them.
enum class Quantity { Number, Time, Size, Bandwidth, ComputeRate };

struct Axis {
    std::string label;  // the unit follows: "step time in ms"
    Quantity quantity = Quantity::Number;
    bool logarithmic = false;        // shows positive numbers only
    std::vector<double> ticks = {};  // numbers to mark; empty: round ones
};

// Legend below, the size grows with it.
struct Chart {
    std::vector<Curve> curves;
    Axis x, y;
    std::string title = {};
};
void plot_chart(const Chart& chart, const std::string& file);

// Loss by step of one or more runs.
void plot_curves(const std::vector<Curve>& curves, const std::string& x_label, const std::string& y_label,
                 const std::string& file);

}  // namespace pw

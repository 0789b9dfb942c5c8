// Writes traces as pictures and text. The suffix of the file chooses among plot_formats(): svg, png, pdf (gnuplot), tex
// (text for LaTeX to typeset, with a pdf of the rest), html (one self-contained page), txt (grid), json (Chrome trace),
// gp (the script that gnuplot draws an svg from).
#pragma once

#include "schedules/trace/trace.h"

#include <optional>
#include <string>
#include <vector>

namespace pw {

// A number of the table that ranks the panels of a page: the value sorts, the text is shown.
struct PanelNumber {
    std::string name, text;
    double value;
};

// Rows of cells. The first row is the head.
struct PanelTable {
    std::string title;
    std::vector<std::vector<std::string>> rows;
};

// A cause of idle time: "dependency", and what the device waits for.
struct PanelCause {
    std::string title, words;
};

// Idle time of a device. Numbers of events are positions in the trace's list, or -1: none, or not known.
struct PanelGap {
    int device = 0;
    Ns from = 0, to = 0;        // on the trace's clock
    int cause = 0;              // of Panel::causes
    int waits_for = -1;         // event
    Ns with_equal_stages = -1;  // how long it lasts if all stages take equally long
};

struct Panel {
    const Trace* trace;
    std::string title;  // "predicted, 1f1b: step 812.3 ms, bubble 11.2 %"
    // The rest is for formats that can show it (pages). What is not known is empty.
    std::vector<PanelTable> tables = {};
    std::vector<PanelNumber> numbers = {};
    std::vector<std::string> names = {};            // of the devices, in addition to their numbers
    std::vector<std::optional<Bytes>> limits = {};  // of the devices' memory
    std::vector<PanelCause> causes = {};
    std::vector<PanelGap> gaps = {};  // by device, then time
    std::vector<int> waits_for = {};  // by event: the event that it waits for last
    std::vector<Ns> slack = {};       // by event: how much later it could end without a longer step
    std::vector<char> critical = {};  // by event: whether it is on the critical path
    std::string advice = {};          // what would make the plan faster
};

// How a picture is drawn, where it is not as suits its content.
struct View {
    std::string title = {};  // above the picture, or empty: none, or the chart's own
    int width = 0;           // in pixels, or 0: as the content needs. Pages fill their window.
    double font = 11;        // the size of the text in pixels, which are points in PDF: of pictures that gnuplot draws
    // What gnuplot draws besides the rows of timelines. Charts have titles alone.
    bool memory = true, transfers = true, legend = true, titles = true;
    std::vector<std::string> names = {};  // of the devices, instead of the trace's
    bool is_plain() const { return font == 11 && memory && transfers && legend && titles && names.empty(); }
    // The part of timelines that is drawn, in time since the start of each. Absent: from the start, to the end.
    std::optional<Ns> from = {}, to = {};
    bool has_range() const { return from || to; }
};

// Draws panels one above the other on a single time axis: a row per device, tasks coloured by operation with the
// micro-batch number, transfers as thin lanes below, weight versions where there are several, memory curves at the
// bottom. Throws Error: BadInput if there is nothing to draw in the view, RunFailed if the file cannot be written.
void plot(const std::vector<Panel>& panels, const std::string& file, const View& view = {});

// Returns the suffixes without their dots, for help texts: "svg, png, ...".
std::string plot_formats();

// Both are called before long work for a picture. They throw Error if the suffix is unknown, if a timeline would have
// more devices than it shows (BadInput), or if the file cannot be written (RunFailed). An empty name means no picture.
void check_plot_file(const std::string& file);
void check_timeline(const std::string& file, int devices);

// Returns a note on a written picture that browsers are slow to show, "x.svg has 31 MB: ...". Empty if they are not.
std::string note_on_size(const std::string& file);
// Returns whether plots to that file show the causes of idle time, slack and the critical path.
bool shows_causes(const std::string& file);

// Returns whether gnuplot is installed: svg, png and pdf need it.
bool has_gnuplot();

// Returns what plot() writes to a .txt file: a grid for the terminal.
std::string text_of(const std::vector<Panel>& panels, const View& view = {});

// A curve has values along a line or as points. Values that are not finite leave a gap.
struct Curve {
    enum class Style {
        Line,
        LineWithPoints,
        Steps,    // each value holds until the next point: a Pareto front
        Points,   // no line
        Crosses,  // red, on top of the points that they mark
        Dots,     // small and grey, the background of the remaining curves
        Bars,     // from zero up, around whole numbers of x
        Rings,    // around the points that they mark: the best points
        Cells,    // squares around whole numbers of x and y, coloured by their shade: a heat map
    };
    std::string title;
    std::vector<double> values;
    std::vector<double> x = {};  // of the values, or empty for 0, 1, 2, ...
    Style style = Style::Line;
    std::vector<std::string> labels = {};  // texts at the points, or empty. A text that would hide another is left out
    // Names of the points, which pages show under the mouse and tables list. Empty: the labels.
    std::vector<std::string> names = {};
    std::vector<std::vector<std::string>> facts = {};  // of the points, in the columns Chart::facts
    std::vector<double> shades = {};                   // of cells
    int slot = 0;                                      // of bars: their place among Chart::slots
};

// The quantity of an axis: its numbers are in ns, bytes, bytes/s, FLOP/s and shown in a unit that suits them, sizes in
// units of 1024 or of 1000.
enum class Quantity { Number, Time, Size, DecimalSize, Bandwidth, ComputeRate };

// A straight line at a number of an axis.
struct Level {
    double at;
    std::string name;
};

struct Axis {
    std::string label;  // the unit follows: "step time in ms"
    Quantity quantity = Quantity::Number;
    bool logarithmic = false;             // shows positive numbers only
    std::vector<double> ticks = {};       // numbers to mark, or empty for round numbers
    std::vector<std::string> names = {};  // of the numbers 0, 1, ..., which are marked with them
    std::vector<Level> levels = {};
    bool from_zero = false;           // begins at 0 where no number is below
    std::optional<double> most = {};  // points beyond are not drawn
};

// A chart has its legend below, and its size grows with the legend. Lines are named at their ends if there is room.
struct Chart {
    std::vector<Curve> curves;
    Axis x, y;
    std::string title = {};
    std::vector<std::string> remarks = {};  // lines below the title
    std::vector<std::string> facts = {};    // heads of the columns of facts
    Axis shade = {};                        // of cells
    int slots = 1;                          // bars next to each other at the same number of x
};
std::string short_number(double number);  // four digits, without an exponent below ten million
void plot_chart(const Chart& chart, const std::string& file, const View& view = {});

// Draws the loss by step of one or more runs.
void plot_curves(const std::vector<Curve>& curves, const std::string& x_label, const std::string& y_label,
                 const std::string& file, const View& view = {});

}  // namespace pw

// The layout of a chart: all positions in pixels, the same for every kind of picture.
#pragma once

#include "viz/picture.h"

#include <optional>
#include <string>
#include <vector>

namespace pw {

struct Tick {
    double value;  // in the unit of the axis
    std::string text;
};

// A scale is an axis: it takes numbers in its unit between `low` and `high` to pixels.
struct Scale {
    std::string label;  // with the unit
    Unit unit;
    double low = 0, high = 1;
    bool logarithmic = false;
    double from = 0, to = 1;  // pixels of low and high
    std::vector<Tick> ticks;

    bool shows(double number) const;  // in the unit of the axis
    double pixel(double number) const;
};

// A label is the text at a point. A label at a distance has a line to its point.
struct Label {
    double x, y;  // of its baseline: the end that is nearer to the point, or the middle
    int side;     // of x on which the text is: 1 right, -1 left, 0 both
    std::string text;
    bool apart;
    double from_x, from_y, to_x, to_y;  // ends of the line, from the point
    bool inside;                        // a bar, whose colour is below it
    Colour colour;
};

// The name of a line, right of the field.
struct LineEnd {
    std::size_t curve;
    double from_x, from_y;  // last point of the line
    double x, y;            // left end of the text, and its middle
};

struct LegendEntry {
    std::size_t curve;
    double x, y;  // left end of its line
};

struct ChartLayout {
    int width = 900, height = 420;
    double left = 70, right = 880, top = 30, bottom = 370;  // edges of the field of the curves
    double below = 56;                 // from the field to the first row of the legend: marks and label of x
    bool slanted = false;              // whether the names of x are at an angle
    std::vector<std::string> remarks;  // lines of Chart::remarks
    Scale x, y, shade;
    std::vector<Label> labels;  // none hides a point or another label
    std::vector<LineEnd> ends;
    std::vector<LegendEntry> legend;
    int legend_columns = 1;
};

// Bars of all slots are this wide together, in numbers of x. They are centred on their number.
inline constexpr double kBarWidth = 0.8;
double bar_width(const Chart& chart);

bool is_line(const Curve& curve);
bool has_cells(const Chart& chart);
ChartLayout layout_of(const Chart& chart, const View& view = {});

// Returns the scale of an axis for the numbers from `low` to `high`, without pixels and marks.
Scale scale_of(const Axis& axis, double low, double high);
// Marks the numbers, or round numbers, after the scale has its pixels.
void add_ticks(Scale& scale, const Axis& axis, bool across);

// A point is in the units of the axes. The i-th point of a curve is absent where the curve leaves a gap or is not
// drawn.
struct Point {
    double x, y;
};
std::optional<Point> point_of(const ChartLayout& layout, const Chart& chart, const Curve& curve, std::size_t i);
// Returns the name of a chart without a title, "samples/s over micro_batches".
std::string name_of_chart(const Chart& chart, const ChartLayout& layout);
// Returns the name of a point. Empty where it has none.
std::string name_of_point(const Curve& curve, std::size_t i);

// Returns about the width of a text in the font of labels.
double width_of(const std::string& text);
// Returns the texts of points at positions where they hide neither points nor lines nor each other, and few dots.
std::vector<Label> labels_of(const Chart& chart, const ChartLayout& layout);

// The look of a line: no two of a dozen are alike.
struct LineLook {
    int colour, marker, dash;
};
inline constexpr int kLineColours = 6, kMarkers = 6, kDashes = 3;
LineLook look_of(const Chart& chart, std::size_t curve);
// Returns the colour of a curve: dots are grey, crosses red, rings dark, the rest differ.
Colour colour_of_curve(const Chart& chart, std::size_t curve);
// Returns a colour from dark to bright for a part from 0 to 1 of the range of shades.
Colour colour_of_shade(double part);

}  // namespace pw

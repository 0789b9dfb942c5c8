// The layout of a chart of curves: all positions in pixels, the same for every kind of picture.
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

// A scale is one axis: it takes numbers in its unit between `low` and `high` to pixels.
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

// A label is the name of a point. A label at a distance has a line to its point.
struct Label {
    double x, y;  // the end of its baseline that is nearer to the point
    bool leftward;
    std::string text;
    bool apart;
    double from_x, from_y, to_x, to_y;  // ends of the line, from the point
};

struct LegendEntry {
    std::size_t curve;
    double x, y;  // left end of its line
};

struct ChartLayout {
    int width = 900, height = 420;
    double left = 70, right = 880, top = 30, bottom = 370;  // edges of the field of the curves
    Scale x, y;
    std::vector<Label> labels;  // names of points; none hides a point or another label
    std::vector<LegendEntry> legend;
    int legend_columns = 1;
};

// Bars are this wide, in numbers of x; a bar is centred on its number.
inline constexpr double kBarWidth = 0.7;

// Returns whether the chart is over steps, with one line for each curve: no curve gives the x of its values.
bool is_over_steps(const Chart& chart);
ChartLayout layout_of(const Chart& chart);

// A point is in the units of the axes; the i-th one of a curve is absent where it leaves a gap.
struct Point {
    double x, y;
};
std::optional<Point> point_of(const ChartLayout& layout, const Curve& curve, std::size_t i);

// Returns about the width of a text in the font of labels.
double width_of(const std::string& text);
// Returns the names of points at positions where they hide neither points nor lines nor each other, and few dots.
std::vector<Label> labels_of(const Chart& chart, const ChartLayout& layout);

// Returns the colour of a curve: dots are grey, crosses red, the others differ.
Colour colour_of_curve(const Chart& chart, std::size_t curve);

}  // namespace pw

#include "viz/chart.h"
#include "viz/timeline_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace pw {

namespace {

using Style = Curve::Style;

constexpr Colour kGrey = 0x858d96, kRed = 0xb3261e, kInk = 0x1f2328;
constexpr double kLine = 18;         // height of a row of the legend
constexpr double kField = 340;       // height of the field of the curves
constexpr double kMostHeight = 0.6;  // of the field, as a part of the width of the chart
constexpr double kEndHeight = 13;    // of the name of a line
constexpr double kWidestEnd = 250;   // of the name of a line
constexpr double kSlope = 0.574;     // sine of 35 degrees, the angle of slanted names

double number_at(const Curve& curve, std::size_t i) {
    return curve.x.empty() ? static_cast<double>(i) : i < curve.x.size() ? curve.x[i] : NAN;
}

struct Range {
    double low = INFINITY, high = -INFINITY;
    void add(double number) {
        low = std::min(low, number);
        high = std::max(high, number);
    }
    bool empty() const { return low > high; }
};

bool can_be_on(const Axis& axis, double number) {
    return std::isfinite(number) && (!axis.logarithmic || number > 0) && number <= axis.most.value_or(INFINITY);
}

Range range_of(const Chart& chart, bool of_x) {
    Range range;
    const Axis& axis = of_x ? chart.x : chart.y;
    for (const Curve& curve : chart.curves)
        for (std::size_t i = 0; i < curve.values.size(); ++i) {
            const double x = number_at(curve, i), y = curve.values[i];
            if (!can_be_on(chart.x, x) || !can_be_on(chart.y, y))
                continue;
            const double number = of_x ? x : y;
            const bool wide = curve.style == Style::Cells || (curve.style == Style::Bars && of_x);
            range.add(number - (wide ? 0.5 : 0));
            range.add(number + (wide ? 0.5 : 0));
            if (curve.style == Style::Bars && !of_x && can_be_on(axis, 0))
                range.add(0);
        }
    for (const Level& level : axis.levels)
        if (!range.empty() && can_be_on(axis, level.at))
            range.add(level.at);
    return range.empty() ? Range{axis.logarithmic ? 1.0 : 0.0, axis.logarithmic ? 2.0 : 1.0} : range;
}

Range range_of_shades(const Chart& chart) {
    Range range;
    for (const Curve& curve : chart.curves)
        for (const double shade : curve.shades)
            if (std::isfinite(shade))
                range.add(shade);
    return range.empty() ? Range{0, 1} : range.low < range.high ? range : Range{range.low - 1, range.low + 1};
}

// Leaves room on both sides. Begins at zero if the axis does, or if that costs less than half of the field.
void widen(Scale& scale, const Axis& axis, double room, bool zero) {
    if (scale.logarithmic) {
        const double factor = scale.high > scale.low ? std::pow(scale.high / scale.low, room) : 2;
        scale.low /= factor;
        scale.high *= factor;
        return;
    }
    const bool from_zero = scale.low >= 0 && (axis.from_zero || (zero && scale.low < 0.5 * scale.high));
    const double low = from_zero ? 0 : scale.low;
    const double more = scale.high > low ? room * (scale.high - low) : 0.5 * std::max(1.0, std::abs(scale.high));
    scale.low = from_zero ? 0 : scale.low - more;
    scale.high += more;
}

std::size_t rows_of_cells(const Chart& chart) { return has_cells(chart) ? chart.y.names.size() : 0; }

double widest_of(const std::vector<Tick>& ticks) {
    double widest = 0;
    for (const Tick& tick : ticks)
        widest = std::max(widest, width_of(tick.text));
    return widest;
}

// Cuts long names: the field needs most of the width.
void shorten(std::vector<Tick>& ticks, std::size_t most) {
    for (Tick& tick : ticks)
        if (tick.text.size() > most)
            tick.text = tick.text.substr(0, most - 2) + "..";
}

std::optional<Point> last_point(const Chart& chart, const ChartLayout& layout, const Curve& curve) {
    for (std::size_t i = curve.values.size(); i-- > 0;)
        if (const std::optional<Point> point = point_of(layout, chart, curve, i))
            return point;
    return std::nullopt;
}

bool is_named_line(const Curve& curve) { return is_line(curve) && curve.style != Style::Steps && !curve.title.empty(); }

// Room for the names of lines right of the field, or 0 if they go to the legend.
double room_for_ends(const Chart& chart, double height) {
    double widest = 0, lines = 0;
    for (const Curve& curve : chart.curves)
        if (is_named_line(curve)) {
            widest = std::max(widest, width_of(curve.title));
            lines += 1;
        }
    return lines > 1 && lines * kEndHeight <= height && widest <= kWidestEnd ? widest + 34 : 0;
}

// Names of lines at the height of their last points, moved as far as they would touch.
void place_ends(const Chart& chart, ChartLayout& layout) {
    for (std::size_t i = 0; i < chart.curves.size(); ++i)
        if (const auto last = last_point(chart, layout, chart.curves[i]); last && is_named_line(chart.curves[i])) {
            const double y = layout.y.pixel(last->y);
            layout.ends.push_back({i, layout.x.pixel(last->x), y, layout.right + 28, y});
        }
    std::vector<LineEnd>& ends = layout.ends;
    std::stable_sort(ends.begin(), ends.end(), [](const LineEnd& a, const LineEnd& b) { return a.from_y < b.from_y; });
    double free_from = layout.top;
    for (LineEnd& end : ends) {
        end.y = std::max(end.y, free_from);
        free_from = end.y + kEndHeight;
    }
    double free_to = layout.bottom;
    for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
        end->y = std::min(end->y, free_to);
        free_to = end->y - kEndHeight;
    }
}

void place_legend(const Chart& chart, ChartLayout& layout, bool lines_are_named) {
    std::vector<std::size_t> named;
    double entry = 0;
    for (std::size_t i = 0; i < chart.curves.size(); ++i) {
        const Curve& curve = chart.curves[i];
        if (curve.title.empty() || curve.style == Style::Cells || (lines_are_named && is_named_line(curve)))
            continue;
        named.push_back(i);
        entry = std::max(entry, 50 + width_of(curve.title));
    }
    const double wide = layout.right - layout.left;
    const auto most = std::clamp<std::size_t>(static_cast<std::size_t>(wide / std::max(entry, 1.0)), 1, 4);
    const std::size_t rows = (named.size() + most - 1) / most;
    const std::size_t columns = rows == 0 ? 1 : (named.size() + rows - 1) / rows;
    for (std::size_t i = 0; i < named.size(); ++i)
        layout.legend.push_back({named[i],
                                 layout.left + static_cast<double>(i / rows) * (wide / static_cast<double>(most)),
                                 layout.bottom + layout.below + 8 + kLine * static_cast<double>(i % rows)});
    layout.legend_columns = static_cast<int>(columns);
    layout.height = static_cast<int>(layout.bottom + layout.below + kLine * static_cast<double>(rows));
}

void scale_y(const Chart& chart, ChartLayout& layout) {
    const Range range = range_of(chart, false);
    layout.y = scale_of(chart.y, range.low, range.high);
    const bool cells = has_cells(chart);
    if (!cells)
        widen(layout.y, chart.y, 0.08, true);
    layout.y.from = cells ? layout.top : layout.bottom;  // rows of cells are listed downwards
    layout.y.to = cells ? layout.bottom : layout.top;
    add_ticks(layout.y, chart.y, false);
    shorten(layout.y.ticks, 42);
    layout.left = std::max(70.0, widest_of(layout.y.ticks) + 44);
}

void scale_x(const Chart& chart, ChartLayout& layout) {
    const Range range = range_of(chart, true);
    layout.x = scale_of(chart.x, range.low, range.high);
    if (chart.x.names.empty() && !has_cells(chart))
        widen(layout.x, chart.x, 0.04, chart.x.ticks.empty());
    layout.x.from = layout.left;
    layout.x.to = layout.right;
    add_ticks(layout.x, chart.x, true);
    shorten(layout.x.ticks, 32);
    if (chart.x.names.empty())
        return;
    const double widest = widest_of(layout.x.ticks);
    layout.slanted = widest + 6 > (layout.right - layout.left) / static_cast<double>(chart.x.names.size());
    if (!layout.slanted)
        return;
    layout.below += 0.8 * kSlope * widest;
    const double slot = (layout.right - layout.left) / static_cast<double>(chart.x.names.size());
    layout.left = std::max(layout.left, 0.8 * width_of(layout.x.ticks.front().text) - slot / 2 + 12);
    layout.x.from = layout.left;
}

}  // namespace

double bar_width(const Chart& chart) { return kBarWidth / std::max(chart.slots, 1); }

bool is_line(const Curve& curve) {
    return curve.style == Style::Line || curve.style == Style::LineWithPoints || curve.style == Style::Steps;
}

bool has_cells(const Chart& chart) {
    return std::any_of(chart.curves.begin(), chart.curves.end(),
                       [](const Curve& curve) { return curve.style == Style::Cells; });
}

ChartLayout layout_of(const Chart& chart, const View& view) {
    ChartLayout layout;
    if (view.width > 0)  // the layout has text of the usual size
        layout.width = std::lround(view.width * View{}.font / view.font);
    const bool has_title = view.titles && (!chart.title.empty() || !view.title.empty());
    for (const std::string& remark : view.titles ? chart.remarks : std::vector<std::string>())
        std::ranges::move(lines_within(remark, View{}.font, layout.width - layout.left - 8),
                          std::back_inserter(layout.remarks));
    layout.top = (has_title ? 44 : 20) + 17 * static_cast<double>(layout.remarks.size());
    constexpr double kCell = 24, kLeastCell = 4;
    const auto rows = static_cast<double>(rows_of_cells(chart));
    layout.bottom = layout.top + (rows > 0 ? std::max(rows * kLeastCell, std::min(rows * kCell, 1200.0))
                                           : std::min(kField, kMostHeight * layout.width));
    scale_y(chart, layout);
    const double ends = room_for_ends(chart, layout.bottom - layout.top);
    layout.right = layout.width - (has_cells(chart) ? 110 : std::max(ends, 22.0));
    scale_x(chart, layout);
    if (has_cells(chart)) {
        const Range shades = range_of_shades(chart);
        layout.shade = scale_of(chart.shade, shades.low, shades.high);
        layout.shade.from = layout.bottom;
        layout.shade.to = layout.top;
        add_ticks(layout.shade, {}, false);
    }
    if (ends > 0)
        place_ends(chart, layout);
    place_legend(chart, layout, ends > 0);
    layout.labels = labels_of(chart, layout);
    return layout;
}

std::optional<Point> point_of(const ChartLayout& layout, const Chart& chart, const Curve& curve, std::size_t i) {
    const double x = number_at(curve, i), y = curve.values[i];
    if (!can_be_on(chart.x, x) || !can_be_on(chart.y, y))
        return std::nullopt;
    const double shift = curve.style == Style::Bars || curve.slot > 0 ? curve.slot - (chart.slots - 1) / 2.0 : 0;
    return Point{(x + shift * bar_width(chart)) / layout.x.unit.size, y / layout.y.unit.size};
}

std::string name_of_chart(const Chart& chart, const ChartLayout& layout) {
    return has_cells(chart) ? fmt::format("{} over {} and {}", layout.shade.label, layout.x.label, layout.y.label)
                            : fmt::format("{} over {}", layout.y.label, layout.x.label);
}

std::string name_of_point(const Curve& curve, std::size_t i) {
    const std::vector<std::string>& names = curve.names.empty() ? curve.labels : curve.names;
    return i < names.size() ? names[i] : "";
}

LineLook look_of(const Chart& chart, std::size_t curve) {
    const auto before = std::count_if(
        chart.curves.begin(), chart.curves.begin() + static_cast<std::ptrdiff_t>(curve), [](const Curve& other) {
            return is_line(other) || other.style == Style::Points || other.style == Style::Bars;
        });
    const int n = static_cast<int>(before);
    return {n % kLineColours, (n + n / kLineColours) % kMarkers, n / kLineColours % kDashes};
}

Colour colour_of_curve(const Chart& chart, std::size_t curve) {
    switch (chart.curves[curve].style) {
        case Style::Dots:
            return kGrey;
        case Style::Crosses:
            return kRed;
        case Style::Rings:
            return kInk;
        default:
            return series_colour(look_of(chart, curve).colour);
    }
}

Colour colour_of_shade(double part) {
    constexpr Colour kStops[] = {0x440154, 0x3b528b, 0x21918c, 0x5ec962, 0xfde725};  // viridis
    const double at = std::clamp(part, 0.0, 1.0) * (std::size(kStops) - 1);
    const auto stop = std::min(static_cast<std::size_t>(at), std::size(kStops) - 2);
    Colour colour = 0;
    for (const int shift : {16, 8, 0}) {
        const double low = (kStops[stop] >> shift) & 0xff, high = (kStops[stop + 1] >> shift) & 0xff;
        colour |= static_cast<Colour>(std::lround(low + (high - low) * (at - static_cast<double>(stop)))) << shift;
    }
    return colour;
}

}  // namespace pw

#include "viz/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace pw {

namespace {

constexpr Colour kColours[] = {0x2f6db5, 0xe08214, 0x0b8a7d, 0x9a6bb5, 0x7d8590, 0x8fbf4d};
constexpr Colour kGrey = 0xb4bac1, kRed = 0xb3261e;
constexpr double kLine = 18;         // height of a row of the legend
constexpr double kAboveLegend = 72;  // from the field to the first row of the legend
constexpr double kField = 340;       // height of the field of the curves

double number_at(const Curve& curve, std::size_t i) {
    return curve.x.empty() ? static_cast<double>(i) : i < curve.x.size() ? curve.x[i] : NAN;
}

struct Range {
    double low = INFINITY, high = -INFINITY;
    void add(double number) {
        low = std::min(low, number);
        high = std::max(high, number);
    }
};

bool can_stand(double number, bool logarithmic) { return std::isfinite(number) && (!logarithmic || number > 0); }

Range range_of(const Chart& chart, bool of_x) {
    Range range;
    for (const Curve& curve : chart.curves)
        for (std::size_t i = 0; i < curve.values.size(); ++i) {
            const double x = number_at(curve, i), y = curve.values[i];
            if (!can_stand(x, chart.x.logarithmic) || !can_stand(y, chart.y.logarithmic))
                continue;
            range.add(of_x ? x : y);
            if (curve.style == Curve::Style::Bars && of_x) {
                range.add(x - 0.5);
                range.add(x + 0.5);
            } else if (curve.style == Curve::Style::Bars && can_stand(0, chart.y.logarithmic)) {
                range.add(0);
            }
        }
    return range.low > range.high ? Range{chart.x.logarithmic || chart.y.logarithmic ? 1.0 : 0.0, 1.0} : range;
}

// The last unit that the largest number fills.
template <std::size_t N>
Unit decimal_unit_for(double most, const std::string_view (&names)[N]) {
    double size = 1;
    std::size_t i = 0;
    for (; i + 1 < N && most >= 1000 * size; ++i)
        size *= 1000;
    return {names[i], size};
}

Unit unit_for(Quantity quantity, double most) {
    const double whole = std::clamp(most, 0.0, 9e18);
    switch (quantity) {
        case Quantity::Number:
            break;
        case Quantity::Time:
            return time_unit_for(static_cast<Ns>(whole));
        case Quantity::Size:
            return bytes_unit_for(static_cast<Bytes>(whole));
        case Quantity::Bandwidth:
            return decimal_unit_for(most, {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"});
        case Quantity::ComputeRate:
            return decimal_unit_for(most, {"FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s"});
    }
    return {"", 1};
}

// Leaves room on both sides; with `zero` starts there if that costs less than half of the field.
void widen(Scale& scale, double room, bool zero) {
    if (scale.logarithmic) {
        const double factor = scale.high > scale.low ? std::pow(scale.high / scale.low, room) : 2;
        scale.low /= factor;
        scale.high *= factor;
        return;
    }
    const bool from_zero = zero && scale.low >= 0 && scale.low < 0.5 * scale.high;
    const double more = scale.high > scale.low ? room * (scale.high - scale.low) : 0.5 * std::max(1.0, scale.high);
    scale.low = from_zero ? 0 : scale.low - more;
    scale.high += more;
}

// 1, 2 or 5 times a power of ten, so that about `count` of them fill the range.
double round_step(double range, int count) {
    const double rough = range / count, power = std::pow(10, std::floor(std::log10(rough)));
    for (const double factor : {1.0, 2.0, 5.0})
        if (factor * power >= rough * 0.999)
            return factor * power;
    return 10 * power;
}

std::vector<double> round_numbers(const Scale& scale, int count) {
    std::vector<double> numbers;
    if (scale.logarithmic) {
        const bool narrow = scale.high / scale.low < 200;
        for (double power = std::pow(10, std::floor(std::log10(scale.low))); power <= scale.high; power *= 10)
            for (const double factor : {1.0, 2.0, 5.0})
                if ((narrow || factor == 1.0) && scale.shows(factor * power))
                    numbers.push_back(factor * power);
        return numbers;
    }
    const double step = round_step(scale.high - scale.low, count);
    const double first = std::ceil(scale.low / step - 1e-9);
    for (int i = 0; first * step + i * step <= scale.high + 1e-9 * step; ++i)
        numbers.push_back((first + i) * step);
    return numbers;
}

// Quarters of the range; whole numbers for steps.
std::vector<double> quarters(const Scale& scale, bool whole) {
    std::vector<double> numbers;
    for (int i = 0; i <= 4; ++i) {
        const double number = scale.low + (scale.high - scale.low) * i / 4;
        numbers.push_back(whole ? std::floor(number) : number);
    }
    return numbers;
}

// `apart` omits marks whose texts would touch along x.
void add_ticks(Scale& scale, const std::vector<double>& numbers, int digits, bool apart = false) {
    double free_from = -INFINITY;
    for (const double number : numbers) {
        std::string text = fmt::format("{:.{}g}", number, digits);
        const double half = width_of(text) / 2, at = scale.pixel(number);
        if (!scale.shows(number) || (apart && at - half < free_from))
            continue;
        free_from = at + half + 6;
        scale.ticks.push_back({number, std::move(text)});
    }
}

Scale scale_of(const Axis& axis, Range range) {
    Scale scale;
    scale.logarithmic = axis.logarithmic;
    scale.unit = unit_for(axis.quantity, range.high);
    scale.label = scale.unit.name.empty() ? axis.label : fmt::format("{} in {}", axis.label, scale.unit.name);
    scale.low = range.low / scale.unit.size;
    scale.high = range.high / scale.unit.size;
    return scale;
}

void scale_over_steps(const Chart& chart, ChartLayout& layout) {
    std::size_t longest = 0;
    for (const Curve& curve : chart.curves)
        longest = std::max(longest, curve.values.size());
    layout.x.low = 0;
    layout.x.high = std::max<double>(1, static_cast<double>(longest) - 1);
    Scale& y = layout.y;
    const double room = y.high > y.low ? 0.05 * (y.high - y.low) : 0.5;
    y.low -= room;
    y.high += room;
    add_ticks(layout.x, quarters(layout.x, true), 12);
    add_ticks(y, quarters(y, false), 4);
}

void scale_over_numbers(const Chart& chart, ChartLayout& layout) {
    widen(layout.x, 0.04, chart.x.ticks.empty());
    widen(layout.y, 0.08, true);
    std::vector<double> marked = chart.x.ticks;
    std::sort(marked.begin(), marked.end());
    for (double& number : marked)
        number /= layout.x.unit.size;
    add_ticks(layout.x, marked.empty() ? round_numbers(layout.x, 8) : marked, 6, true);
    add_ticks(layout.y, round_numbers(layout.y, 8), 6);
}

void place_legend(const Chart& chart, ChartLayout& layout) {
    std::vector<std::size_t> named;
    double entry = 0;
    for (std::size_t i = 0; i < chart.curves.size(); ++i)
        if (!chart.curves[i].title.empty()) {
            named.push_back(i);
            entry = std::max(entry, 50 + width_of(chart.curves[i].title));
        }
    const double wide = layout.right - layout.left;
    const auto most = std::clamp<std::size_t>(static_cast<std::size_t>(wide / std::max(entry, 1.0)), 1, 4);
    const std::size_t rows = (named.size() + most - 1) / most;
    const std::size_t columns = rows == 0 ? 1 : (named.size() + rows - 1) / rows;
    for (std::size_t i = 0; i < named.size(); ++i)
        layout.legend.push_back({named[i],
                                 layout.left + static_cast<double>(i / rows) * (wide / static_cast<double>(most)),
                                 layout.bottom + kAboveLegend + kLine * static_cast<double>(i % rows)});
    layout.legend_columns = static_cast<int>(columns);
    layout.height = static_cast<int>(layout.bottom + kAboveLegend + kLine * static_cast<double>(rows));
}

}  // namespace

double width_of(const std::string& text) {
    constexpr double kCharacter = 6.8;  // a little more than the average
    return kCharacter * static_cast<double>(std::count_if(text.begin(), text.end(), [](char c) {
               return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
           }));
}

bool Scale::shows(double number) const {
    const double slack = logarithmic ? 0 : 1e-9 * (high - low);
    return number >= low - slack && number <= high + slack;
}

double Scale::pixel(double number) const {
    const double part = logarithmic ? std::log(number / low) / std::log(high / low) : (number - low) / (high - low);
    return from + (to - from) * part;
}

bool is_over_steps(const Chart& chart) {
    return std::all_of(chart.curves.begin(), chart.curves.end(), [](const Curve& curve) {
        return curve.x.empty() && curve.style == Curve::Style::Line && curve.labels.empty();
    });
}

ChartLayout layout_of(const Chart& chart) {
    ChartLayout layout;
    layout.x = scale_of(chart.x, range_of(chart, true));
    layout.y = scale_of(chart.y, range_of(chart, false));
    if (!is_over_steps(chart)) {
        layout.top = chart.title.empty() ? 30 : 54;
        layout.bottom = layout.top + kField;
    }
    layout.x.from = layout.left;
    layout.x.to = layout.right;
    layout.y.from = layout.bottom;
    layout.y.to = layout.top;
    if (is_over_steps(chart)) {
        scale_over_steps(chart, layout);
        return layout;
    }
    scale_over_numbers(chart, layout);
    layout.labels = labels_of(chart, layout);
    place_legend(chart, layout);
    return layout;
}

std::optional<Point> point_of(const ChartLayout& layout, const Curve& curve, std::size_t i) {
    const Point point{number_at(curve, i) / layout.x.unit.size, curve.values[i] / layout.y.unit.size};
    if (!can_stand(point.x, layout.x.logarithmic) || !can_stand(point.y, layout.y.logarithmic))
        return std::nullopt;
    return point;
}

Colour colour_of_curve(const Chart& chart, std::size_t curve) {
    const auto has_its_own = [](const Curve& other) {
        return other.style == Curve::Style::Dots || other.style == Curve::Style::Crosses;
    };
    const Curve& asked = chart.curves[curve];
    if (has_its_own(asked))
        return asked.style == Curve::Style::Dots ? kGrey : kRed;
    const auto before =
        std::count_if(chart.curves.begin(), chart.curves.begin() + static_cast<std::ptrdiff_t>(curve), has_its_own);
    return kColours[(curve - static_cast<std::size_t>(before)) % std::size(kColours)];
}

}  // namespace pw

// Draws the step time of a sweep against the values of one of its keys.
#include "report/notes.h"
#include "report/sweep.h"
#include "workloads/error.h"
#include "workloads/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

namespace pw {

namespace {

// Texts of an axis as numbers, in the units of the quantity.
struct Numbers {
    Quantity quantity;
    std::vector<double> values;
};

std::optional<double> parse_number(const std::string& text) {
    double value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || stop != text.data() + text.size())
        return std::nullopt;
    return value;
}

std::optional<double> as_double(std::optional<std::int64_t> value) {
    return value ? std::optional<double>(static_cast<double>(*value)) : std::nullopt;
}

// "inf" is a number of every kind, but of none alone.
template <class Parse>
std::optional<Numbers> numbers_by(Quantity quantity, const std::vector<std::string>& texts, Parse parse) {
    Numbers numbers{quantity, {}};
    for (const std::string& text : texts) {
        const auto value = text == "inf" ? std::optional<double>(INFINITY) : parse(text);
        if (!value)
            return std::nullopt;
        numbers.values.push_back(*value);
    }
    const auto finite = [](double value) { return std::isfinite(value); };
    if (std::none_of(numbers.values.begin(), numbers.values.end(), finite))
        return std::nullopt;
    return numbers;
}

std::optional<Numbers> numbers_of(const SweepAxis& axis) {
    using Parse = std::optional<double> (*)(const std::string& text);
    constexpr std::pair<Quantity, Parse> kParsers[] = {
        {Quantity::Number, parse_number},
        {Quantity::Time, [](const std::string& text) { return as_double(parse_time(text)); }},
        {Quantity::Size, [](const std::string& text) { return as_double(parse_bytes(text)); }},
        {Quantity::Bandwidth, [](const std::string& text) { return parse_bandwidth(text); }},
        {Quantity::ComputeRate, [](const std::string& text) { return parse_flops(text); }},
    };
    for (const auto& [quantity, parse] : kParsers)
        if (auto numbers = numbers_by(quantity, axis.texts, parse))
            return numbers;
    return std::nullopt;
}

std::optional<std::size_t> first_with_numbers(const std::vector<SweepAxis>& axes) {
    for (std::size_t i = 0; i < axes.size(); ++i)
        if (numbers_of(axes[i]))
            return i;
    return std::nullopt;
}

// Finite values in ascending order, each once.
std::vector<double> ascending(std::vector<double> values) {
    std::erase_if(values, [](double value) { return !std::isfinite(value); });
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    return values;
}

// Whether the ratios of neighbours are more alike than their distances: 1 2 4 8 and 1 2 5 10, not 2 4 6 8.
bool is_geometric(const std::vector<double>& values) {
    if (values.size() < 3 || values.front() <= 0)
        return false;
    double least_ratio = INFINITY, most_ratio = 0, least_step = INFINITY, most_step = 0;
    for (std::size_t i = 1; i < values.size(); ++i) {
        const double ratio = values[i] / values[i - 1], step = values[i] - values[i - 1];
        least_ratio = std::min(least_ratio, ratio);
        most_ratio = std::max(most_ratio, ratio);
        least_step = std::min(least_step, step);
        most_step = std::max(most_step, step);
    }
    return most_ratio / least_ratio < most_step / least_step;
}

// What the other axes say, the title of a line.
std::string title_of_line(const std::vector<SweepAxis>& axes, const SweepPoint& point, std::size_t x) {
    const std::vector<std::string> names = short_names(axes);
    std::string title;
    for (std::size_t i = 0; i < axes.size(); ++i)
        if (i != x)
            title += fmt::format("{}{} {}", title.empty() ? "" : ", ", names[i], point.texts[i]);
    return title;
}

struct PlottedPoint {
    double x, step_time;
    bool fits;
};

// A point with an error leaves a gap.
PlottedPoint place_of(const SweepPoint& point, double x) {
    if (!point.report)
        return {x, NAN, true};
    return {x, static_cast<double>(point.report->metrics.step_time), fits(*point.report)};
}

struct SweepLine {
    std::string title;
    std::vector<PlottedPoint> places;
    int failed = 0;      // points that cannot be simulated
    std::string reason;  // of the first of them
};

// In the order of the sweep.
std::vector<SweepLine> lines_of(const std::vector<SweepAxis>& axes, const std::vector<SweepPoint>& points,
                                std::size_t x, const Numbers& numbers) {
    const std::vector<std::string>& texts = axes[x].texts;
    std::vector<SweepLine> lines;
    std::map<std::string, std::size_t> line_of;
    for (const SweepPoint& point : points) {
        const auto text = std::find(texts.begin(), texts.end(), point.texts[x]);
        const double number = numbers.values[static_cast<std::size_t>(text - texts.begin())];
        const std::string title = title_of_line(axes, point, x);
        const auto [line, is_new] = line_of.emplace(title, lines.size());
        if (is_new)
            lines.push_back({title, {}, 0, ""});
        SweepLine& own = lines[line->second];
        if (point.error && own.failed++ == 0)
            own.reason = first_line(*point.error);
        if (std::isfinite(number))
            own.places.push_back(place_of(point, number));
    }
    return lines;
}

// Points along x, and one curve of those that do not fit.
std::vector<Curve> curves_of(const std::vector<SweepLine>& lines) {
    std::vector<Curve> curves;
    Curve misfits{"over the memory of a device", {}, {}, Curve::Style::Crosses};
    for (const SweepLine& line : lines) {
        std::vector<PlottedPoint> places = line.places;
        std::stable_sort(places.begin(), places.end(),
                         [](const PlottedPoint& a, const PlottedPoint& b) { return a.x < b.x; });
        Curve curve{line.title, {}, {}, Curve::Style::LineWithPoints};
        for (const PlottedPoint& place : places) {
            curve.x.push_back(place.x);
            curve.values.push_back(place.step_time);
            if (!place.fits) {
                misfits.x.push_back(place.x);
                misfits.values.push_back(place.step_time);
            }
        }
        curves.push_back(std::move(curve));
    }
    if (!misfits.values.empty())
        curves.push_back(std::move(misfits));
    return curves;
}

// Without a note, a missing line or a gap would not be noticed.
void note_missing(const std::vector<SweepLine>& lines, Notices& missing) {
    for (const SweepLine& line : lines)
        if (const auto all = line.places.size(); line.failed > 0 && !line.title.empty())
            missing.push_back(
                static_cast<std::size_t>(line.failed) >= all
                    ? fmt::format("the picture has no line of {}: {}", line.title, line.reason)
                    : fmt::format("{} of {} points of {} are missing: {}", line.failed, all, line.title, line.reason));
        else if (line.failed > 0)
            missing.push_back(fmt::format("{} of {} points are missing: {}", line.failed, all, line.reason));
}

}  // namespace

void check_drawable(const std::vector<SweepAxis>& axes, const std::string& file) {
    if (!first_with_numbers(axes))
        fail(
            "cannot plot '{}': no key of 'sweep' has numbers for the x axis\n"
            "  help: sweep one that has, too, such as pipeline.micro_batches: [4, 8, 16], or leave --plot out",
            file);
}

Chart chart_of(const Sweep& sweep, Notices& missing) {
    check_drawable(sweep.axes, "sweep");
    const std::size_t x = *first_with_numbers(sweep.axes);
    const Numbers numbers = *numbers_of(sweep.axes[x]);
    const std::string name = short_names(sweep.axes)[x];
    const std::vector<double> marks = ascending(numbers.values);
    if (std::any_of(numbers.values.begin(), numbers.values.end(), [](double value) { return std::isinf(value); }))
        missing.push_back(fmt::format("'{}' inf has no place along x: left out of the picture", name));
    const std::vector<SweepLine> lines = lines_of(sweep.axes, sweep.points, x, numbers);
    note_missing(lines, missing);
    return {curves_of(lines), {name, numbers.quantity, is_geometric(marks), marks}, {"step time", Quantity::Time}};
}

}  // namespace pw

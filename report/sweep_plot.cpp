// The chart of a sweep: lines over numbers, bars for names, a heat map where there would be too many bars.
#include "report/notes.h"
#include "report/sweep.h"
#include "report/sweep_choice.h"
#include "report/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

namespace pw {

namespace {

constexpr std::size_t kMostLines = 12, kMostSlots = 6, kMostBars = 60;
constexpr const char *kMisfits = "over the memory of a device", *kAsynchronous = "asynchronous: trains differently";

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

// A short text of a value: names are clear alone, numbers need their key.
std::string value_text(const SweepAxis& axis, const std::string& name, const std::string& text) {
    return numbers_of(axis) ? name + " " + text : text;
}

// The values of all keys but the named one.
std::string title_of_line(const std::vector<SweepAxis>& axes, const SweepPoint& point, std::size_t without) {
    const std::vector<std::string> names = short_names(axes);
    std::string title;
    for (std::size_t i = 0; i < axes.size(); ++i)
        if (i != without)
            title += fmt::format("{}{}", title.empty() ? "" : ", ", value_text(axes[i], names[i], point.texts[i]));
    return title;
}

struct SweepLine {
    std::string title;
    std::vector<std::size_t> points;  // of the sweep
    int failed = 0;                   // points that cannot be simulated
    std::string reason;               // of the first such point
};

bool has_tokens(const Sweep& sweep) {
    return std::all_of(sweep.points.begin(), sweep.points.end(),
                       [](const SweepPoint& point) { return !point.report || point.report->tokens > 0; });
}

// The chart under construction, and what it is made of.
struct SweepChart {
    const Sweep& sweep;
    const SweepChoice& choice;
    const Bytes limit;
    const bool of_tokens;  // counts_tokens()
    Notices& missing;
    std::vector<SweepLine> lines = {};
    Chart chart = {};

    const SweepPoint& point(std::size_t number) const { return sweep.points[number]; }
    double number(std::size_t point_number) const { return number_of(*choice.metric, point(point_number)); }
    bool is_misfit(std::size_t number) const { return point(number).report && !fits(*point(number).report); }
};

std::string remark_on(const SweepChart& own, const std::string& what, std::size_t point) {
    const SweepMetric& metric = *own.choice.metric;
    const bool alone = point == own.sweep.best && is_asynchronous(own.point(point));
    return fmt::format("{}{}: {}: {}{}", what, alone ? " (asynchronous, as every plan here)" : "",
                       setting_of(own.sweep, point), print_number(metric, own.number(point), own.limit),
                       metric.quantity == Quantity::Number ? fmt::format(" {}", metric.label) : "");
}

void add_point(const SweepChart& own, Curve& curve, std::size_t point, double x, double y) {
    curve.x.push_back(x);
    curve.values.push_back(y);
    curve.names.push_back(setting_of(own.sweep, point) + (is_asynchronous(own.point(point)) ? " (asynchronous)" : ""));
    curve.facts.push_back(facts_of(own.point(point), own.limit, own.of_tokens));
}

bool is_all_asynchronous(const SweepChart& own, const std::vector<std::size_t>& points) {
    bool any = false;
    for (const std::size_t i : points) {
        any = any || is_asynchronous(own.point(i));
        if (own.point(i).report && !is_asynchronous(own.point(i)))
            return false;
    }
    return any;
}

// In the order of the sweep.
void find_lines(SweepChart& own) {
    std::map<std::string, std::size_t> line_of;
    for (std::size_t i = 0; i < own.sweep.points.size(); ++i) {
        const SweepPoint& point = own.point(i);
        const auto [line, is_new] =
            line_of.emplace(title_of_line(own.sweep.axes, point, own.choice.x), own.lines.size());
        if (is_new)
            own.lines.push_back({line->first, {}, 0, ""});
        SweepLine& found = own.lines[line->second];
        found.points.push_back(i);
        if (point.error && found.failed++ == 0)
            found.reason = first_line(*point.error);
    }
    // Without a note, a missing line or a gap would not be noticed.
    for (SweepLine& line : own.lines) {
        const auto all = line.points.size();
        if (line.failed > 0 && !line.title.empty())
            own.missing.push_back(
                static_cast<std::size_t>(line.failed) >= all
                    ? fmt::format("the picture has no line of {}: {}", line.title, line.reason)
                    : fmt::format("{} of {} points of {} are missing: {}", line.failed, all, line.title, line.reason));
        else if (line.failed > 0)
            own.missing.push_back(fmt::format("{} of {} points are missing: {}", line.failed, all, line.reason));
        if (is_all_asynchronous(own, line.points) && !line.title.empty())
            line.title += " (asynchronous)";
    }
}

std::size_t position_of(const SweepChart& own, std::size_t point) {
    const std::vector<std::string>& texts = own.sweep.axes[own.choice.x].texts;
    const auto found = std::find(texts.begin(), texts.end(), own.point(point).texts[own.choice.x]);
    return static_cast<std::size_t>(found - texts.begin());
}

// The values of x. Values of asynchronous plans are marked.
std::vector<std::string> names_of_x(const SweepChart& own) {
    const std::vector<std::string>& texts = own.sweep.axes[own.choice.x].texts;
    std::vector<std::vector<std::size_t>> points(texts.size());
    for (std::size_t i = 0; i < own.sweep.points.size(); ++i)
        points[position_of(own, i)].push_back(i);
    std::vector<std::string> names;
    for (std::size_t k = 0; k < texts.size(); ++k)
        names.push_back(texts[k] + (is_all_asynchronous(own, points[k]) ? " (asynchronous)" : ""));
    return names;
}

void add_best(const SweepChart& own, Curve& ring, std::size_t point, double x, double y) {
    add_point(own, ring, point, x, y);
    const std::string title = title_of_line(own.sweep.axes, own.point(point), own.choice.x);
    ring.labels.push_back(title.empty() ? "best" : "best: " + title);
}

void add_if_any(SweepChart& own, Curve curve) {
    if (!curve.values.empty())
        own.chart.curves.push_back(std::move(curve));
}

void draw_lines(SweepChart& own, const KeyNumbers& numbers) {
    const std::string name = short_names(own.sweep.axes)[own.choice.x];
    const std::vector<double> marks = ascending(numbers.values);
    if (std::any_of(numbers.values.begin(), numbers.values.end(), [](double value) { return std::isinf(value); }))
        own.missing.push_back(fmt::format("'{}' inf has no place along x: left out of the picture", name));
    own.chart.x = {name, numbers.quantity, is_geometric(marks), marks};
    Curve misfits{kMisfits, {}, {}, Curve::Style::Crosses};
    Curve ring{"", {}, {}, Curve::Style::Rings};
    for (const SweepLine& line : own.lines) {
        std::vector<std::size_t> points = line.points;
        std::erase_if(points, [&](std::size_t i) { return !std::isfinite(numbers.values[position_of(own, i)]); });
        std::stable_sort(points.begin(), points.end(), [&](std::size_t a, std::size_t b) {
            return numbers.values[position_of(own, a)] < numbers.values[position_of(own, b)];
        });
        Curve curve{line.title, {}, {}, Curve::Style::LineWithPoints};
        for (const std::size_t i : points) {
            const double x = numbers.values[position_of(own, i)], y = own.number(i);
            add_point(own, curve, i, x, y);
            if (own.is_misfit(i))
                add_point(own, misfits, i, x, y);
            if (i == own.sweep.best)
                add_best(own, ring, i, x, y);
        }
        own.chart.curves.push_back(std::move(curve));
    }
    add_if_any(own, std::move(misfits));
    add_if_any(own, std::move(ring));
}

// The kinds of bars of a row, by colour.
Curve& bars_for(const SweepChart& own, std::vector<Curve>& kinds, std::size_t point) {
    const SweepPoint& at = own.point(point);
    if (!fits(*at.report))
        return kinds[3];
    return kinds[point == own.sweep.best ? 1 : is_asynchronous(at) ? 2 : 0];
}

// A single row of names: from the best to the worst.
void draw_bars(SweepChart& own) {
    std::vector<std::size_t> points = own.lines.front().points;
    std::erase_if(points, [&](std::size_t i) { return !own.point(i).report; });
    std::stable_sort(points.begin(), points.end(), [&](std::size_t a, std::size_t b) {
        const double first = own.number(a), second = own.number(b);
        return own.choice.metric->more_is_better ? first > second : first < second;
    });
    own.chart.y.logarithmic = false;
    own.chart.x = {short_names(own.sweep.axes)[own.choice.x]};
    std::vector<Curve> kinds;
    for (const char* const title : {"others", "best", kAsynchronous, kMisfits})
        kinds.push_back({title, {}, {}, Curve::Style::Bars});
    const std::vector<std::string> names = names_of_x(own);
    for (const std::size_t i : points) {
        const double x = static_cast<double>(own.chart.x.names.size());
        const double y = own.number(i);
        own.chart.x.names.push_back(names[position_of(own, i)]);
        Curve& curve = bars_for(own, kinds, i);
        add_point(own, curve, i, x, y);
        curve.labels.push_back(print_number(*own.choice.metric, y, own.limit));
    }
    for (Curve& kind : kinds)
        add_if_any(own, std::move(kind));
}

// Bars of several lines next to each other.
void draw_groups(SweepChart& own) {
    own.chart.x = {short_names(own.sweep.axes)[own.choice.x]};
    own.chart.x.names = names_of_x(own);
    own.chart.y.logarithmic = false;
    own.chart.slots = static_cast<int>(own.lines.size());
    Curve misfits{kMisfits, {}, {}, Curve::Style::Crosses};
    std::vector<Curve> marks;
    for (std::size_t slot = 0; slot < own.lines.size(); ++slot) {
        Curve bars{own.lines[slot].title, {}, {}, Curve::Style::Bars}, crosses = misfits;
        Curve ring{"", {}, {}, Curve::Style::Rings};
        for (const std::size_t i : own.lines[slot].points) {
            if (!own.point(i).report)
                continue;
            const double x = static_cast<double>(position_of(own, i)), y = own.number(i);
            add_point(own, bars, i, x, y);
            if (own.is_misfit(i))
                add_point(own, crosses, i, x, y);
            if (i == own.sweep.best)
                add_best(own, ring, i, x, y);
        }
        for (Curve* const curve : {&bars, &crosses, &ring})
            curve->slot = static_cast<int>(slot);
        add_if_any(own, std::move(bars));
        for (Curve* const curve : {&crosses, &ring})
            if (!curve->values.empty())
                marks.push_back(std::move(*curve));
    }
    bool named = false;  // a single entry of the legend is enough
    for (Curve& curve : marks) {
        if (curve.style == Curve::Style::Crosses && std::exchange(named, true))
            curve.title.clear();
        own.chart.curves.push_back(std::move(curve));
    }
}

// A row per line, a column per value of x: from small to large numbers.
void draw_map(SweepChart& own, const std::optional<KeyNumbers>& numbers) {
    const std::vector<SweepAxis>& axes = own.sweep.axes;
    std::vector<std::size_t> columns(axes[own.choice.x].texts.size());
    for (std::size_t k = 0; k < columns.size(); ++k)
        columns[k] = k;
    if (numbers)
        std::stable_sort(columns.begin(), columns.end(),
                         [&](std::size_t a, std::size_t b) { return numbers->values[a] < numbers->values[b]; });
    std::vector<std::size_t> column_of(columns.size());
    own.chart.x = {short_names(axes)[own.choice.x]};
    const std::vector<std::string> names = names_of_x(own);
    for (std::size_t k = 0; k < columns.size(); ++k) {
        column_of[columns[k]] = k;
        own.chart.x.names.push_back(names[columns[k]]);
    }
    std::vector<std::string> of_rows = short_names(axes);
    of_rows.erase(of_rows.begin() + static_cast<std::ptrdiff_t>(own.choice.x));
    own.chart.y = {fmt::format("{}", fmt::join(of_rows, ", "))};
    own.chart.shade = axis_of(*own.choice.metric, own.sweep);
    Curve cells{own.choice.metric->label, {}, {}, Curve::Style::Cells}, ring{"", {}, {}, Curve::Style::Rings};
    Curve misfits{kMisfits, {}, {}, Curve::Style::Crosses};
    for (std::size_t row = 0; row < own.lines.size(); ++row) {
        const bool alone = of_rows.size() == 1;  // the label of y names the key
        const std::string& title = own.lines[row].title;
        own.chart.y.names.push_back(alone && title.starts_with(of_rows[0] + " ") ? title.substr(of_rows[0].size() + 1)
                                                                                 : title);
        for (const std::size_t i : own.lines[row].points) {
            if (!own.point(i).report)
                continue;
            const double x = static_cast<double>(column_of[position_of(own, i)]), y = static_cast<double>(row);
            add_point(own, cells, i, x, y);
            cells.shades.push_back(own.number(i));
            if (own.is_misfit(i))
                add_point(own, misfits, i, x, y);
            if (i == own.sweep.best)
                add_point(own, ring, i, x, y);
        }
    }
    own.chart.curves.push_back(std::move(cells));
    add_if_any(own, std::move(misfits));
    add_if_any(own, std::move(ring));
}

// A number against another number.
void draw_dots(SweepChart& own) {
    own.chart.x = axis_of(*own.choice.x_metric, own.sweep);
    own.chart.y = axis_of(*own.choice.metric, own.sweep);
    Curve others{"points of the sweep", {}, {}, Curve::Style::Points};
    Curve asynchronous{kAsynchronous, {}, {}, Curve::Style::Points};
    Curve misfits{kMisfits, {}, {}, Curve::Style::Crosses};
    Curve ring{"", {}, {}, Curve::Style::Rings};
    int failed = 0;
    for (std::size_t i = 0; i < own.sweep.points.size(); ++i) {
        const SweepPoint& point = own.point(i);
        failed += point.error ? 1 : 0;
        if (!point.report)
            continue;
        const double x = number_of(*own.choice.x_metric, point), y = number_of(*own.choice.metric, point);
        add_point(own, !fits(*point.report) ? misfits : is_asynchronous(point) ? asynchronous : others, i, x, y);
        if (i == own.sweep.best) {
            add_point(own, ring, i, x, y);
            ring.labels.push_back("best: " + setting_of(own.sweep, i));
        }
    }
    if (failed > 0)
        own.missing.push_back(
            fmt::format("{} of {} points are missing: they cannot be simulated", failed, own.sweep.points.size()));
    for (Curve* const curve : {&others, &asynchronous, &misfits, &ring})
        add_if_any(own, std::move(*curve));
}

void draw_over_key(SweepChart& own) {
    const SweepAxis& axis = own.sweep.axes[own.choice.x];
    const std::optional<KeyNumbers> numbers = numbers_of(axis);
    find_lines(own);
    const bool many_bars = own.lines.size() > kMostSlots || own.lines.size() * axis.texts.size() > kMostBars;
    if (own.choice.as_map || (numbers ? own.lines.size() > kMostLines : own.lines.size() > 1 && many_bars))
        return draw_map(own, numbers);
    own.chart.y = axis_of(*own.choice.metric, own.sweep);
    if (numbers)
        draw_lines(own, *numbers);
    else if (own.lines.size() == 1)
        draw_bars(own);
    else
        draw_groups(own);
}

}  // namespace

Chart chart_of(const Sweep& sweep, Notices& missing, const SweepView& view) {
    const bool of_tokens = counts_tokens(sweep);
    const SweepChoice choice = sweep_choice(sweep.axes, view, has_tokens(sweep), of_tokens);
    SweepChart own{sweep, choice, common_limit_of(sweep), of_tokens, missing};
    own.chart.facts = fact_heads(sweep);
    if (sweep.best)
        own.chart.remarks.push_back(remark_on(own, "best", *sweep.best));
    if (sweep.best_asynchronous && sweep.best_asynchronous != sweep.best)
        own.chart.remarks.push_back(remark_on(own, "best asynchronous", *sweep.best_asynchronous));
    if (choice.x_metric)
        draw_dots(own);
    else
        draw_over_key(own);
    return std::move(own.chart);
}

}  // namespace pw

// Writes charts of curves: by gnuplot, as a table, as JSON.
#include "viz/chart.h"
#include "viz/formats.h"
#include "viz/gnuplot.h"
#include "workloads/error.h"
#include "workloads/text/files.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace pw {

namespace {

using Style = Curve::Style;

std::size_t longest(const Chart& chart) {
    std::size_t length = 0;
    for (const Curve& curve : chart.curves)
        length = std::max(length, curve.values.size());
    return length;
}

std::string_view base_unit(Quantity quantity) {
    constexpr std::string_view kUnits[] = {"", "ns", "B", "B/s", "FLOP/s"};
    return kUnits[static_cast<std::size_t>(quantity)];
}

std::string json_of(const Chart& chart) {
    nlohmann::ordered_json file = {
        {"x", chart.x.label}, {"y", chart.y.label}, {"curves", nlohmann::ordered_json::array()}};
    if (chart.x.quantity != Quantity::Number)
        file["x_unit"] = base_unit(chart.x.quantity);
    if (chart.y.quantity != Quantity::Number)
        file["y_unit"] = base_unit(chart.y.quantity);
    for (const Curve& curve : chart.curves) {
        nlohmann::ordered_json entry = {{"title", curve.title}, {"values", curve.values}};
        if (!curve.x.empty())
            entry["x"] = curve.x;
        if (!curve.labels.empty())
            entry["labels"] = curve.labels;
        file["curves"].push_back(std::move(entry));
    }
    return file.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string table_over_steps(const Chart& chart) {
    std::string text = fmt::format("{}\n{:>8}", chart.y.label, chart.x.label);
    for (const Curve& curve : chart.curves)
        text += fmt::format("  {:>14}", curve.title);
    for (std::size_t step = 0; step < longest(chart); ++step) {
        text += fmt::format("\n{:>8}", step);
        for (const Curve& curve : chart.curves)
            text += fmt::format("  {:>{}}", step < curve.values.size() ? fmt::format("{:.8g}", curve.values[step]) : "",
                                std::max<std::size_t>(14, curve.title.size()));
    }
    return text + "\n";
}

// One block of points for each curve.
std::string table_over_numbers(const Chart& chart, const ChartLayout& layout) {
    std::string text = chart.title.empty() ? "" : chart.title + "\n\n";
    const std::size_t wide = std::max<std::size_t>(14, layout.x.label.size());
    const std::size_t wide_y = std::max<std::size_t>(14, layout.y.label.size());
    for (const Curve& curve : chart.curves) {
        text += fmt::format("{}{}\n{:>{}}  {:>{}}\n", &curve == chart.curves.data() ? "" : "\n", curve.title,
                            layout.x.label, wide, layout.y.label, wide_y);
        for (std::size_t i = 0; i < curve.values.size(); ++i)
            if (const std::optional<Point> point = point_of(layout, curve, i))
                text += fmt::format("{:>{}.8g}  {:>{}.8g}{}\n", point->x, wide, point->y, wide_y,
                                    i < curve.labels.size() && !curve.labels[i].empty() ? "  " + curve.labels[i] : "");
    }
    return text;
}

// Later lines are dashed, so that equal lines remain visible. `size` is that of points.
std::string gnuplot_style(const Curve& curve, std::size_t i, double size) {
    constexpr int kShapes[] = {7, 5, 9, 13, 11, 15};  // filled: circle, square, triangle, diamond, ...
    const int shape = kShapes[(i + i / std::size(kShapes)) % std::size(kShapes)];
    const std::string_view dash = i > 0 ? "(8,5)" : "solid";
    switch (curve.style) {
        case Style::Line:
            return fmt::format("{} lw 1.8 dt {}", curve.values.size() > 1 ? "lines" : "points", dash);
        case Style::LineWithPoints:
            return fmt::format("linespoints pt {} ps {} lw 1.6 dt {}", shape, 0.6 * size, dash);
        case Style::Steps:
            return "steps lw 1.8";
        case Style::Points:
            return fmt::format("points pt {} ps {}", shape, 0.7 * size);
        case Style::Crosses:
            return fmt::format("points pt 2 ps {} lw 1.8", 1.3 * size);
        case Style::Dots:
            return fmt::format("points pt 7 ps {}", 0.35 * size);
        case Style::Bars:
            return "boxes fs solid 1 noborder";
    }
    return "lines";
}

std::string gnuplot_ticks(const Scale& scale) {
    std::string text;
    for (const Tick& tick : scale.ticks)
        text += fmt::format("{}{} {:.17g}", text.empty() ? "" : ", ", gnuplot_quoted(tick.text), tick.value);
    return "(" + text + ")";
}

std::string gnuplot_axis(char name, const Scale& scale) {
    std::string text = fmt::format("set {}range [{:.17g}:{:.17g}]\nset {}tics {}\n", name, scale.low, scale.high, name,
                                   gnuplot_ticks(scale));
    return scale.logarithmic ? fmt::format("set logscale {}\n", name) + text : text;
}

// All positions are those of the layout, as fractions of the page from its lower left corner.
std::string gnuplot_layout(const Chart& chart, const ChartLayout& layout, const std::string& file) {
    const auto across = [&](double x) { return x / layout.width; };
    const auto up = [&](double y) { return 1 - y / layout.height; };
    std::string text = fmt::format(
        "set lmargin at screen {:.5f}\nset rmargin at screen {:.5f}\nset tmargin at screen {:.5f}\n"
        "set bmargin at screen {:.5f}\n",
        across(layout.left), across(layout.right), up(layout.top), up(layout.bottom));
    text += gnuplot_axis('x', layout.x) + gnuplot_axis('y', layout.y);
    if (!chart.title.empty())
        text += fmt::format("set title {} font '{}'\n", gnuplot_quoted(chart.title), gnuplot_bold(file));
    if (layout.legend.empty())
        text += "unset key\n";
    else
        text += fmt::format(
            "set key at screen {:.5f}, screen {:.5f} left top Left reverse vertical maxcols {} maxrows {} spacing 1.2 "
            "samplen 3\n",
            across(layout.legend[0].x), up(layout.legend[0].y - 12), layout.legend_columns,
            (layout.legend.size() + layout.legend_columns - 1) / layout.legend_columns);
    for (const Label& label : layout.labels) {
        if (label.apart)
            text += fmt::format(
                "set arrow from screen {:.5f}, screen {:.5f} to screen {:.5f}, screen {:.5f} nohead back lw 0.6 "
                "lc rgb '#8c959f'\n",
                across(label.from_x), up(label.from_y), across(label.to_x), up(label.to_y));
        text += fmt::format("set label {} at screen {:.5f}, screen {:.5f} {} front tc rgb '#24292f'\n",
                            gnuplot_quoted(label.text), across(label.x), up(label.y - 4),
                            label.leftward ? "right" : "left");
    }
    return text + "\n";
}

std::string data_of(const Chart& chart, const ChartLayout& layout) {
    std::string data;
    for (std::size_t i = 0; i < chart.curves.size(); ++i) {
        const Curve& curve = chart.curves[i];
        std::string title = curve.title;
        std::replace(title.begin(), title.end(), '\n', ' ');
        data += fmt::format("# curve.{}\n# {}\n", i, title);
        for (std::size_t step = 0; step < curve.values.size(); ++step) {
            const std::optional<Point> point = point_of(layout, curve, step);
            data += point ? fmt::format("{:.17g} {:.17g}\n", point->x, point->y) : fmt::format("{} NaN\n", step);
        }
        data += "\n\n";
    }
    return data;
}

bool has_points(const ChartLayout& layout, const Curve& curve) {
    for (std::size_t i = 0; i < curve.values.size(); ++i)
        if (point_of(layout, curve, i))
            return true;
    return false;
}

}  // namespace

void chart_by_gnuplot(const Chart& chart, const std::string& file) {
    const ChartLayout layout = layout_of(chart);
    std::string script = gnuplot_output(file, layout.width, layout.height);
    script +=
        fmt::format("set xlabel {}\nset ylabel {}\n", gnuplot_quoted(layout.x.label), gnuplot_quoted(layout.y.label));
    script += "set border 3 lc rgb '#57606a'\nset tics nomirror out\nset grid lt 1 lc rgb '#e3e6ea' lw 0.7\n";
    if (is_over_steps(chart))
        script += "set key below left Left reverse maxcols 1 spacing 1.3\nset rmargin 3\nset tmargin 1.5\n\n";
    else
        script += gnuplot_layout(chart, layout, file);
    const double size = gnuplot_point_size(file);
    std::string lines;
    const auto add = [&](std::size_t i, const std::string& style, const std::string& title) {
        const std::string width = chart.curves[i].style == Style::Bars ? fmt::format(":({})", kBarWidth) : "";
        lines += fmt::format("{}{} index {} using 1:($2){} with {} lc rgb '{}' {}", lines.empty() ? "" : ", \\\n     ",
                             kGnuplotData, i, width, style, hex(colour_of_curve(chart, i)), title);
    };
    for (std::size_t i = 0; i < chart.curves.size(); ++i) {
        const Curve& curve = chart.curves[i];
        if (!has_points(layout, curve))
            continue;
        if (curve.style == Style::Steps)
            add(i, fmt::format("points pt 7 ps {}", 0.6 * size), "notitle");
        add(i, gnuplot_style(curve, i, size),
            curve.title.empty() && !is_over_steps(chart) ? "notitle" : "title " + gnuplot_quoted(curve.title));
    }
    if (lines.empty())
        fail("cannot plot '{}': no curve has a finite value", file);
    const std::string name =
        chart.title.empty() ? fmt::format("{} over {}", layout.y.label, layout.x.label) : chart.title;
    draw_by_gnuplot(file, script + "plot " + lines + "\n", data_of(chart, layout), {name, {}});
}

void chart_text(const Chart& chart, const std::string& file) {
    write_file(file, is_over_steps(chart) ? table_over_steps(chart) : table_over_numbers(chart, layout_of(chart)));
}

void chart_json(const Chart& chart, const std::string& file) { write_file(file, json_of(chart)); }

}  // namespace pw

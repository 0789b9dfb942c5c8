// Writes charts as tables for the terminal, and as JSON.
#include "viz/chart.h"
#include "viz/formats.h"
#include "workloads/text/files.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace pw {

namespace {

using Style = Curve::Style;

std::string_view base_unit(Quantity quantity) {
    constexpr std::string_view kUnits[] = {"", "ns", "B", "B", "B/s", "FLOP/s"};
    return kUnits[static_cast<std::size_t>(quantity)];
}

void add_axis_json(nlohmann::ordered_json& file, const std::string& name, const Axis& axis) {
    file[name] = axis.label;
    if (axis.quantity != Quantity::Number)
        file[name + "_unit"] = base_unit(axis.quantity);
    if (!axis.names.empty())
        file[name + "_names"] = axis.names;
    for (const Level& level : axis.levels)
        file[name + "_levels"].push_back({{"name", level.name}, {"at", level.at}});
}

std::string json_of(const Chart& chart) {
    nlohmann::ordered_json file;
    if (!chart.title.empty())
        file["title"] = chart.title;
    add_axis_json(file, "x", chart.x);
    add_axis_json(file, "y", chart.y);
    if (has_cells(chart))
        add_axis_json(file, "shade", chart.shade);
    for (const char* const key : {"remarks", "facts"})
        if (const auto& texts = key == std::string("facts") ? chart.facts : chart.remarks; !texts.empty())
            file[key] = texts;
    file["curves"] = nlohmann::ordered_json::array();
    for (const Curve& curve : chart.curves) {
        nlohmann::ordered_json entry = {{"title", curve.title}, {"values", curve.values}};
        if (!curve.x.empty())
            entry["x"] = curve.x;
        if (!curve.shades.empty())
            entry["shades"] = curve.shades;
        if (!curve.labels.empty())
            entry["labels"] = curve.labels;
        if (!curve.names.empty())
            entry["names"] = curve.names;
        if (!curve.facts.empty())
            entry["facts"] = curve.facts;
        file["curves"].push_back(std::move(entry));
    }
    return file.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

// Columns as wide as their widest cell, flush right but for those of names.
class AlignedColumns {
public:
    explicit AlignedColumns(std::vector<std::string> head, std::vector<bool> left = {}) : left_(std::move(left)) {
        rows_.push_back(std::move(head));
    }
    void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
    std::string print() const {
        std::vector<std::size_t> widths(rows_.front().size());
        for (const auto& row : rows_)
            for (std::size_t i = 0; i < row.size(); ++i)
                widths[i] = std::max(widths[i], row[i].size());
        std::string text;
        for (const auto& row : rows_) {
            std::string line;
            for (std::size_t i = 0; i < row.size(); ++i)
                line += i < left_.size() && left_[i] ? fmt::format("{:<{}}  ", row[i], widths[i])
                                                     : fmt::format("{:>{}}  ", row[i], widths[i]);
            line.erase(line.find_last_not_of(' ') + 1);
            text += line + "\n";
        }
        return text;
    }

private:
    std::vector<std::vector<std::string>> rows_;
    std::vector<bool> left_;
};

std::string number_text(double number) { return std::isfinite(number) ? fmt::format("{:.6g}", number) : "-"; }

std::string text_on(const Scale& scale, const Axis& axis, double number) {
    const double whole = std::round(number);
    if (!axis.names.empty() && whole >= 0 && whole < static_cast<double>(axis.names.size()))
        return axis.names[static_cast<std::size_t>(whole)];
    return number_text(number / scale.unit.size);
}

std::string table_of_cells(const Chart& chart, const ChartLayout& layout) {
    std::vector<std::string> head = {""};
    head.insert(head.end(), chart.x.names.begin(), chart.x.names.end());
    std::vector<std::vector<std::string>> rows;
    for (const std::string& name : chart.y.names) {
        rows.emplace_back(head.size(), "-").front() = name;
    }
    for (const Curve& curve : chart.curves)
        for (std::size_t i = 0; i < curve.shades.size(); ++i) {
            const auto column = static_cast<std::size_t>(curve.x[i]) + 1,
                       row = static_cast<std::size_t>(curve.values[i]);
            if (row < rows.size() && column < head.size())
                rows[row][column] = number_text(curve.shades[i] / layout.shade.unit.size);
        }
    AlignedColumns table(head, {true});
    for (std::vector<std::string>& row : rows)
        table.add(std::move(row));
    return fmt::format("{}; {} to the right, {} downwards\n{}", layout.shade.label, layout.x.label, layout.y.label,
                       table.print());
}

std::vector<double> numbers_of_x(const Curve& curve) {
    std::vector<double> numbers = curve.x;
    for (std::size_t i = numbers.size(); i < curve.values.size(); ++i)
        numbers.push_back(static_cast<double>(i));
    return numbers;
}

bool is_plain_line(const Curve& curve) { return curve.style == Style::Line || curve.style == Style::LineWithPoints; }

// Marks repeat points of lines.
bool is_mark(const Curve& curve) { return curve.style == Style::Crosses || curve.style == Style::Rings; }

// The points with a cross.
std::set<std::pair<double, double>> crossed_points(const Chart& chart) {
    std::set<std::pair<double, double>> points;
    for (const Curve& curve : chart.curves)
        if (curve.style == Style::Crosses)
            for (std::size_t i = 0; i < std::min(curve.x.size(), curve.values.size()); ++i)
                points.emplace(curve.x[i], curve.values[i]);
    return points;
}

// Whether one column of x serves all lines.
bool share_x(const Chart& chart) {
    std::vector<double> longest;
    for (const Curve& curve : chart.curves)
        if (const std::vector<double> own = numbers_of_x(curve); own.size() > longest.size())
            longest = own;
    return std::all_of(chart.curves.begin(), chart.curves.end(), [&](const Curve& curve) {
        const std::vector<double> own = numbers_of_x(curve);
        return is_mark(curve) || (is_plain_line(curve) && std::equal(own.begin(), own.end(), longest.begin()));
    });
}

// A row per number of x, a column per line.
std::string table_of_lines(const Chart& chart, const ChartLayout& layout) {
    std::vector<double> x;
    std::vector<std::string> head = {layout.x.label};
    for (const Curve& curve : chart.curves) {
        if (const std::vector<double> own = numbers_of_x(curve); own.size() > x.size())
            x = own;
        if (is_plain_line(curve))
            head.push_back(curve.title);
    }
    const std::set<std::pair<double, double>> crossed = crossed_points(chart);
    AlignedColumns table(head);
    for (std::size_t i = 0; i < x.size(); ++i) {
        std::vector<std::string> row = {text_on(layout.x, chart.x, x[i])};
        for (const Curve& curve : chart.curves)
            if (is_plain_line(curve))
                row.push_back(
                    i < curve.values.size()
                        ? number_text(curve.values[i] / layout.y.unit.size) +
                              (std::isfinite(curve.values[i]) && crossed.contains({x[i], curve.values[i]}) ? "*" : "")
                        : "");
        table.add(std::move(row));
    }
    std::string text = layout.y.label + "\n" + table.print();
    for (const Curve& curve : chart.curves)
        if (curve.style == Style::Crosses)
            text += fmt::format("* {}\n", curve.title);
    return text;
}

// A block per curve, a row per point.
std::string table_of_points(const Chart& chart, const ChartLayout& layout) {
    std::string text;
    for (const Curve& curve : chart.curves) {
        if (curve.style == Style::Rings)
            continue;
        AlignedColumns table({layout.x.label, layout.y.label, ""}, {!chart.x.names.empty(), false, true});
        const std::vector<double> x = numbers_of_x(curve);
        for (std::size_t i = 0; i < curve.values.size(); ++i)
            if (std::isfinite(curve.values[i]))
                table.add({text_on(layout.x, chart.x, x[i]), text_on(layout.y, chart.y, curve.values[i]),
                           chart.x.names.empty() ? name_of_point(curve, i) : ""});
        text += fmt::format("{}{}\n{}", text.empty() ? "" : "\n", curve.title, table.print());
    }
    return text;
}

std::string levels_text(const Chart& chart, const ChartLayout& layout) {
    std::string text;
    for (const Level& level : chart.x.levels)
        text += fmt::format("{} at {}\n", level.name, number_text(level.at / layout.x.unit.size));
    for (const Level& level : chart.y.levels)
        text += fmt::format("{} at {}\n", level.name, number_text(level.at / layout.y.unit.size));
    return text;
}

}  // namespace

void chart_text(const Chart& chart, const View& view, const std::string& file) {
    const ChartLayout layout = layout_of(chart);
    const std::string& title = view.title.empty() ? chart.title : view.title;
    std::string text = title.empty() ? "" : title + "\n\n";
    for (const std::string& remark : chart.remarks)
        text += remark + (&remark == &chart.remarks.back() ? "\n\n" : "\n");
    text += has_cells(chart) ? table_of_cells(chart, layout)
            : share_x(chart) ? table_of_lines(chart, layout)
                             : table_of_points(chart, layout);
    const std::string levels = levels_text(chart, layout);
    write_file(file, text + (levels.empty() ? "" : "\n" + levels));
}

void chart_json(const Chart& chart, const View& view, const std::string& file) {
    Chart titled = chart;
    if (!view.title.empty())
        titled.title = view.title;
    write_file(file, json_of(titled));
}

}  // namespace pw

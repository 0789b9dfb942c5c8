// Writes charts as one page with everything inside: data, Chart.js, the script that draws with it, and a table of the
// same numbers.
#include "viz/chart.h"
#include "viz/formats.h"
#include "viz/html.h"
#include "viz/page/assets.h"
#include "workloads/text/files.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <string>
#include <vector>

namespace pw {

namespace {

using nlohmann::ordered_json;
using Style = Curve::Style;

// What the script calls the styles.
struct StyleName {
    Style style;
    const char* name;
};
constexpr StyleName kStyleNames[] = {
    {Style::Line, "line"},       {Style::LineWithPoints, "line and points"},
    {Style::Steps, "steps"},     {Style::Points, "points"},
    {Style::Crosses, "crosses"}, {Style::Dots, "dots"},
    {Style::Bars, "bars"},       {Style::Rings, "rings"},
    {Style::Cells, "cells"},
};

// Colours of curves on a dark ground.
struct DarkColour {
    Colour light, dark;
};
constexpr DarkColour kDarkColours[] = {
    {0x2f6db5, 0x6ea8f0}, {0xe08214, 0xf0a04b}, {0x0b8a7d, 0x3fc1b0}, {0x9a6bb5, 0xc49be0}, {0x444c56, 0xc9d1d9},
    {0x8fbf4d, 0xa9d96c}, {0x858d96, 0x6e7681}, {0xb3261e, 0xff7b72}, {0x1f2328, 0xf0f3f6},
};

const char* name_of_style(Style style) {
    return std::find_if(std::begin(kStyleNames), std::end(kStyleNames),
                        [&](const StyleName& row) { return row.style == style; })
        ->name;
}

class ChartPage {
public:
    ChartPage(const Chart& chart, const View& view)
        : chart_(chart), layout_(layout_of(chart)), title_(view.title.empty() ? chart.title : view.title) {}

    std::string make() const {
        const std::string name = title_.empty() ? name_of_chart(chart_, layout_) : title_;
        std::string head = fmt::format("<h1>{}</h1>\n", html_escaped(name));
        for (const std::string& remark : chart_.remarks)
            head +=
                fmt::format("<p{}>{}</p>\n", remark.starts_with("best") ? " class=\"best\"" : "", html_escaped(remark));
        std::string data = json().dump(-1, ' ', false, ordered_json::error_handler_t::replace);
        for (std::size_t at = 0; (at = data.find('<', at)) != std::string::npos; at += 6)
            data.replace(at, 1, "\\u003c");  // a title must not end the script
        return fmt::format(
            "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\">"
            "<meta name=\"viewport\" "
            "content=\"width=device-width\"><title>{0}</title>\n<style>{1}</style></head>\n<body>\n"
            "<main>\n<div id=\"head\"><div>\n{2}</div><div id=\"tools\">drag to select a part, arrow keys go from "
            "point to point "
            "<button id=\"all\" title=\"Escape or a double click\">show all</button></div></div>\n"
            "<div id=\"frame\"><canvas id=\"chart\" tabindex=\"0\" role=\"img\" aria-label=\"{0}; its numbers are in "
            "the table "
            "below\">"
            "</canvas><div id=\"selection\"></div></div>\n<div id=\"live\" aria-live=\"polite\"></div>\n"
            "<details open><summary>Numbers</summary><div class=\"scroll\">\n{3}</div></details>\n</main>\n"
            "<script>{4}</script>\n<script>\nconst data = {5};\n{6}</script>\n</body>\n</html>\n",
            html_escaped(name), kChartStyle, head, table(), kChartLibrary, data, kChartScript);
    }

private:
    ordered_json json_of_axis(const Axis& axis, const Scale& scale) const {
        ordered_json levels = ordered_json::array(), json = {{"label", scale.label},
                                                             {"logarithmic", scale.logarithmic},
                                                             {"low", scale.low},
                                                             {"high", scale.high},
                                                             {"reverse", &axis == &chart_.y && has_cells(chart_)}};
        for (const Level& level : axis.levels)
            levels.push_back({{"at", level.at / scale.unit.size}, {"name", level.name}});
        json["levels"] = std::move(levels);
        if (!axis.names.empty())
            json["names"] = axis.names;
        if (axis.names.empty() && axis.ticks.empty())
            return json;
        json["ticks"] = ordered_json::array();
        for (std::size_t i = 0; i < std::max(axis.names.size(), axis.ticks.size()); ++i)
            json["ticks"].push_back(axis.names.empty() ? axis.ticks[i] / scale.unit.size : static_cast<double>(i));
        return json;
    }

    double part_of_shade(double shade) const {
        return (shade - layout_.shade.low) / (layout_.shade.high - layout_.shade.low);
    }

    ordered_json json_of_shades() const {
        ordered_json colours = ordered_json::array(), ticks = ordered_json::array();
        for (const double part : {0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0})
            colours.push_back(hex(colour_of_shade(part)));
        for (const Tick& tick : layout_.shade.ticks)
            ticks.push_back({{"at", tick.value}, {"text", tick.text}});
        return {{"label", layout_.shade.label},
                {"low", layout_.shade.low},
                {"high", layout_.shade.high},
                {"colours", colours},
                {"ticks", ticks}};
    }

    // Values that leave a gap are null.
    ordered_json json_of_curve(std::size_t index) const {
        const Curve& curve = chart_.curves[index];
        const LineLook look = look_of(chart_, index);
        const bool at_end = std::any_of(layout_.ends.begin(), layout_.ends.end(),
                                        [&](const LineEnd& end) { return end.curve == index; });
        ordered_json json = {{"title", curve.title},
                             {"style", name_of_style(curve.style)},
                             {"colour", hex(colour_of_curve(chart_, index))},
                             {"marker", look.marker},
                             {"dash", look.dash},
                             {"slot", curve.slot},
                             {"end", at_end}};
        for (const char* const list : {"x", "y", "labels", "names", "facts"})
            json[list] = ordered_json::array();
        for (std::size_t i = 0; i < curve.values.size(); ++i) {
            const std::optional<Point> point = point_of(layout_, chart_, curve, i);
            const bool has_place = point && curve.style == Style::Bars;
            json["x"].push_back(!point ? ordered_json() : ordered_json(has_place ? curve.x[i] : point->x));
            json["y"].push_back(!point ? ordered_json() : ordered_json(point->y));
            json["labels"].push_back(i < curve.labels.size() ? curve.labels[i] : "");
            json["names"].push_back(name_of_point(curve, i));
            if (i < curve.facts.size())
                json["facts"].push_back(curve.facts[i]);
        }
        for (const double shade : curve.shades) {
            const Colour colour = colour_of_shade(part_of_shade(shade / layout_.shade.unit.size));
            json["shades"].push_back(shade / layout_.shade.unit.size);
            json["shadeColours"].push_back(hex(colour));
            json["shadeTexts"].push_back(hex(text_colour_on(colour)));
        }
        return json;
    }

    ordered_json json() const {
        ordered_json data = {{"x", json_of_axis(chart_.x, layout_.x)},
                             {"y", json_of_axis(chart_.y, layout_.y)},
                             {"facts", chart_.facts},
                             {"curves", ordered_json::array()},
                             {"dark", ordered_json::object()}};
        if (has_cells(chart_))
            data["shade"] = json_of_shades();
        for (std::size_t i = 0; i < chart_.curves.size(); ++i)
            data["curves"].push_back(json_of_curve(i));
        for (const DarkColour& colour : kDarkColours)
            data["dark"][hex(colour.light)] = hex(colour.dark);
        return data;
    }

    static std::string row_of(const std::vector<std::string>& cells, const char* kind) {
        std::string row = "<tr>";
        for (const std::string& cell : cells)
            row += fmt::format("<{0}>{1}</{0}>", kind, html_escaped(cell));
        return row + "</tr>\n";
    }

    static std::string text_of_number(double number) { return fmt::format("{:.6g}", number); }

    // All points, each once: marks on points repeat them.
    std::string table() const {
        std::vector<std::string> head = {""};
        if (chart_.facts.empty())
            head.insert(head.end(), {layout_.x.label, layout_.y.label});
        else
            head.insert(head.end(), chart_.facts.begin(), chart_.facts.end());
        std::string text = "<table>\n" + row_of(head, "th");
        std::set<std::vector<std::string>> seen;
        for (const Curve& curve : chart_.curves)
            for (std::size_t i = 0; i < curve.values.size(); ++i) {
                std::vector<std::string> cells = {name_of_point(curve, i)};
                if (cells[0].empty())
                    cells[0] = curve.title;
                if (!chart_.facts.empty() && i < curve.facts.size())
                    cells.insert(cells.end(), curve.facts[i].begin(), curve.facts[i].end());
                else if (const std::optional<Point> point = point_of(layout_, chart_, curve, i))
                    cells.insert(cells.end(), {text_of_number(point->x), text_of_number(point->y)});
                else
                    continue;
                if (seen.insert(cells).second)
                    text += row_of(cells, "td");
            }
        return text + "</table>\n";
    }

    const Chart& chart_;
    const ChartLayout layout_;
    const std::string title_;
};

}  // namespace

void chart_page(const Chart& chart, const View& view, const std::string& file) {
    write_file(file, ChartPage(chart, view).make());
}

}  // namespace pw

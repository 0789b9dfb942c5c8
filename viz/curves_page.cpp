// Writes charts of curves as one page with its own SVG and no script.
#include "viz/chart.h"
#include "viz/formats.h"
#include "viz/html.h"
#include "workloads/text/files.h"

#include <fmt/format.h>

#include <algorithm>

namespace pw {

namespace {

using Style = Curve::Style;

class CurvesPage {
public:
    explicit CurvesPage(const Chart& chart) : chart_(chart), layout_(layout_of(chart)) {}

    std::string make() const {
        std::string body = fmt::format("<svg viewBox=\"0 0 {} {}\" width=\"{}\" role=\"img\">\n", layout_.width,
                                       layout_.height, layout_.width);
        body += axes();
        for (std::size_t i = 0; i < chart_.curves.size(); ++i)
            body += curve(i) + legend(i);
        for (const Label& label : layout_.labels)
            body += name(label);
        return fmt::format(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n<style>"
            "body{{font:13px sans-serif;margin:16px;background:#fff;color:#1f2328}}text{{font:12px "
            "sans-serif;fill:#57606a}}.grid{{stroke:#e3e6ea}}polyline{{fill:none;stroke-width:1.8}}{2}"
            "</style></head>\n<body>\n{1}</svg>\n</body></html>\n",
            html_escaped(chart_.title.empty() ? layout_.y.label : chart_.title), body,
            is_over_steps(chart_) ? ""
                                  : ".label{font-size:11px;fill:#24292f}.title{font-weight:bold}.leader{stroke:#8c959f;"
                                    "stroke-width:0.6}");
    }

private:
    std::string axes() const {
        const Scale &x = layout_.x, &y = layout_.y;
        std::string text;
        for (const Tick& tick : y.ticks)
            text += fmt::format(
                "<path d=\"M{0} {1:.1f}H{2}\" class=\"grid\"/><text x=\"{3}\" y=\"{4:.1f}\" "
                "text-anchor=\"end\">{5}</text>\n",
                layout_.left, y.pixel(tick.value), layout_.right, layout_.left - 8, y.pixel(tick.value) + 4, tick.text);
        for (const Tick& tick : x.ticks)
            text += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", x.pixel(tick.value),
                                layout_.bottom + 20, tick.text);
        text += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                            (layout_.left + layout_.width) / 2, layout_.bottom + 42, html_escaped(x.label));
        text +=
            fmt::format("<text x=\"{}\" y=\"{}\">{}</text>\n", layout_.left, layout_.top - 14, html_escaped(y.label));
        if (!chart_.title.empty())
            text += fmt::format("<text x=\"{}\" y=\"18\" text-anchor=\"middle\" class=\"title\">{}</text>\n",
                                (layout_.left + layout_.right) / 2, html_escaped(chart_.title));
        return text;
    }

    std::string stroke(std::size_t i) const {
        const bool dashed = i > 0 && chart_.curves[i].style != Style::Steps;
        return fmt::format("stroke=\"{}\"{}", hex(colour_of_curve(chart_, i)),
                           dashed ? " stroke-dasharray=\"6 4\"" : "");
    }

    // A mark with its meaning, shown under the pointer.
    std::string mark(std::size_t i, double x, double y, const std::string& tip) const {
        const std::string colour = hex(colour_of_curve(chart_, i));
        const Style style = chart_.curves[i].style;
        if (style == Style::Crosses)
            return fmt::format(
                "<path d=\"M{:.2f} {:.2f}l12 12m0 -12l-12 12\" stroke=\"{}\" "
                "stroke-width=\"1.6\"><title>{}</title></path>\n",
                x - 6, y - 6, colour, tip);
        return fmt::format("<circle cx=\"{:.2f}\" cy=\"{:.2f}\" r=\"{}\" fill=\"{}\"><title>{}</title></circle>\n", x,
                           y, style == Style::Dots ? 1.8 : 3.2, colour, tip);
    }

    std::string bar(std::size_t i, const Point& point, const std::string& tip) const {
        const double left = layout_.x.pixel(point.x - kBarWidth / 2), right = layout_.x.pixel(point.x + kBarWidth / 2);
        const double y = layout_.y.pixel(point.y);
        return fmt::format(
            "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"><title>{}</title>"
            "</rect>\n",
            left, y, right - left, layout_.bottom - y, hex(colour_of_curve(chart_, i)), tip);
    }

    std::string tip_of(const Curve& curve, std::size_t i, const Point& point) const {
        const std::string name = i < curve.labels.size() && !curve.labels[i].empty() ? curve.labels[i] : curve.title;
        return html_escaped(
            fmt::format("{}\n{}: {:.6g}\n{}: {:.6g}", name, layout_.x.label, point.x, layout_.y.label, point.y));
    }

    std::string curve(std::size_t i) const {
        const Curve& curve = chart_.curves[i];
        const bool has_line =
            curve.style == Style::Line || curve.style == Style::LineWithPoints || curve.style == Style::Steps;
        std::string lines, points, marks;
        const auto end_line = [&] {
            if (!points.empty() && has_line)
                lines += fmt::format("<polyline {} points=\"{}\"/>\n", stroke(i), points);
            points.clear();
        };
        double y_before = 0;
        for (std::size_t step = 0; step < curve.values.size(); ++step) {
            const std::optional<Point> point = point_of(layout_, curve, step);
            if (!point) {
                end_line();
                continue;
            }
            const double x = layout_.x.pixel(point->x), y = layout_.y.pixel(point->y);
            if (curve.style == Style::Steps && !points.empty())
                points += fmt::format("{:.2f},{:.2f} ", x, y_before);
            points += fmt::format("{:.2f},{:.2f} ", x, y);
            if (curve.style == Style::Bars)
                marks += bar(i, *point, tip_of(curve, step, *point));
            else if (curve.style != Style::Line)
                marks += mark(i, x, y, tip_of(curve, step, *point));
            y_before = y;
        }
        end_line();
        return lines + marks;
    }

    static std::string name(const Label& label) {
        const std::string line = label.apart
                                     ? fmt::format("<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" class=\"leader\"/>",
                                                   label.from_x, label.from_y, label.to_x, label.to_y)
                                     : "";
        return fmt::format("{}<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"label\"{}>{}</text>\n", line, label.x, label.y,
                           label.leftward ? " text-anchor=\"end\"" : "", html_escaped(label.text));
    }

    std::size_t longest_title() const {
        std::size_t longest = 0;
        for (const Curve& curve : chart_.curves)
            longest = std::max(longest, curve.title.size());
        return longest;
    }

    std::string legend_line(std::size_t i, double left, double top) const {
        return fmt::format("<path d=\"M{} {}h24\" {} stroke-width=\"2\"/><text x=\"{}\" y=\"{}\">{}</text>\n", left,
                           top, stroke(i), left + 30, top + 4, html_escaped(chart_.curves[i].title));
    }

    std::string swatch(std::size_t i, const LegendEntry& entry) const {
        return fmt::format("<rect x=\"{}\" y=\"{}\" width=\"14\" height=\"12\" fill=\"{}\"/>\n", entry.x + 6,
                           entry.y - 6, hex(colour_of_curve(chart_, i)));
    }

    std::string legend(std::size_t i) const {
        if (is_over_steps(chart_))
            return legend_line(i, layout_.width - 60 - 7 * static_cast<double>(longest_title()),
                               layout_.top + 8 + static_cast<double>(i) * 18);
        const auto entry = std::find_if(layout_.legend.begin(), layout_.legend.end(),
                                        [&](const LegendEntry& other) { return other.curve == i; });
        if (entry == layout_.legend.end())
            return "";
        const Style style = chart_.curves[i].style;
        if (style == Style::Line || style == Style::LineWithPoints || style == Style::Steps)
            return legend_line(i, entry->x, entry->y);
        return (style == Style::Bars ? swatch(i, *entry) : mark(i, entry->x + 12, entry->y, "")) +
               fmt::format("<text x=\"{}\" y=\"{}\">{}</text>\n", entry->x + 30, entry->y + 4,
                           html_escaped(chart_.curves[i].title));
    }

    const Chart& chart_;
    const ChartLayout layout_;
};

}  // namespace

void chart_page(const Chart& chart, const std::string& file) { write_file(file, CurvesPage(chart).make()); }

}  // namespace pw

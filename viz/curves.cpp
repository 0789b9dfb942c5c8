// Lines over steps: gnuplot, one page, a table, JSON.
#include "viz/files.h"
#include "viz/render.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace pw {

namespace {

constexpr int kWidth = 900, kHeight = 420;
constexpr Colour kColours[] = {0x2f6db5, 0xe08214, 0x0b8a7d, 0x9a6bb5, 0x7d8590, 0x8fbf4d};

// Later curves are dashed, so that equal ones are seen one on the other.
Colour colour_of_curve(std::size_t i) { return kColours[i % std::size(kColours)]; }

std::size_t longest(const std::vector<Curve>& curves) {
    std::size_t length = 0;
    for (const Curve& curve : curves)
        length = std::max(length, curve.values.size());
    return length;
}

std::string json_of(const std::vector<Curve>& curves, const std::string& x_label, const std::string& y_label) {
    nlohmann::ordered_json file = {{"x", x_label}, {"y", y_label}, {"curves", nlohmann::ordered_json::array()}};
    for (const Curve& curve : curves)
        file["curves"].push_back({{"title", curve.title}, {"values", curve.values}});
    return file.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string table_of(const std::vector<Curve>& curves, const std::string& x_label, const std::string& y_label) {
    std::string text = fmt::format("{}\n{:>8}", y_label, x_label);
    for (const Curve& curve : curves)
        text += fmt::format("  {:>14}", curve.title);
    for (std::size_t step = 0; step < longest(curves); ++step) {
        text += fmt::format("\n{:>8}", step);
        for (const Curve& curve : curves)
            text += fmt::format("  {:>{}}", step < curve.values.size() ? fmt::format("{:.8g}", curve.values[step]) : "",
                                std::max<std::size_t>(14, curve.title.size()));
    }
    return text + "\n";
}

// The picture of the page: its own SVG, no script.
class CurvesPage {
public:
    CurvesPage(const std::vector<Curve>& curves, const std::string& x_label, const std::string& y_label)
        : curves_(curves), x_label_(x_label), y_label_(y_label) {
        steps_ = std::max<double>(1, static_cast<double>(longest(curves)) - 1);
        double low = INFINITY, high = -INFINITY;
        for (const Curve& curve : curves)
            for (const double value : curve.values)
                if (std::isfinite(value)) {
                    low = std::min(low, value);
                    high = std::max(high, value);
                }
        if (low > high)
            low = 0, high = 1;
        const double room = high > low ? 0.05 * (high - low) : 0.5;
        low_ = low - room;
        high_ = high + room;
    }

    std::string make() const {
        std::string body =
            fmt::format("<svg viewBox=\"0 0 {} {}\" width=\"{}\" role=\"img\">\n", kWidth, kHeight, kWidth);
        for (int i = 0; i <= 4; ++i) {
            const double value = low_ + (high_ - low_) * i / 4, step = std::floor(steps_ * i / 4);
            body += fmt::format(
                "<path d=\"M{0} {1:.1f}H{2}\" class=\"grid\"/><text x=\"{3}\" y=\"{4:.1f}\" "
                "text-anchor=\"end\">{5:.4g}</text>\n",
                kLeft, y(value), kWidth - kMargin, kLeft - 8, y(value) + 4, value);
            body += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", x(step),
                                kHeight - kBottom + 20, step);
        }
        body += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", (kLeft + kWidth) / 2,
                            kHeight - 8, html_escaped(x_label_));
        body += fmt::format("<text x=\"{}\" y=\"16\">{}</text>\n", kLeft, html_escaped(y_label_));
        for (std::size_t i = 0; i < curves_.size(); ++i)
            body += curve(i);
        return fmt::format(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n<style>"
            "body{{font:13px sans-serif;margin:16px;background:#fff;color:#1f2328}}text{{font:12px "
            "sans-serif;fill:#57606a}}.grid{{stroke:#e3e6ea}}polyline{{fill:none;stroke-width:1.8}}"
            "</style></head>\n<body>\n{1}</svg>\n</body></html>\n",
            html_escaped(y_label_), body);
    }

private:
    static constexpr int kLeft = 70, kMargin = 20, kTop = 30, kBottom = 50;

    double x(double step) const { return kLeft + (kWidth - kMargin - kLeft) * step / steps_; }
    double y(double value) const {
        return kHeight - kBottom - (kHeight - kBottom - kTop) * (value - low_) / (high_ - low_);
    }

    int longest_title() const {
        std::size_t longest = 0;
        for (const Curve& curve : curves_)
            longest = std::max(longest, curve.title.size());
        return static_cast<int>(longest);
    }

    std::string curve(std::size_t i) const {
        const std::string stroke =
            fmt::format("stroke=\"{}\"{}", hex(colour_of_curve(i)), i > 0 ? " stroke-dasharray=\"6 4\"" : "");
        std::string lines, points;
        const auto end_line = [&] {
            if (!points.empty())
                lines += fmt::format("<polyline {} points=\"{}\"/>\n", stroke, points);
            points.clear();
        };
        for (std::size_t step = 0; step < curves_[i].values.size(); ++step) {
            const double value = curves_[i].values[step];
            if (std::isfinite(value))
                points += fmt::format("{:.2f},{:.2f} ", x(static_cast<double>(step)), y(value));
            else
                end_line();
        }
        end_line();
        const int top = kTop + 8 + static_cast<int>(i) * 18, left = kWidth - 60 - 7 * longest_title();
        return lines + fmt::format("<path d=\"M{} {}h24\" {} stroke-width=\"2\"/><text x=\"{}\" y=\"{}\">{}</text>\n",
                                   left, top, stroke, left + 30, top + 4, html_escaped(curves_[i].title));
    }

    const std::vector<Curve>& curves_;
    const std::string &x_label_, &y_label_;
    double steps_, low_, high_;
};

}  // namespace

GnuplotFiles curves_script(const std::vector<Curve>& curves, const std::string& x_label, const std::string& y_label,
                           const std::string& file) {
    std::string script = gnuplot_output(file, kWidth, kHeight);
    script += fmt::format("data = {}\nset xlabel {}\nset ylabel {}\n", gnuplot_data(file), gnuplot_quoted(x_label),
                          gnuplot_quoted(y_label));
    script += "set border 3 lc rgb '#57606a'\nset tics nomirror out\nset grid lt 1 lc rgb '#e3e6ea' lw 0.7\n";
    script += "set key below left Left reverse maxcols 1 spacing 1.3\nset rmargin 3\nset tmargin 1.5\n\n";
    std::string data, lines;
    for (std::size_t i = 0; i < curves.size(); ++i) {
        std::string title = curves[i].title;
        std::replace(title.begin(), title.end(), '\n', ' ');
        data += fmt::format("# curve.{}\n# {}\n", i, title);
        bool any = false;
        for (std::size_t step = 0; step < curves[i].values.size(); ++step) {
            const double value = curves[i].values[step];
            any = any || std::isfinite(value);
            data += std::isfinite(value) ? fmt::format("{} {:.17g}\n", step, value) : fmt::format("{} NaN\n", step);
        }
        data += "\n\n";
        if (any)
            lines +=
                fmt::format("{}data index {} using 1:($2) with {} lw 1.8 dt {} lc rgb '{}' title {}",
                            lines.empty() ? "" : ", \\\n     ", i, curves[i].values.size() > 1 ? "lines" : "points",
                            i > 0 ? "(8,5)" : "solid", hex(colour_of_curve(i)), gnuplot_quoted(curves[i].title));
    }
    if (lines.empty())
        fail("cannot plot '{}': no curve has a finite value", file);
    return {script + "plot " + lines + "\n", data};
}

void plot_curves(const std::vector<Curve>& curves, const std::string& x_label, const std::string& y_label,
                 const std::string& file) {
    const Format format = format_of(file);
    if (longest(curves) == 0)
        fail("cannot plot '{}': there are no values", file);
    if (format == Format::Json) {
        write_file(file, json_of(curves, x_label, y_label));
    } else if (format == Format::Html) {
        write_file(file, CurvesPage(curves, x_label, y_label).make());
    } else if (format == Format::Text) {
        write_file(file, table_of(curves, x_label, y_label));
    } else {
        const GnuplotFiles files = curves_script(curves, x_label, y_label, file);
        run_gnuplot(file, files.script, files.data);
    }
}

}  // namespace pw

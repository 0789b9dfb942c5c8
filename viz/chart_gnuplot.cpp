// Writes charts as gnuplot scripts, at the positions of their layout.
#include "viz/chart.h"
#include "viz/formats.h"
#include "viz/gnuplot.h"
#include "workloads/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <vector>

namespace pw {

namespace {

using Style = Curve::Style;

constexpr int kShapes[kMarkers] = {7, 5, 9, 13, 11, 15};  // filled: circle, square, triangle, diamond, ...
constexpr const char* kDashTypes[kDashes] = {"solid", "(8,5)", "(2,4)"};

// Returns the ticks of an axis as gnuplot reads them.
std::string ticks_of(const std::string& file, const Scale& scale) {
    std::string text;
    for (const Tick& tick : scale.ticks)
        text += fmt::format("{}{} {:.17g}", text.empty() ? "" : ", ", gnuplot_text(file, tick.text), tick.value);
    return "(" + text + ")";
}

class ChartScript {
public:
    ChartScript(const Chart& chart, const View& view, const std::string& file)
        : chart_(chart),
          layout_(layout_of(chart, view)),
          font_(view.font),
          title_(!view.titles         ? ""
                 : view.title.empty() ? chart.title
                                      : view.title),
          file_(file),
          size_(gnuplot_point_size(file)) {}

    void draw() {
        script_ = gnuplot_output(file_, {layout_.width, layout_.height, font_, font_ / View{}.font});
        add_field();
        add_texts();
        add_levels();
        for (std::size_t i = 0; i < chart_.curves.size(); ++i)
            add_curve(i);
        if (lines_.empty())
            fail("cannot plot '{}': no curve has a finite value", file_);
        const std::string name = title_.empty() ? name_of_chart(chart_, layout_) : title_;
        draw_by_gnuplot(file_, script_ + "plot " + lines_ + "\n", data_, {name, parts_});
    }

private:
    template <class... Args>
    void add(fmt::format_string<Args...> text, Args&&... args) {
        fmt::format_to(std::back_inserter(script_), text, std::forward<Args>(args)...);
    }
    // Positions as fractions of the page from its lower left corner.
    std::string at(double x, double y) const {
        return fmt::format("screen {:.5f}, screen {:.5f}", x / layout_.width, 1 - y / layout_.height);
    }

    void add_axis(char name, const Scale& scale, const std::string& options) {
        const bool downwards = name == 'y' && scale.from < scale.to;
        add("set {}range [{:.17g}:{:.17g}]\nset {}tics {} {}\n", name, downwards ? scale.high : scale.low,
            downwards ? scale.low : scale.high, name, options, ticks_of(file_, scale));
        if (scale.logarithmic)
            add("set logscale {}\n", name);
    }

    void add_field() {
        const bool cells = has_cells(chart_);
        add("set border {} lc rgb '#57606a'\nset tics nomirror out\nset grid {} lt 1 lc rgb '#e3e6ea' lw 0.7\n",
            cells ? 0 : 3,
            !cells && chart_.x.names.empty() ? "xtics ytics"
            : cells                          ? "noxtics noytics"
                                             : "ytics");
        add("set lmargin at screen {:.5f}\nset rmargin at screen {:.5f}\nset tmargin at screen {:.5f}\n"
            "set bmargin at screen {:.5f}\n",
            layout_.left / layout_.width, layout_.right / layout_.width, 1 - layout_.top / layout_.height,
            1 - layout_.bottom / layout_.height);
        add_axis('x', layout_.x, layout_.slanted ? "rotate by 35 right" : "");
        add_axis('y', layout_.y, "");
        if (layout_.legend.empty())
            return add("unset key\n");
        const std::size_t columns = static_cast<std::size_t>(layout_.legend_columns);
        add("set key at {} left top Left reverse vertical maxcols {} maxrows {} spacing 1.2 samplen 3\n",
            at(layout_.legend[0].x, layout_.legend[0].y - 12), columns,
            (layout_.legend.size() + columns - 1) / columns);
    }

    void add_text(const std::string& text, double x, double y, const char* side, const std::string& more = "") {
        add("set label {} at {} {} front {}\n", gnuplot_text(file_, text), at(x, y), side,
            more.empty() ? "tc rgb '#24292f'" : more);
    }

    void add_texts() {
        const double middle = (layout_.left + layout_.right) / 2;
        if (!title_.empty())
            add_text(title_, layout_.left, 16, "left",
                     fmt::format("font '{},13' tc rgb '#1f2328'", gnuplot_bold(file_)));
        for (std::size_t i = 0; i < layout_.remarks.size(); ++i)
            add_text(layout_.remarks[i], layout_.left,
                     layout_.top - 8 - 17 * static_cast<double>(layout_.remarks.size() - i), "left",
                     "tc rgb '#57606a'");
        add_text(layout_.x.label, middle, layout_.bottom + layout_.below - 14, "center");
        add_text(layout_.y.label, 14, (layout_.top + layout_.bottom) / 2, "center rotate by 90");
        for (const Label& label : layout_.labels) {
            if (label.apart)
                add("set arrow from {} to {} nohead back lw 0.6 lc rgb '#8c959f'\n", at(label.from_x, label.from_y),
                    at(label.to_x, label.to_y));
            add_text(label.text, label.x, label.y - 4,
                     label.side == 0  ? "center"
                     : label.side < 0 ? "right"
                                      : "left",
                     fmt::format("tc rgb '{}'", hex(label.colour)));
        }
        for (const LineEnd& end : layout_.ends) {
            const std::string colour = hex(colour_of_curve(chart_, end.curve));
            add("set arrow from {} to {} nohead back lw 0.6 lc rgb '{}'\n", at(end.from_x + 4, end.from_y),
                at(end.x - 8, end.y), colour);
            const int shape = kShapes[look_of(chart_, end.curve).marker];
            if (chart_.curves[end.curve].style == Style::LineWithPoints)
                add("set label '' at {} front point pt {} ps {} lc rgb '{}'\n", at(end.x - 8, end.y), shape,
                    0.7 * size_, colour);
            add_text(chart_.curves[end.curve].title, end.x, end.y, "left");
        }
        if (has_cells(chart_))
            add_shades();
    }

    // The scale of colours, right of the field.
    void add_shades() {
        constexpr int kSteps = 40;
        const double left = layout_.right + 18, right = left + 12, height = layout_.bottom - layout_.top;
        for (int i = 0; i < kSteps; ++i)
            add("set object rectangle from {} to {} fc rgb '{}' fs solid 1 noborder\n",
                at(left, layout_.bottom - height * i / kSteps), at(right, layout_.bottom - height * (i + 1) / kSteps),
                hex(colour_of_shade((i + 0.5) / kSteps)));
        for (const Tick& tick : layout_.shade.ticks)
            add_text(tick.text, right + 6, layout_.shade.pixel(tick.value), "left", "tc rgb '#57606a'");
        add_text(layout_.shade.label, layout_.width - 8, layout_.top - 12, "right");
    }

    void add_levels() {
        for (const bool of_x : {true, false})
            for (const Level& level : (of_x ? chart_.x : chart_.y).levels) {
                const Scale& scale = of_x ? layout_.x : layout_.y;
                const double number = level.at / scale.unit.size, pixel = scale.pixel(number);
                if (!scale.shows(number))
                    continue;
                add("set arrow from {} to {} nohead front lw 1.4 dt (6,4) lc rgb '#b3261e'\n",
                    of_x ? at(pixel, layout_.top) : at(layout_.left, pixel),
                    of_x ? at(pixel, layout_.bottom) : at(layout_.right, pixel));
                const bool rightward = pixel < layout_.left + 120;
                add_text(level.name, of_x ? pixel + (rightward ? 4 : -4) : layout_.right,
                         of_x ? layout_.top + 8 : pixel - 8, of_x && rightward ? "left" : "right", "tc rgb '#b3261e'");
            }
    }

    std::string style_of(std::size_t i) const {
        const LineLook look = look_of(chart_, i);
        const int shape = kShapes[look.marker];
        switch (chart_.curves[i].style) {
            case Style::Line:
                return fmt::format("{} lw 1.8 dt {}", chart_.curves[i].values.size() > 1 ? "lines" : "points",
                                   i > 0 ? "(8,5)" : "solid");  // so that equal lines remain visible
            case Style::LineWithPoints:
                return fmt::format("linespoints pt {} ps {} lw 1.6 dt {}", shape, 0.7 * size_, kDashTypes[look.dash]);
            case Style::Steps:
                return "steps lw 1.8";
            case Style::Points:
                return fmt::format("points pt {} ps {}", shape, 0.7 * size_);
            case Style::Crosses:
                return fmt::format("points pt 2 ps {} lw 1.8", 1.1 * size_);
            case Style::Dots:
                return fmt::format("points pt 7 ps {}", 0.45 * size_);
            case Style::Rings:
                return fmt::format("points pt 6 ps {} lw 2", 1.7 * size_);
            case Style::Bars:
                return "boxes fs solid 1 noborder";
            case Style::Cells:
                return "boxxyerror fs solid 1 border lc rgb '#ffffff'";
        }
        return "lines";
    }

    void plot(std::size_t i, const char* columns, const std::string& style, bool titled) {
        const Curve& curve = chart_.curves[i];
        const bool in_legend = std::any_of(layout_.legend.begin(), layout_.legend.end(),
                                           [&](const LegendEntry& entry) { return entry.curve == i; });
        lines_ += fmt::format("{}{} index {} using {} with {} lc rgb {} {}", lines_.empty() ? "" : ", \\\n     ",
                              kGnuplotData, i, columns, style,
                              curve.style == Style::Cells ? "variable" : "'" + hex(colour_of_curve(chart_, i)) + "'",
                              titled && in_legend ? "title " + gnuplot_text(file_, curve.title) : "notitle");
        parts_.push_back({curve.title.empty() ? layout_.y.label : curve.title});
    }

    void add_curve(std::size_t i) {
        const Curve& curve = chart_.curves[i];
        std::string title = curve.title;
        std::replace(title.begin(), title.end(), '\n', ' ');
        data_ += fmt::format("# curve.{}\n# {}\n", i, title);
        bool any = false;
        std::vector<std::string> names;
        for (std::size_t step = 0; step < curve.values.size(); ++step) {
            const std::optional<Point> point = point_of(layout_, chart_, curve, step);
            any = any || point;
            data_ += !point                        ? fmt::format("{} NaN\n", step)
                     : curve.style == Style::Cells ? cell_row(curve, *point, step)
                                                   : fmt::format("{:.17g} {:.17g}\n", point->x, point->y);
            if (point)
                names.push_back(name_of_point(curve, step));
        }
        data_ += "\n\n";
        if (!any)
            return;
        if (curve.style == Style::Cells) {
            plot(i, "1:2:3:4:5:6:7", style_of(i), false);
            parts_.back().areas = names;
            return add_numbers(curve);
        }
        if (curve.style == Style::Rings && has_cells(chart_))
            return add_frames(curve);
        if (curve.style == Style::Steps)
            plot(i, "1:($2)", fmt::format("points pt 7 ps {}", 0.7 * size_), false);
        const std::string width = fmt::format("1:($2):({:.4f})", bar_width(chart_));
        plot(i, curve.style == Style::Bars ? width.c_str() : "1:($2)", style_of(i), true);
        if (curve.style == Style::Bars)
            parts_.back().areas = names;
    }

    // Rings would hide the numbers.
    void add_frames(const Curve& curve) {
        for (std::size_t i = 0; i < curve.values.size(); ++i)
            if (const std::optional<Point> point = point_of(layout_, chart_, curve, i))
                add("set object rectangle from {} to {} front fs empty border lc rgb '#1f2328' lw 2.5\n",
                    at(layout_.x.pixel(point->x - 0.5) + 1, layout_.y.pixel(point->y - 0.5) + 1),
                    at(layout_.x.pixel(point->x + 0.5) - 1, layout_.y.pixel(point->y + 0.5) - 1));
    }

    double part_of_shade(double shade) const {
        const Scale& scale = layout_.shade;
        return (shade / scale.unit.size - scale.low) / (scale.high - scale.low);
    }

    std::string cell_row(const Curve& curve, const Point& point, std::size_t i) const {
        return fmt::format("{0:.17g} {1:.17g} {2} {3} {4} {5} {6}\n", point.x, point.y, point.x - 0.5, point.x + 0.5,
                           point.y - 0.5, point.y + 0.5, colour_of_shade(part_of_shade(curve.shades[i])));
    }

    // The shades of cells that are large enough.
    void add_numbers(const Curve& curve) {
        const double wide = std::abs(layout_.x.pixel(1) - layout_.x.pixel(0));
        const double high = std::abs(layout_.y.pixel(1) - layout_.y.pixel(0));
        for (std::size_t i = 0; i < curve.values.size(); ++i) {
            const std::optional<Point> point = point_of(layout_, chart_, curve, i);
            const std::string text =
                fmt::format("{}{}", short_number(curve.shades[i] / layout_.shade.unit.size),
                            i < curve.labels.size() && !curve.labels[i].empty() ? " " + curve.labels[i] : "");
            if (!point || high < 14 || width_of(text) + 4 > wide)
                continue;
            add_text(text, layout_.x.pixel(point->x), layout_.y.pixel(point->y), "center",
                     fmt::format("font 'sans-serif,10' tc rgb '{}'",
                                 hex(text_colour_on(colour_of_shade(part_of_shade(curve.shades[i]))))));
        }
    }

    const Chart& chart_;
    const ChartLayout layout_;
    const double font_;
    const std::string title_;
    const std::string& file_;
    const double size_;
    std::string script_, data_, lines_;
    std::vector<PictureNames::Part> parts_;
};

}  // namespace

void chart_by_gnuplot(const Chart& chart, const View& view, const std::string& file) {
    ChartScript(chart, view, file).draw();
}

}  // namespace pw

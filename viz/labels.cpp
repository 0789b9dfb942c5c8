// Decides the positions of the texts at points.
#include "viz/chart.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pw {

namespace {

constexpr double kHeight = 12;  // of a label

struct Rectangle {
    double left, top, right, bottom;
    bool meets(const Rectangle& other) const {
        return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
    }
};

Rectangle around(double x, double y, double half) { return {x - half, y - half, x + half, y + half}; }

Rectangle between(double x, double y, double to_x, double to_y) {
    return {std::min(x, to_x) - 1, std::min(y, to_y) - 1, std::max(x, to_x) + 1, std::max(y, to_y) + 1};
}

struct LabelPosition {
    Rectangle box;
    double away;  // from the point, or 0: next to it
    bool inside = false;
};

// Right and left of the point, above and below, near and further away.
std::vector<LabelPosition> positions_for(double x, double y, double width) {
    std::vector<LabelPosition> positions;
    for (const double away : {0.0, 12.0, 24.0, 40.0, 60.0, 85.0})
        for (const double top : {y - away - kHeight - 3, y + away + 3})
            for (const double left :
                 {x + 5 + away / 2, x - 5 - away / 2 - width, x + 5 + 1.5 * away, x - 5 - 1.5 * away - width})
                positions.push_back({{left, top, left + width, top + kHeight}, away});
    return positions;
}

// Above the bar, or in it.
std::vector<LabelPosition> positions_for_bar(double x, double y, double width) {
    std::vector<LabelPosition> positions;
    for (const double top : {y - kHeight - 3, y + 5})
        positions.push_back({{x - width / 2, top, x + width / 2, top + kHeight}, 0, top > y});
    return positions;
}

// A label must not hide points, levels and the lines of steps, and should not hide dots and other lines.
struct Ink {
    std::vector<Rectangle> marks, dots;
};

// The line between two points, as dots.
void add_segment(Ink& ink, double x, double y, double to_x, double to_y) {
    constexpr double kApart = 8;
    const int pieces = static_cast<int>(std::hypot(to_x - x, to_y - y) / kApart);
    for (int i = 1; i < pieces; ++i) {
        const double part = static_cast<double>(i) / pieces;
        ink.dots.push_back(around(x + part * (to_x - x), y + part * (to_y - y), 1));
    }
}

void add_curve(Ink& ink, const Chart& chart, const Curve& curve, const ChartLayout& layout) {
    const bool dots = curve.style == Curve::Style::Dots;
    std::optional<Point> before;
    for (std::size_t i = 0; i < curve.values.size(); ++i) {
        const std::optional<Point> point = point_of(layout, chart, curve, i);
        if (point) {
            const double x = layout.x.pixel(point->x), y = layout.y.pixel(point->y);
            if (curve.style != Curve::Style::Bars)
                (dots ? ink.dots : ink.marks).push_back(around(x, y, dots ? 2 : 3.5));
            if (before && is_line(curve) && curve.style != Curve::Style::Steps)
                add_segment(ink, layout.x.pixel(before->x), layout.y.pixel(before->y), x, y);
            if (before && curve.style == Curve::Style::Steps) {
                const double left = layout.x.pixel(before->x), above = layout.y.pixel(before->y);
                ink.marks.push_back(between(left, above, x, above));
                ink.marks.push_back(between(x, above, x, y));
            }
        }
        before = point;
    }
}

Ink ink_of(const Chart& chart, const ChartLayout& layout) {
    Ink ink;
    for (const Curve& curve : chart.curves)
        add_curve(ink, chart, curve, layout);
    for (const Level& level : chart.x.levels) {
        const double x = layout.x.pixel(level.at / layout.x.unit.size);
        ink.marks.push_back(between(x, layout.top, x, layout.bottom));
    }
    for (const Level& level : chart.y.levels) {
        const double y = layout.y.pixel(level.at / layout.y.unit.size);
        ink.marks.push_back(between(layout.left, y, layout.right, y));
        ink.marks.push_back({layout.right - width_of(level.name), y - kHeight - 4, layout.right, y});
    }
    return ink;
}

bool is_inside(const ChartLayout& layout, const Rectangle& box) {
    return box.left > layout.left + 2 && box.right < layout.right + 10 && box.top > layout.top - kHeight &&
           box.bottom < layout.bottom - 2;
}

bool meets_any(const std::vector<Rectangle>& taken, const Rectangle& box) {
    return std::any_of(taken.begin(), taken.end(), [&](const Rectangle& other) { return box.meets(other); });
}

// The line ends at the nearest corner of the text.
Label label_at(double x, double y, const LabelPosition& position, const std::string& text, bool of_bar) {
    const bool leftward = position.box.left < x, above = position.box.bottom < y;
    const double near = leftward ? position.box.right : position.box.left;
    return {of_bar ? x : near,
            position.box.bottom - 2,
            of_bar     ? 0
            : leftward ? -1
                       : 1,
            text,
            position.away > 0,
            x,
            y,
            near + (leftward ? 1 : -1),
            above ? position.box.bottom - 3 : position.box.top + 3,
            position.inside,
            0x24292f};
}

// How many of these the line of a label crosses.
long crossed(const std::vector<Rectangle>& taken, const Label& label) {
    if (!label.apart)
        return 0;
    const double length = std::hypot(label.to_x - label.from_x, label.to_y - label.from_y);
    const int pieces = std::max(1, static_cast<int>(length / 2));
    return std::count_if(taken.begin(), taken.end(), [&](const Rectangle& box) {
        for (int i = 3; i <= pieces; ++i) {  // not at the point itself
            const double part = static_cast<double>(i) / pieces;
            if (box.meets(around(label.from_x + part * (label.to_x - label.from_x),
                                 label.from_y + part * (label.to_y - label.from_y), 0.5)))
                return true;
        }
        return false;
    });
}

// The space of earlier labels.
struct Taken {
    std::vector<Rectangle> names, lines;
};

// Next to the point if that hides few dots. Returns none if no position is free.
std::optional<LabelPosition> best_position(const std::vector<LabelPosition>& positions, double x, double y,
                                           const ChartLayout& layout, const Ink& ink, const Taken& taken) {
    std::optional<LabelPosition> best;
    double least = std::numeric_limits<double>::infinity();
    for (const LabelPosition& position : positions) {
        const Label label = label_at(x, y, position, "", false);
        if (!is_inside(layout, position.box) || meets_any(ink.marks, position.box) ||
            meets_any(taken.names, position.box) || meets_any(taken.lines, position.box) ||
            crossed(taken.names, label) > 0)
            continue;
        const auto hidden = std::count_if(ink.dots.begin(), ink.dots.end(),
                                          [&](const Rectangle& dot) { return position.box.meets(dot); });
        const double cost = position.away + 15 * static_cast<double>(hidden) +
                            4 * static_cast<double>(crossed(ink.dots, label) + crossed(ink.marks, label));
        if (cost < least) {
            least = cost;
            best = position;
        }
    }
    return best;
}

}  // namespace

std::vector<Label> labels_of(const Chart& chart, const ChartLayout& layout) {
    const Ink ink = ink_of(chart, layout);
    std::vector<Label> labels;
    Taken taken;
    std::vector<const Curve*> curves;
    for (const Curve& curve : chart.curves)
        curves.push_back(&curve);
    std::stable_partition(curves.begin(), curves.end(),
                          [](const Curve* curve) { return curve->style == Curve::Style::Rings; });
    for (const Curve* const labelled : curves) {
        const Curve& curve = *labelled;
        const bool of_bar = curve.style == Curve::Style::Bars;
        for (std::size_t i = 0; i < std::min(curve.labels.size(), curve.values.size()); ++i) {
            const std::optional<Point> point = point_of(layout, chart, curve, i);
            if (!point || curve.labels[i].empty() || curve.style == Curve::Style::Cells)
                continue;
            const double x = layout.x.pixel(point->x), y = layout.y.pixel(point->y), width = width_of(curve.labels[i]);
            const std::optional<LabelPosition> position = best_position(
                of_bar ? positions_for_bar(x, y, width) : positions_for(x, y, width), x, y, layout, ink, taken);
            if (!position)
                continue;
            labels.push_back(label_at(x, y, *position, curve.labels[i], of_bar));
            if (position->inside)
                labels.back().colour =
                    text_colour_on(colour_of_curve(chart, static_cast<std::size_t>(&curve - chart.curves.data())));
            taken.names.push_back(position->box);
            if (position->away > 0)
                taken.lines.push_back(between(x, y, labels.back().to_x, labels.back().to_y));
        }
    }
    return labels;
}

}  // namespace pw

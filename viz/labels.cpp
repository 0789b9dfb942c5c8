// Decides the positions of the names of points.
#include "viz/chart.h"

#include <algorithm>
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

Rectangle bar_at(const ChartLayout& layout, const Point& point) {
    return {layout.x.pixel(point.x - kBarWidth / 2), layout.y.pixel(point.y), layout.x.pixel(point.x + kBarWidth / 2),
            layout.bottom};
}

struct LabelPosition {
    Rectangle box;
    double away;  // from the point; 0: next to it
};

// Right and left of the point, above and below, near and further away.
std::vector<LabelPosition> positions_for(double x, double y, double width) {
    std::vector<LabelPosition> positions;
    for (const double away : {0.0, 12.0, 24.0, 40.0})
        for (const double top : {y - away - kHeight - 3, y + away + 3})
            for (const double left : {x + 4 + away / 2, x - 4 - away / 2 - width})
                positions.push_back({{left, top, left + width, top + kHeight}, away});
    return positions;
}

bool is_inside(const ChartLayout& layout, const Rectangle& box) {
    return box.left > layout.left + 2 && box.right < layout.right + 10 && box.top > layout.top - kHeight &&
           box.bottom < layout.bottom - 2;
}

// A label must not hide points, bars, levels and the lines of steps, and should not hide dots.
struct Ink {
    std::vector<Rectangle> marks, dots;
};

void add_ink(Ink& ink, const Curve& curve, const ChartLayout& layout) {
    const bool dots = curve.style == Curve::Style::Dots;
    std::optional<Point> before;
    for (std::size_t i = 0; i < curve.values.size(); ++i) {
        const std::optional<Point> point = point_of(layout, curve, i);
        if (point) {
            const double x = layout.x.pixel(point->x), y = layout.y.pixel(point->y);
            if (curve.style == Curve::Style::Bars)
                ink.marks.push_back(bar_at(layout, *point));
            (dots ? ink.dots : ink.marks).push_back(around(x, y, dots ? 1.5 : 3));
            if (before && curve.style == Curve::Style::Line && before->y == point->y)  // a level
                ink.marks.push_back(between(layout.x.pixel(before->x), y, x, y));
            if (before && curve.style == Curve::Style::Steps) {
                const double left = layout.x.pixel(before->x), above = layout.y.pixel(before->y);
                ink.marks.push_back(between(left, above, x, above));
                ink.marks.push_back(between(x, above, x, y));
            }
        }
        before = point;
    }
}

bool meets_any(const std::vector<Rectangle>& taken, const Rectangle& box) {
    return std::any_of(taken.begin(), taken.end(), [&](const Rectangle& other) { return box.meets(other); });
}

// The line ends at the nearest corner of the name.
Label label_at(double x, double y, const LabelPosition& position, const std::string& text) {
    const bool leftward = position.box.left < x, above = position.box.bottom < y;
    const double near = leftward ? position.box.right : position.box.left;
    return {near, position.box.bottom - 2,    leftward,
            text, position.away > 0,          x,
            y,    near + (leftward ? 1 : -1), above ? position.box.bottom - 3 : position.box.top + 3};
}

bool line_meets_any(const std::vector<Rectangle>& taken, const Label& label) {
    constexpr int kPieces = 10;
    for (int i = 1; label.apart && i <= kPieces; ++i) {
        const double part = static_cast<double>(i) / kPieces;
        const double x = label.from_x + part * (label.to_x - label.from_x);
        const double y = label.from_y + part * (label.to_y - label.from_y);
        if (meets_any(taken, around(x, y, 0.5)))
            return true;
    }
    return false;
}

// The space of earlier labels.
struct Taken {
    std::vector<Rectangle> names, lines;
};

// Next to the point if that hides few dots; none if no position is free.
std::optional<LabelPosition> best_position(double x, double y, const std::string& text, const ChartLayout& layout,
                                           const Ink& ink, const Taken& taken) {
    std::optional<LabelPosition> best;
    double least = std::numeric_limits<double>::infinity();
    for (const LabelPosition& position : positions_for(x, y, width_of(text))) {
        if (!is_inside(layout, position.box) || meets_any(ink.marks, position.box) ||
            meets_any(taken.names, position.box) || meets_any(taken.lines, position.box) ||
            line_meets_any(taken.names, label_at(x, y, position, text)))
            continue;
        const auto hidden = std::count_if(ink.dots.begin(), ink.dots.end(),
                                          [&](const Rectangle& dot) { return position.box.meets(dot); });
        const double cost = position.away + 6 * static_cast<double>(hidden);
        if (cost < least) {
            least = cost;
            best = position;
        }
    }
    return best;
}

}  // namespace

std::vector<Label> labels_of(const Chart& chart, const ChartLayout& layout) {
    Ink ink;
    for (const Curve& curve : chart.curves)
        add_ink(ink, curve, layout);
    std::vector<Label> labels;
    Taken taken;
    for (const Curve& curve : chart.curves)
        for (std::size_t i = 0; i < std::min(curve.labels.size(), curve.values.size()); ++i) {
            const std::optional<Point> point = point_of(layout, curve, i);
            if (!point || curve.labels[i].empty())
                continue;
            const double x = layout.x.pixel(point->x), y = layout.y.pixel(point->y);
            const std::optional<LabelPosition> position = best_position(x, y, curve.labels[i], layout, ink, taken);
            if (!position)
                continue;
            labels.push_back(label_at(x, y, *position, curve.labels[i]));
            taken.names.push_back(position->box);
            if (position->away > 0)
                taken.lines.push_back(between(x, y, labels.back().to_x, labels.back().to_y));
        }
    return labels;
}

}  // namespace pw

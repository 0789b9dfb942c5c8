// Tasks that are too thin to be drawn individually, as bands.
#include "viz/timeline_script.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace pw {

namespace {

// Parts of columns of pixels.
using Shares = std::vector<double>;

// Replaces each share by the mean of `width` columns around it.
void smooth(Shares& shares, int width) {
    Shares sums(shares.size() + 1);
    for (std::size_t column = 0; column < shares.size(); ++column)
        sums[column + 1] = sums[column] + shares[column];
    const int count = static_cast<int>(shares.size());
    for (int column = 0; column < count; ++column) {
        const int from = std::max(column - width / 2, 0), to = std::min(column - width / 2 + width, count);
        shares[static_cast<std::size_t>(column)] =
            (sums[static_cast<std::size_t>(to)] - sums[static_cast<std::size_t>(from)]) / (to - from);
    }
}

void add_to(Shares& shares, double from, double to) {
    for (int column = static_cast<int>(from); column < to; ++column)
        shares.at(static_cast<std::size_t>(column)) += std::min(to, column + 1.0) - std::max<double>(from, column);
}

// By operation, smoothed over some six tasks, so that pixels and tasks make no pattern together.
std::map<Op, Shares> shares_of(const TimelineScript& script, const std::vector<Box>& tasks) {
    const auto columns = static_cast<std::size_t>(script.layout.field()) + 1;
    std::map<Op, Shares> shares;
    double busy = 0;
    for (const Box& box : tasks) {
        const double from = script.pixels(box.start - script.from), to = script.pixels(box.end - script.from);
        add_to(shares.try_emplace(box.event->task.op, columns).first->second, from, to);
        busy += to - from;
    }
    const int width = std::clamp(static_cast<int>(std::lround(6 * busy / static_cast<double>(tasks.size()))), 2, 16);
    for (auto& [op, of_op] : shares) {
        smooth(of_op, width);
        smooth(of_op, width);
    }
    return shares;
}

// Rows of data of the area between the lower edge of the lane and a height of it in every column.
std::string area_of(const TimelineScript& script, const Shares& heights, double bottom, double height) {
    constexpr double kSeen = 0.05, kLeast = 0.02;  // pixels
    const double unit = script.in_unit(script.picture.length) / script.layout.field(),
                 begin = script.in_unit(script.from);
    std::string rows;
    double last = 0;
    const auto put = [&](std::size_t column, double edge) {
        rows +=
            fmt::format("{:.9g} {:.2f} {:.2f}\n", begin + static_cast<double>(column) * unit, bottom - edge, bottom);
        last = edge;
    };
    for (std::size_t column = 0; column < heights.size(); ++column) {
        const double edge = std::min(heights[column], 1.0) * height;
        const double next = column + 1 < heights.size() ? std::min(heights[column + 1], 1.0) * height : 0;
        const bool ends = edge > kLeast && next <= kLeast, begins = edge > kLeast && last <= kLeast;
        if (edge > kLeast && (begins || ends || std::abs(edge - last) > kSeen || std::abs(next - last) > kSeen))
            put(column, edge);
        if (ends) {
            put(column + 1, edge);
            rows += '\n';
            last = 0;
        }
    }
    return rows;
}

}  // namespace

std::vector<std::pair<Op, std::string>> bands_of(const TimelineScript& script, const std::vector<Box>& tasks,
                                                 double top, double height) {
    std::vector<std::pair<Op, std::string>> areas;
    Shares reached(static_cast<std::size_t>(script.layout.field()) + 1);
    for (const auto& [op, shares] : shares_of(script, tasks)) {
        for (std::size_t column = 0; column < reached.size(); ++column)
            reached[column] += shares[column];
        areas.emplace_back(op, area_of(script, reached, top + height, height));
    }
    std::ranges::reverse(areas);  // each is drawn over the areas that reach higher
    return areas;
}

}  // namespace pw

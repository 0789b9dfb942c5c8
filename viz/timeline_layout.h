// The layout of a picture of timelines: positions in pixels; y runs down from the top.
#pragma once

#include "viz/picture.h"

#include <string_view>
#include <vector>

namespace pw {

inline constexpr int kRight = 22, kLegend = 34, kTitle = 26, kAxis = 52, kMemoryTitle = 30, kHeading = 26;
inline constexpr double kLane = 5, kLaneGap = 1.5;

double text_width(std::string_view text, double font);  // about the width in pixels

struct TimelineLayout {
    int width = 1200, left = 120, height = 0;
    int heading = 0;            // height of the title of the whole picture
    double task = 24, gap = 8;  // heights of a row's boxes and of the gap below it
    double timelines_end = 0;
    int memory = 0;                         // height of the memory curves
    std::vector<std::vector<double>> rows;  // top of every row, by panel
    std::vector<double> titles;

    int field() const { return width - left - kRight; }  // width of the rows
    int top() const { return heading + kLegend; }        // upper edge of the rows
    double pixels(const Picture& picture, Ns time) const {
        return static_cast<double>(time) / static_cast<double>(picture.length) * field();
    }
};

TimelineLayout layout_of(const Picture& picture, const View& view);

}  // namespace pw

// The layout of a picture of timelines: positions in pixels. y runs down from the top.
#pragma once

#include "viz/picture.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

double text_width(std::string_view text, double font);  // about the width in pixels
// Returns the text in lines of at most `width` pixels.
std::vector<std::string> lines_within(std::string_view text, double font, double width);

// An entry of a legend: a swatch and its words, or words alone.
struct LegendItem {
    enum class Mark { None, Box, Lane, Stroke };
    std::string text;
    Mark mark = Mark::None;
    Colour colour = 0;
    bool striped = false;  // boxes with a pattern, strokes with dashes
    double font = 11;      // before the scale of the layout
    int line = 0;          // of the legend
    double x = 0;          // left edge of the mark
};

// Heights and widths are for text of 11 pixels. Larger text has larger heights and widths.
struct TimelineLayout {
    double scale = 1;  // of the text: View::font is 11 times as much
    int width = 1200, left = 120, height = 0;
    int right = 22;         // margin
    double heading = 0;     // height of the title of the whole picture
    double legend = 0;      // height of the legend
    double top = 0;         // upper edge of the rows
    double task = 24;       // height of a row's boxes
    double gap = 8;         // below a row
    double lane = 5;        // height of a lane of transfers
    double lane_gap = 1.5;  // above a lane
    double line = 15;       // height of a line of text
    double timelines_end = 0;
    double axis = 52;
    double memory_title = 0, memory = 0;           // heights of the legend of the memory, and of its curves
    std::vector<std::vector<double>> rows;         // top of every row, by panel
    std::vector<std::vector<std::string>> titles;  // lines of each panel's title
    std::vector<double> title_tops;
    double title_left = 0;
    std::vector<std::string> heading_lines;
    std::vector<LegendItem> legend_entries, memory_entries;

    int field() const { return width - left - right; }  // width of the rows
    double pixels(const Picture& picture, Ns time) const {
        return static_cast<double>(time) / static_cast<double>(picture.length) * field();
    }
};

TimelineLayout layout_of(const Picture& picture, const View& view);

// Returns whether the tasks of a row are drawn as bands, since they are too thin on average.
bool draws_bands(const TimelineLayout& layout, const Picture& picture, const Timeline& timeline, const Row& row);

// Pixels of a mark of a legend, and of the space up to its words.
double mark_width(LegendItem::Mark mark);

// Returns whether each panel has one curve of memory: the device with the highest peak.
bool has_curve_per_panel(const Picture& picture);

// Returns the rows of a panel whose memory is drawn.
std::vector<const Row*> rows_with_memory(const Picture& picture, const Timeline& timeline);
Colour memory_colour(const Picture& picture, std::size_t panel, const Row& row);

}  // namespace pw

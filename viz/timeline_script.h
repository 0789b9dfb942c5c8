// A gnuplot script that draws timelines, under construction, and its parts. Script and data are built together: the
// script plots named blocks of the data.
#pragma once

#include "viz/gnuplot.h"
#include "viz/picture.h"
#include "viz/timeline_layout.h"

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pw {

// It refers to the arguments of its constructor.
struct TimelineScript {
    // The picture is cropped. It begins at this time.
    TimelineScript(const Picture& drawn, Ns begin, std::vector<Ns> of_traces, const View& view,
                   const std::string& output)
        : picture(drawn), from(begin), begins(std::move(of_traces)), file(output), layout(layout_of(drawn, view)) {}

    // Add to the script, and to the data.
    template <class... Args>
    void add(fmt::format_string<Args...> text, Args&&... args) {
        fmt::format_to(std::back_inserter(script), text, std::forward<Args>(args)...);
    }
    template <class... Args>
    void put(fmt::format_string<Args...> text, Args&&... args) {
        fmt::format_to(std::back_inserter(data), text, std::forward<Args>(args)...);
    }
    // Positions in pixels, from the top left of the picture. `y` is the middle of the text and of the swatch.
    void add_label(double x, double y, std::string_view text, std::string_view font);
    // Adds the entries of a legend, whose first line is at `y`.
    void add_legend(const std::vector<LegendItem>& entries, double y);
    void add_swatch(double x, double y, double width, double height, Colour colour, std::string_view fill = "solid 1");

    // Return fonts of a size that is scaled as the layout is.
    std::string font(double size) const { return fmt::format("sans-serif,{:.4g}", size * layout.scale); }
    std::string bold(double size) const { return fmt::format("{},{:.4g}", gnuplot_bold(file), size * layout.scale); }
    // Return positions as parts of the picture, from its left and its bottom.
    double x_of(double pixel) const { return pixel / layout.width; }
    double y_of(double pixel) const { return 1 - pixel / layout.height; }
    double pixels(Ns length) const { return layout.pixels(picture, length); }
    double in_unit(Ns time) const { return static_cast<double>(time) / picture.time.size; }
    // Returns the top of a row's lane of transfers.
    double top_of_lane(double row, bool receives) const {
        return row + layout.task + layout.lane_gap + (receives ? layout.lane + layout.lane_gap : 0);
    }

    const Picture& picture;
    const Ns from;
    std::vector<Ns> begins;  // of the traces, on their own clocks
    const std::string& file;
    const TimelineLayout layout;
    std::string script, data;
    PictureNames names;
};

inline constexpr Colour kHatch = 0x2f6db5, kLaneBed = 0xf1f3f5;

// Plots the boxes of all rows, with their numbers.
void add_boxes(TimelineScript& script);

// Returns the bands of a row of tasks, by operation in the order in which they are drawn, as rows of data: time, upper
// and lower edge. What an operation takes of the time around a column of pixels is its part of the height.
std::vector<std::pair<Op, std::string>> bands_of(const TimelineScript& script, const std::vector<Box>& tasks,
                                                 double top, double height);

// Boxes thinner than this are not drawn individually. Browsers would leave them out or widen them, by their position,
// which makes patterns that are not in the trace. Instead, columns of pixels with such boxes get the mean of the
// colours in them.
inline constexpr double kThin = 2;  // pixels
// Returns the rows of data of these columns: start and end, upper and lower edge, colour. Transfers have some in any
// case, tasks only `with_tasks`.
std::string thin_columns(const TimelineScript& script, const Timeline& timeline, const Row& row, double top, int chunks,
                         bool with_tasks);

// Plots the curves of the memory below the rows; for pictures with such curves.
void add_memory(TimelineScript& script);

}  // namespace pw

// The content of every kind of picture of traces: boxes in rows on a single time axis, colours, curves. All times count
// from the start of their own trace.
#pragma once

#include "viz/plot.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pw {

struct Box {
    const TraceEvent* event;
    Ns start, end;
    int chunk;  // which of its device's stages, from 0
    int lane;   // tasks that overlap others of their device are in further lanes
    int lanes;  // of the tasks that overlap each other here, or 1: it has the whole height
};

struct Row {
    int device;
    std::string label;
    std::vector<Box> tasks, transfers;
    std::vector<std::pair<Ns, Bytes>> memory;  // total bytes from that time on
};

struct Timeline {
    std::string title;
    std::string name;  // short name for the legend of curves
    Ns length = 0;
    int lanes = 1;   // of the device with most
    int chunks = 1;  // of the device with most
    bool has_versions = false;
    bool has_predictions = false;  // whether weights are predicted
    bool has_transfers = false;
    bool dashed = false;  // whether its curves are dashed
    std::vector<Row> rows;
};

struct Unit {
    std::string_view name;
    double size;  // in ns or bytes
};

struct Picture {
    std::vector<Timeline> timelines;
    Ns length = 1;     // of the longest timeline
    Bytes memory = 0;  // of the largest sample, or 0 without samples
    Unit time, bytes;  // units that suit length and memory
};

inline constexpr int kMostDevicesOfPicture = 256;  // of formats that draw everything at once
// Throws Error (BadInput) when these are more devices than `most`, which the picture `what` would show.
void check_height(const std::string& what, int devices, int most);
// Throws Error (BadInput) when there is nothing to draw, or more devices than `most`.
Picture picture_of(const std::vector<Panel>& panels, int most = kMostDevicesOfPicture);

Unit time_unit_for(Ns length);
Unit bytes_unit_for(Bytes size);

using Colour = std::uint32_t;    // 0xrrggbb
std::string hex(Colour colour);  // "#rrggbb"
// Returns the colour of a box: further stages of a device are drawn in lighter shades.
Colour colour_of(Op op, int chunk, int chunks);
Colour text_colour_on(Colour background);
Colour curve_colour(int device, int devices);
inline constexpr std::size_t kSeriesColours = 10;
Colour series_colour(
    std::size_t number);  // of one of several curves, bars or plans. After kSeriesColours from the start
std::string version_label(const TraceEvent& event);  // "v3", or "v3+2": predicted from there, two updates ahead
// Returns the operation's words, but for transfers their content: "activations".
std::string_view words_in_legend(Op op);
// Returns the operations that occur, in the order of a legend. Transfers appear as their SEND.
std::vector<Op> legend_of(const Picture& picture);
// Returns the operation of the legend's entry for an operation: both ends of a transfer share an entry, and so do
// copies.
Op shown_as(Op op);

}  // namespace pw

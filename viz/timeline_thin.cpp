// Boxes of a timeline that are too thin to be drawn individually.
#include "viz/timeline_script.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

namespace pw {

namespace {

// A column of pixels of a row: the parts of it that boxes of some colour cover.
class Column {
public:
    void add(Colour colour, double part, bool is_thin) {
        for (std::size_t k = 0; k < sums_.size(); ++k)
            sums_[k] += part * channel(colour, k);
        covered_ += part;
        has_thin_ = has_thin_ || is_thin;
    }
    // Nothing without a thin box. Even the shortest box is visible.
    std::optional<Colour> mean(Colour background) const {
        if (!has_thin_ || covered_ <= 0)
            return {};
        const double shown = std::clamp(covered_, kLeastShown, 1.0);
        Colour colour = 0;
        for (std::size_t k = 0; k < sums_.size(); ++k)
            colour = colour << 8 | static_cast<Colour>(
                                       std::lround(shown * sums_[k] / covered_ + (1 - shown) * channel(background, k)));
        return colour;
    }

private:
    static constexpr double kLeastShown = 0.1;
    static double channel(Colour colour, std::size_t k) { return (colour >> (16 - 8 * k)) & 0xff; }

    std::array<double, 3> sums_{};  // red, green, blue
    double covered_ = 0;            // more than 1 where boxes overlap
    bool has_thin_ = false;
};

// `belongs` returns whether a box is in the lane that begins at y.
template <class Belongs>
void add_columns(const TimelineScript& script, const std::vector<Box>& boxes, Colour background, double y,
                 double height, int chunks, Belongs belongs, std::string& rows) {
    std::vector<Column> columns(static_cast<std::size_t>(script.layout.field()) + 1);
    bool any = false;
    for (const Box& box : boxes) {
        if (!belongs(box))
            continue;
        const Op op = box.event->task.op;
        const double from = script.pixels(box.start - script.from), to = script.pixels(box.end - script.from);
        const bool is_thin = to - from < kThin;
        any = any || is_thin;
        for (int x = static_cast<int>(from); x < to; ++x)
            columns[static_cast<std::size_t>(x)].add(colour_of(op, box.chunk, moves_data(op) ? 1 : chunks),
                                                     std::min(to, x + 1.0) - std::max<double>(from, x), is_thin);
    }
    if (!any)
        return;
    const double unit = script.in_unit(script.picture.length) / script.layout.field(),
                 begin = script.in_unit(script.from);
    for (std::size_t x = 0, next = 0; x < columns.size(); x = next) {  // equal neighbours are merged
        const std::optional<Colour> colour = columns[x].mean(background);
        for (next = x + 1; next < columns.size() && columns[next].mean(background) == colour;)
            ++next;
        if (!colour)
            continue;
        // A column reaches below the next column. Edges that only touch let the background through between two pixels.
        const double over = next < columns.size() && columns[next].mean(background) ? 0.6 : 0;
        rows += fmt::format("{:.9g} {:.9g} {:.2f} {:.2f} {}\n", begin + static_cast<double>(x) * unit,
                            begin + (static_cast<double>(next) + over) * unit, y, y + height, *colour);
    }
}

}  // namespace

std::string thin_columns(const TimelineScript& script, const Timeline& timeline, const Row& row, double top, int chunks,
                         bool with_tasks) {
    constexpr Colour kWhite = 0xffffff;
    const double height = script.layout.task / timeline.lanes;
    std::string rows;
    for (int lane = 0; with_tasks && lane < timeline.lanes; ++lane)
        add_columns(
            script, row.tasks, kWhite, top + height * lane, height, chunks,
            [lane](const Box& box) { return box.lanes == 1 || box.lane == lane; }, rows);
    for (const bool receives : {false, true})
        add_columns(
            script, row.transfers, kLaneBed, script.top_of_lane(top, receives), script.layout.lane, chunks,
            [receives](const Box& box) { return brings_data(box.event->task.op) == receives; }, rows);
    return rows;
}

}  // namespace pw

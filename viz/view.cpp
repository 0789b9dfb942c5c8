#include "viz/view.h"

#include "workloads/error.h"
#include "workloads/units.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace pw {

namespace {

void crop_boxes(std::vector<Box>& boxes, const Shown& shown) {
    std::erase_if(boxes, [&](const Box& box) {
        return std::max(box.end, box.start + 1) <= shown.from || box.start >= std::max(shown.to, shown.from + 1);
    });
    for (Box& box : boxes) {
        box.start = std::max(box.start, shown.from);
        box.end = std::min(box.end, shown.to);
    }
}

// Keeps the last value before the part: it is that at its beginning.
void crop_curve(std::vector<std::pair<Ns, Bytes>>& curve, const Shown& shown) {
    const auto first = std::find_if(curve.begin(), curve.end(), [&](const auto& at) { return at.first > shown.from; });
    if (first != curve.begin()) {
        curve.erase(curve.begin(), first - 1);
        curve.front().first = shown.from;
    }
    std::erase_if(curve, [&](const auto& at) { return at.first > shown.to; });
}

}  // namespace

Shown shown_part(const Picture& picture, const View& view) {
    const Ns from = view.from.value_or(0), to = std::min(view.to.value_or(picture.length), picture.length);
    if (from >= picture.length)
        fail("the range begins at {}, but the trace ends at {}\n  help: begin earlier", print_time(from),
             print_time(picture.length));
    if (from >= to)
        fail("the range from {} to {} is empty\n  help: write the earlier time first, as in 1.2ms..3ms",
             print_time(from), print_time(to));
    return {from, to};
}

void crop(Picture& picture, const Shown& shown) {
    for (Timeline& timeline : picture.timelines) {
        for (Row& row : timeline.rows) {
            crop_boxes(row.tasks, shown);
            crop_boxes(row.transfers, shown);
            crop_curve(row.memory, shown);
        }
        timeline.length = std::min(timeline.length, shown.to);
    }
    picture.length = shown.to - shown.from;
    picture.time = time_unit_for(shown.to);
}

}  // namespace pw

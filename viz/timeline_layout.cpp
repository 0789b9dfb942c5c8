#include "viz/timeline_layout.h"

#include "workloads/median.h"

#include <algorithm>
#include <cmath>

namespace pw {

double text_width(std::string_view text, double font) {
    const auto starts_character = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; };
    return 0.56 * font * static_cast<double>(std::count_if(text.begin(), text.end(), starts_character));
}

namespace {

// Wide enough for the number of a typical forward, or its predicted version, within reason.
int width_for(const Picture& picture, int margins) {
    std::vector<Ns> forwards;
    int widest = 12;
    for (const Timeline& timeline : picture.timelines) {
        widest = timeline.has_predictions ? 20 : widest;
        for (const Row& row : timeline.rows)
            for (const Box& box : row.tasks)
                if (box.event->task.op == Op::Forward && box.end > box.start)
                    forwards.push_back(box.end - box.start);
    }
    if (forwards.empty())
        return 1200;
    const double boxes = static_cast<double>(picture.length) / static_cast<double>(upper_median(std::move(forwards)));
    return std::clamp(static_cast<int>(std::ceil((widest * boxes + margins) / 50)) * 50, 1200, 1800);
}

}  // namespace

TimelineLayout layout_of(const Picture& picture, const View& view) {
    TimelineLayout layout;
    double label = 0;
    int lanes = 1;
    bool versions = false, transfers = false;
    std::size_t devices = 0;
    for (const Timeline& timeline : picture.timelines) {
        for (const Row& row : timeline.rows)
            label = std::max(label, text_width(row.label, 11));
        lanes = std::max(lanes, timeline.lanes);
        versions = versions || timeline.has_versions;
        transfers = transfers || timeline.has_transfers;
        devices = std::max(devices, timeline.rows.size());
    }
    layout.left = std::clamp(static_cast<int>(label) + 22, 90, 300);
    layout.heading = view.title.empty() ? 0 : kHeading;
    layout.width = view.width > 0 ? view.width : width_for(picture, layout.left + kRight);
    layout.task = versions ? 30 : devices > 8 ? 20 : 24;
    if (lanes > 1)
        layout.task = 18.0 * lanes;
    layout.gap = devices > 8 ? 6 : 9;

    double y = 0;
    for (const Timeline& timeline : picture.timelines) {
        layout.titles.push_back(y + kTitle * 0.5);
        y += kTitle;
        std::vector<double>& tops = layout.rows.emplace_back();
        for (std::size_t row = 0; row < timeline.rows.size(); ++row) {
            tops.push_back(y);
            y += layout.task + (transfers ? 2 * (kLane + kLaneGap) : 0) + layout.gap;
        }
    }
    layout.timelines_end = y;
    layout.memory = picture.memory == 0 ? 0 : devices > 8 ? 200 : 130;
    layout.height =
        layout.top() + static_cast<int>(std::ceil(y)) + kAxis + (layout.memory > 0 ? kMemoryTitle + layout.memory : 0);
    return layout;
}

}  // namespace pw

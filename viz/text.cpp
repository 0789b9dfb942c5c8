// Draws a grid for the terminal: one row for each device, time to the right, plain ASCII but for titles.
#include "viz/formats.h"
#include "viz/picture.h"
#include "viz/view.h"
#include "workloads/text/files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

namespace pw {

namespace {

// Four columns for a typical forward: "F12-".
int columns_for(const Picture& picture) {
    std::vector<Ns> lengths;
    for (const Timeline& timeline : picture.timelines)
        for (const Row& row : timeline.rows)
            for (const Box& box : row.tasks)
                if (is_compute(box.event->task.op) && box.end > box.start)
                    lengths.push_back(box.end - box.start);
    if (lengths.empty())
        return 80;
    std::nth_element(lengths.begin(), lengths.begin() + lengths.size() / 4, lengths.end());
    const double boxes = static_cast<double>(picture.length) / static_cast<double>(lengths[lengths.size() / 4]);
    return std::clamp(static_cast<int>(std::lround(4 * boxes)), 60, 160);
}

// As much of the task's name as fits, then the line that shows its length.
std::string cell_of(const Box& box, bool several_stages, int width) {
    const Task& task = box.event->task;
    const std::string letters{letters_of(task.op)};
    const std::string choices[] = {several_stages ? print(task) : letters + number_of(task), letters + number_of(task),
                                   letters};
    for (const std::string& choice : choices)
        if (static_cast<int>(choice.size()) <= width)
            return choice + std::string(width - choice.size(), '-');
    return letters.substr(0, width);
}

class Grid {
public:
    // The picture is cropped; it begins at this time.
    Grid(const Picture& picture, Ns from) : picture_(picture), from_(from), columns_(columns_for(picture)) {
        for (const Timeline& timeline : picture.timelines)
            for (const Row& row : timeline.rows)
                label_ = std::max(label_, name_of(row).size());
    }

    std::string make() const {
        std::string text;
        for (const Timeline& timeline : picture_.timelines) {
            text += timeline.title + "\n";
            for (const Row& row : timeline.rows)
                text += fmt::format("{:<{}} |{}|{}\n", name_of(row), label_, line_of(row, timeline.chunks > 1),
                                    peak_of(row));
        }
        return text + axis() + legend();
    }

private:
    std::string name_of(const Row& row) const {
        std::string name = row.label;
        if (const std::size_t dot = name.find(" · "); dot != std::string::npos)
            name.replace(dot, std::string_view(" · ").size(), ", ");
        return name;
    }

    int column_of(Ns time) const {
        const double part = static_cast<double>(time - from_) / static_cast<double>(picture_.length);
        return std::clamp(static_cast<int>(std::lround(part * columns_)), 0, columns_);
    }

    std::string line_of(const Row& row, bool several_stages) const {
        std::string line(columns_, ' ');
        for (const Box& box : row.tasks) {
            // tasks that overlap are next to each other in the columns of both
            const Ns part = (box.end - box.start) / box.lanes, start = box.start + part * box.lane;
            const int begin = std::min(column_of(start), columns_ - 1);
            const int end = std::max(column_of(box.lane + 1 == box.lanes ? box.end : start + part), begin + 1);
            const bool shows = is_compute(box.event->task.op) || line[begin] == ' ';  // U and S are short
            if (shows || end > begin + 1)
                line.replace(begin, end - begin, cell_of(box, several_stages, end - begin));
        }
        return line;
    }

    std::string peak_of(const Row& row) const {
        Bytes peak = 0;
        for (const auto& [time, bytes] : row.memory)
            peak = std::max(peak, bytes);
        if (row.memory.empty())
            return "";
        return fmt::format(" peak {:.4g} {}", static_cast<double>(peak) / picture_.bytes.size, picture_.bytes.name);
    }

    // Marks at 1, 2 or 5 times a power of ten, five or so.
    std::string axis() const {
        const double length = static_cast<double>(picture_.length) / picture_.time.size;
        const double decade = std::pow(10, std::floor(std::log10(length / 4)));
        const double part = length / 4 / decade;
        const double step = decade * (part >= 5 ? 5 : part >= 2 ? 2 : 1);
        std::string line(label_ + 2 + columns_ + 12, ' ');
        const double from = static_cast<double>(from_) / picture_.time.size;
        const auto first = static_cast<std::int64_t>(std::ceil(from / step - 1e-9));
        for (std::int64_t i = first; static_cast<double>(i) * step <= from + length; ++i) {
            const double time = static_cast<double>(i) * step;
            const std::string mark =
                fmt::format("{:g}{}", time, i == first ? fmt::format(" {}", picture_.time.name) : "");
            line.replace(label_ + 2 + column_of(static_cast<Ns>(time * picture_.time.size)), mark.size(), mark);
        }
        line.erase(line.find_last_not_of(' ') + 1);
        return line + "\n";
    }

    std::string legend() const {
        std::string line(label_ + 2, ' ');
        for (const Op op : legend_of(picture_))
            if (!moves_data(op))
                line += fmt::format("{} {}  ", letters_of(op), words_of(op));
        return line.substr(0, line.size() - 2) + "\n";
    }

    const Picture& picture_;
    Ns from_;
    int columns_;
    std::size_t label_ = 0;
};

}  // namespace

std::string text_of(const std::vector<Panel>& panels, const View& view) {
    Picture picture = picture_of(panels);
    const Shown shown = shown_part(picture, view);
    crop(picture, shown);
    return (view.title.empty() ? "" : view.title + "\n\n") + Grid(picture, shown.from).make();
}

void timeline_text(const std::vector<Panel>& panels, const View& view, const std::string& file) {
    write_file(file, text_of(panels, view));
}

}  // namespace pw

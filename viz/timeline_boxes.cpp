// The boxes of a timeline and the numbers in them.
#include "viz/timeline_script.h"
#include "workloads/median.h"
#include "workloads/units.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace pw {

namespace {

class BoxPlot {
public:
    explicit BoxPlot(TimelineScript& script) : script_(script) {}

    void plot() {
        for (const Timeline& timeline : script_.picture.timelines)
            chunks_ = std::max(chunks_, timeline.chunks);
        choose_font();
        std::size_t boxes = 0;
        for (const Timeline& timeline : script_.picture.timelines)
            for (const Row& row : timeline.rows)
                boxes += row.tasks.size() + row.transfers.size();
        names_each_ = boxes <= kMostNames;
        for (std::size_t i = 0; i < script_.picture.timelines.size(); ++i) {
            const Timeline& timeline = script_.picture.timelines[i];
            for (const Row& row : timeline.rows) {
                const double top = script_.layout.rows[i][row.device];
                const std::set<Op> numbered = numbered_in(row);
                const bool banded = place_bands(timeline, row, top);
                for (const Box& box : row.tasks)
                    if (!banded)
                        place_task(timeline, box, top, i, numbered.count(box.event->task.op) > 0);
                for (const Box& box : row.transfers)
                    place_transfer(box, top, i);
                thin_ += thin_columns(script_, timeline, row, top, chunks_, !banded);
            }
        }
        plot_boxes();
    }

private:
    static constexpr std::size_t kMostNames = 20'000;  // more would take most of the file

    // Boxes that look alike.
    struct Block {
        std::string rows;                // of data
        std::vector<std::string> names;  // of the boxes, in the order of the rows
    };

    // Boxes of the same colour are one block of data and one line of the plot.
    void plot_boxes() {
        script_.put(
            "# Boxes: start and end in {}, upper and lower edge, panel, device, stage, micro-batch, version, ahead\n",
            script_.picture.time.name);
        std::string lines;
        const bool narrow = script_.pixels(median_) <= 4;
        for (const auto& [key, block] : blocks_) {
            const auto [task, op, chunk] = key;
            const std::string words =
                fmt::format("{}{}", words_of(op), chunk > 0 ? fmt::format(", stage {} of its device", chunk + 1) : "");
            const std::string name = fmt::format("{}.{}", letters_of(op), chunk);
            script_.put("# {}\n{}\n\n", name, block.rows);
            const std::string boxes = fmt::format(
                "{} index '{}' using (($1+$2)/2):(($3+$4)/2):1:2:3:4 with boxxyerror lw 0.8", kGnuplotData, name);
            lines += fmt::format("{} lc rgb '{}' fs solid 1 {}, \\\n     ", boxes,
                                 hex(colour_of(op, chunk, task ? chunks_ : 1)),
                                 task && !narrow ? "border lc rgb '#ffffff'" : "noborder");
            script_.names.parts.push_back({words, block.names});
            if (op == Op::Recompute) {
                script_.names.parts.push_back({words, block.names});
                lines += fmt::format("{} lc rgb '{}' fs transparent pattern 4 noborder, \\\n     ", boxes, hex(kHatch));
            }
        }
        for (const auto& [op, rows] : bands_) {
            const std::string name = fmt::format("bands.{}", script_.names.parts.size());
            script_.put("# {}\n{}\n\n", name, rows);
            lines +=
                fmt::format("{} index '{}' using 1:2:3 with filledcurves lc rgb '{}' fs solid 1 noborder, \\\n     ",
                            kGnuplotData, name, hex(colour_of(op, 0, 1)));
            script_.names.parts.push_back({fmt::format("{}: its part of the time", words_of(op))});
        }
        if (!thin_.empty()) {
            script_.put(
                "# thin: boxes below {} pixels wide: each column of pixels has the mean colour of its "
                "boxes\n{}\n\n",
                kThin, thin_);
            lines += fmt::format(
                "{} index 'thin' using (($1+$2)/2):(($3+$4)/2):1:2:3:4:5 with boxxyerror lc rgb variable fs solid 1 "
                "noborder, \\\n     ",
                kGnuplotData);
            script_.names.parts.push_back({"several tasks"});
        }
        for (const auto& [key, rows] : texts_) {
            const std::string name = fmt::format("text.{:06x}.{:.4g}", key.first, key.second);
            script_.put("# {}\n{}\n\n", name, rows);
            lines += fmt::format(
                "{} index '{}' using 1:2:(stringcolumn(3)) with labels center "
                "font 'sans-serif,{:.4g}' tc rgb '{}', \\\n     ",
                kGnuplotData, name, key.second, hex(key.first));
            script_.names.parts.push_back({});
        }
        if (lines.empty())
            lines = "NaN notitle,";  // no task takes time
        lines.resize(lines.rfind(','));
        script_.add("\nplot {}\n", lines);
    }

    // "device 2: B7 of stage 2, 3.2 to 4.1 ms", "device 2 sends gradients 7 to stage 1, 4.1 to 4.2 ms, 1 MiB".
    std::string name_of_box(const TraceEvent& event, std::size_t panel) const {
        const Task& task = event.task;
        const Ns begin = script_.begins[panel];
        std::string name =
            copies_states(task.op)
                ? fmt::format("device {}: {} of stage {}", event.device, words_of(task.op), task.stage)
            : is_copy(task.op) ? fmt::format("device {}: {} {} of stage {}", event.device, words_of(task.op),
                                             number_of(task), task.stage)
            : is_transfer(task.op)
                ? fmt::format("device {} {} {} {} {} stage {}", event.device, is_recv(task.op) ? "receives" : "sends",
                              words_in_legend(task.op), number_of(task), is_recv(task.op) ? "from" : "to", task.peer)
                : fmt::format("device {}: {}{} of stage {}", event.device, letters_of(task.op),
                              is_compute(task.op) ? number_of(task) : "", task.stage);
        name += fmt::format(", {:.6g} to {:.6g} {}", script_.in_unit(event.start - begin),
                            script_.in_unit(event.end - begin), script_.picture.time.name);
        if (moves_data(task.op) && event.bytes > 0)
            name += ", " + print_bytes(event.bytes);
        return name;
    }

    bool fits(const Box& box, double font) const {
        const std::string number = number_of(box.event->task);
        return text_width(number, font) + 2 <= script_.pixels(box.end - box.start);
    }

    // The numbered operations: operations whose numbers mostly fit. A few numbers would be noise.
    std::set<Op> numbered_in(const Row& row) const {
        std::map<Op, std::pair<int, int>> fitting;  // of all
        for (const Box& box : row.tasks)
            if (is_compute(box.event->task.op)) {
                auto& [good, all] = fitting[box.event->task.op];
                good += fits(box, font_);
                ++all;
            }
        std::set<Op> numbered;
        for (const auto& [op, counts] : fitting)
            if (counts.first * 4 >= counts.second * 3)
                numbered.insert(op);
        return numbered;
    }

    // 10 when the numbers of most boxes fit, else 8, scaled as all text.
    void choose_font() {
        std::vector<Ns> lengths;
        std::size_t fitting = 0;
        const double scale = script_.layout.scale;
        for (const Timeline& timeline : script_.picture.timelines)
            for (const Row& row : timeline.rows)
                for (const Box& box : row.tasks)
                    if (is_compute(box.event->task.op)) {
                        lengths.push_back(box.end - box.start);
                        fitting += fits(box, 10 * scale);
                    }
        font_ = scale * (fitting * 10 >= lengths.size() * 9 ? 10 : 8);
        if (lengths.empty())
            return;
        median_ = upper_median(std::move(lengths));
    }

    void add_box(Block& block, const Box& box, double y0, double y1, std::size_t panel) const {
        const TraceEvent& event = *box.event;
        if (names_each_)
            block.names.push_back(name_of_box(event, panel));
        block.rows += fmt::format("{:.6f} {:.6f} {:.2f} {:.2f} {} {} {} {} {} {}\n", script_.in_unit(box.start),
                                  script_.in_unit(box.end), y0, y1, panel, event.device, event.task.stage,
                                  event.task.microbatch, event.version, event.ahead);
    }

    void place_task(const Timeline& timeline, const Box& box, double top, std::size_t panel, bool numbered) {
        const double height = script_.layout.task / box.lanes;
        const double y = top + height * box.lane;
        const Task& task = box.event->task;
        const double width = script_.pixels(box.end - box.start);
        if (width >= kThin)
            add_box(blocks_[{true, task.op, box.chunk}], box, y, y + height, panel);
        const Colour colour = text_colour_on(colour_of(task.op, box.chunk, chunks_));
        const bool versions = timeline.has_versions && box.lanes == 1 && box.event->version >= 0;
        const double x = script_.in_unit(box.start + (box.end - box.start) / 2);
        const std::string version = version_label(*box.event);
        const double scale = script_.layout.scale, small = 7 * scale;
        if (numbered && fits(box, font_))
            texts_[{colour, font_}] +=
                fmt::format("{:.6f} {:.2f} {}\n", x, y + height / 2 - (versions ? 5 * scale : 0), number_of(task));
        if (versions && text_width(version, small) + 2 <= width)
            texts_[{colour, small}] +=
                fmt::format("{:.6f} {:.2f} {}\n", x, y + height / 2 + (is_compute(task.op) ? 8 * scale : 0), version);
    }

    // Returns whether the tasks of the row are bands.
    bool place_bands(const Timeline& timeline, const Row& row, double top) {
        if (!draws_bands(script_.layout, script_.picture, timeline, row))
            return false;
        for (auto& band : bands_of(script_, row.tasks, top, script_.layout.task))
            bands_.push_back(std::move(band));
        return true;
    }

    void place_transfer(const Box& box, double top, std::size_t panel) {
        const Op op = box.event->task.op;
        const double y = script_.top_of_lane(top, brings_data(op));
        if (script_.pixels(box.end - box.start) >= kThin)
            add_box(blocks_[{false, op, 0}], box, y, y + script_.layout.lane, panel);
    }

    TimelineScript& script_;
    // Rows of data: tasks above transfers, operation, chunk; colour and font size of texts.
    std::map<std::tuple<bool, Op, int>, Block> blocks_;
    std::map<std::pair<Colour, double>, std::string> texts_;
    std::vector<std::pair<Op, std::string>> bands_;  // in the order in which they are drawn
    std::string thin_;
    bool names_each_ = true;
    int chunks_ = 1;
    double font_ = 10;
    Ns median_ = 0;
};

}  // namespace

void add_boxes(TimelineScript& script) { BoxPlot(script).plot(); }

}  // namespace pw

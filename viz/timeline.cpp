// Writes timelines as a gnuplot script.
#include "viz/formats.h"
#include "viz/gnuplot.h"
#include "viz/picture.h"
#include "viz/timeline_layout.h"
#include "workloads/median.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace pw {

namespace {

// One column of pixels of a row: the parts of it that boxes of some colour cover.
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

// Builds script and data together: the script plots the named blocks of the data.
class TimelineScript {
public:
    TimelineScript(const Picture& picture, const std::string& file)
        : picture_(picture), file_(file), layout_(layout_of(picture)), screen_(layout_.height) {}

    void draw() {
        add("{}", gnuplot_output(file_, layout_.width, layout_.height));
        add("\nset multiplot\nset border 0\nunset key\n");
        add("set lmargin at screen {:.5f}\nset rmargin at screen {:.5f}\nset xrange [0:{:.6f}]\n",
            static_cast<double>(layout_.left) / layout_.width, 1 - static_cast<double>(kRight) / layout_.width,
            in_unit(picture_.length));
        add_legend();
        add_rows();
        add_boxes();
        if (layout_.memory > 0)
            add_memory();
        add("unset multiplot\n");
        for (const Timeline& timeline : picture_.timelines)
            names_.picture += (names_.picture.empty() ? "" : "; ") + timeline.title;
        draw_by_gnuplot(file_, script_, data_, names_);
    }

private:
    template <class... Args>
    void add(fmt::format_string<Args...> text, Args&&... args) {
        fmt::format_to(std::back_inserter(script_), text, std::forward<Args>(args)...);
    }

    template <class... Args>
    void put(fmt::format_string<Args...> text, Args&&... args) {
        fmt::format_to(std::back_inserter(data_), text, std::forward<Args>(args)...);
    }

    double in_unit(Ns time) const { return static_cast<double>(time) / picture_.time.size; }
    double x_of(double pixel) const { return pixel / layout_.width; }
    double top_of_lane(double row, bool receives) const {
        return row + layout_.task + kLaneGap + (receives ? kLane + kLaneGap : 0);
    }
    double y_of(double pixel) const { return 1 - pixel / screen_; }  // from the top of the picture

    void add_label(double x, double y, std::string_view text, std::string_view font) {
        add("set label {} at screen {:.5f},{:.5f} left font '{}' tc rgb '#1f2328'\n", gnuplot_quoted(text), x_of(x),
            y_of(y), font);
    }

    void add_swatch(double x, double y, double width, double height, Colour colour, std::string_view fill = "solid 1") {
        add("set object rectangle from screen {:.5f},{:.5f} to screen {:.5f},{:.5f} fc rgb '{}' fs {} noborder\n",
            x_of(x), y_of(y + height / 2), x_of(x + width), y_of(y - height / 2), hex(colour), fill);
    }

    void add_legend() {
        add("\n# legend\n");
        double x = layout_.left;
        const double y = kLegend * 0.5;
        bool sends = false;
        for (const Op op : legend_of(picture_)) {
            const std::string_view words = words_in_legend(op);
            add_swatch(x, y, is_transfer(op) ? 18 : 14, is_transfer(op) ? kLane : 12, colour_of(op, 0, 1));
            if (op == Op::Recompute)
                add_swatch(x, y, 14, 12, kHatch, "transparent pattern 4");
            x += is_transfer(op) ? 24 : 20;
            add_label(x, y, words, "sans-serif,11");
            x += text_width(words, 11) + 12;
            sends = sends || is_transfer(op);
        }
        const std::string note = "(sends above, receives below)";
        if (sends && x + text_width(note, 10) < layout_.width)
            add_label(x - 4, y, note, "sans-serif,10");
    }

    void add_rows() {
        add("\n# one row for each device, panels one above the other\n");
        add("set tmargin at screen {:.5f}\nset bmargin at screen {:.5f}\nset yrange [{:.2f}:0]\n", y_of(kLegend),
            y_of(kLegend + layout_.timelines_end), layout_.timelines_end);
        for (std::size_t i = 0; i < picture_.timelines.size(); ++i)
            add("set label {} at graph 0, first {:.2f} left font '{},12' tc rgb '#1f2328'\n",
                gnuplot_quoted(picture_.timelines[i].title), layout_.titles[i], gnuplot_bold(file_));
        std::string tics;
        for (std::size_t i = 0; i < picture_.timelines.size(); ++i)
            for (const Row& row : picture_.timelines[i].rows) {
                const double top = layout_.rows[i][row.device];
                tics += fmt::format("{}{} {:.2f}", tics.empty() ? "" : ", ", gnuplot_quoted(row.label),
                                    top + layout_.task / 2);
                add_lanes(picture_.timelines[i], top);
            }
        add("set ytics ({}) scale 0 font 'sans-serif,11' tc rgb '#1f2328'\n", tics);
        add("set grid xtics back lt 1 lc rgb '#e3e6ea' lw 0.7\n");
        if (layout_.memory > 0)
            add("set xtics format '' scale 0\n");
        else
            add("set xtics format '%g' scale 0 tc rgb '#57606a'\nset xlabel 'time in {}' offset 0,0.3 tc rgb "
                "'#1f2328'\n",
                picture_.time.name);
    }

    // Faint backgrounds of the transfers, as long as the trace.
    void add_lanes(const Timeline& timeline, double top) {
        if (!timeline.has_transfers)
            return;
        for (const int lane : {0, 1}) {
            const double y = top_of_lane(top, lane == 1);
            add("set object rectangle from 0,{:.2f} to {:.6f},{:.2f} back fc rgb '{}' fs solid 1 noborder\n", y,
                in_unit(timeline.length), y + kLane, hex(kLaneBed));
        }
    }

    void add_boxes() {
        for (const Timeline& timeline : picture_.timelines)
            chunks_ = std::max(chunks_, timeline.chunks);
        choose_font();
        for (std::size_t i = 0; i < picture_.timelines.size(); ++i)
            for (const Row& row : picture_.timelines[i].rows) {
                const double top = layout_.rows[i][row.device];
                const std::set<Op> numbered = numbered_in(row);
                for (const Box& box : row.tasks)
                    place_task(picture_.timelines[i], box, top, i, numbered.count(box.event->task.op) > 0);
                for (const Box& box : row.transfers)
                    place_transfer(box, top, i);
                place_thin(picture_.timelines[i], row, top);
            }
        plot_boxes();
    }

    // Boxes of one colour are one block of data and one line of the plot.
    void plot_boxes() {
        put("# Boxes: start and end in {}, upper and lower edge, panel, device, stage, micro-batch, version, ahead\n",
            picture_.time.name);
        std::string lines;
        const bool narrow = layout_.pixels(picture_, median_) <= 4;
        for (const auto& [key, rows] : blocks_) {
            const auto [task, op, chunk] = key;
            const std::string words =
                fmt::format("{}{}", words_of(op), chunk > 0 ? fmt::format(", stage {} of its device", chunk + 1) : "");
            const std::string name = fmt::format("{}.{}", letters_of(op), chunk);
            put("# {}\n{}\n\n", name, rows);
            const std::string boxes = fmt::format(
                "{} index '{}' using (($1+$2)/2):(($3+$4)/2):1:2:3:4 with boxxyerror lw 0.8", kGnuplotData, name);
            lines += fmt::format("{} lc rgb '{}' fs solid 1 {}, \\\n     ", boxes,
                                 hex(colour_of(op, chunk, task ? chunks_ : 1)),
                                 task && !narrow ? "border lc rgb '#ffffff'" : "noborder");
            names_.parts.push_back(words);
            if (op == Op::Recompute) {
                names_.parts.push_back(words);
                lines += fmt::format("{} lc rgb '{}' fs transparent pattern 4 noborder, \\\n     ", boxes, hex(kHatch));
            }
        }
        if (!thin_.empty()) {
            put("# thin: boxes below {} pixels wide: each column of pixels has the mean colour of its "
                "boxes\n{}\n\n",
                kThin, thin_);
            lines += fmt::format(
                "{} index 'thin' using (($1+$2)/2):(($3+$4)/2):1:2:3:4:5 with boxxyerror lc rgb variable fs solid 1 "
                "noborder, \\\n     ",
                kGnuplotData);
            names_.parts.push_back("several tasks");
        }
        for (const auto& [key, rows] : texts_) {
            const std::string name = fmt::format("text.{:06x}.{}", key.first, key.second);
            put("# {}\n{}\n\n", name, rows);
            lines += fmt::format(
                "{} index '{}' using 1:2:(stringcolumn(3)) with labels center "
                "font 'sans-serif,{}' tc rgb '{}', \\\n     ",
                kGnuplotData, name, key.second, hex(key.first));
            names_.parts.emplace_back();
        }
        if (lines.empty())
            lines = "NaN notitle,";  // no task takes time
        lines.resize(lines.rfind(','));
        add("\nplot {}\n", lines);
    }

    bool fits(const Box& box, int font) const {
        const std::string number = std::to_string(box.event->task.microbatch);
        return text_width(number, font) + 2 <= layout_.pixels(picture_, box.end - box.start);
    }

    // The numbered operations: those whose numbers mostly fit. A few numbers would be noise.
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

    // 10 when the numbers of most boxes fit, else 8.
    void choose_font() {
        std::vector<Ns> lengths;
        std::size_t fitting = 0;
        for (const Timeline& timeline : picture_.timelines)
            for (const Row& row : timeline.rows)
                for (const Box& box : row.tasks)
                    if (is_compute(box.event->task.op)) {
                        lengths.push_back(box.end - box.start);
                        fitting += fits(box, 10);
                    }
        font_ = fitting * 10 >= lengths.size() * 9 ? 10 : 8;
        if (lengths.empty())
            return;
        median_ = upper_median(std::move(lengths));
    }

    std::string box_row(const Box& box, double y0, double y1, std::size_t panel) const {
        const TraceEvent& event = *box.event;
        return fmt::format("{:.6f} {:.6f} {:.2f} {:.2f} {} {} {} {} {} {}\n", in_unit(box.start), in_unit(box.end), y0,
                           y1, panel, event.device, event.task.stage, event.task.microbatch, event.version,
                           event.ahead);
    }

    void place_task(const Timeline& timeline, const Box& box, double top, std::size_t panel, bool numbered) {
        const double height = layout_.task / timeline.lanes;
        const double y = top + height * box.lane;
        const Task& task = box.event->task;
        const double width = layout_.pixels(picture_, box.end - box.start);
        if (width >= kThin)
            blocks_[{true, task.op, box.chunk}] += box_row(box, y, y + height, panel);
        const Colour colour = text_colour_on(colour_of(task.op, box.chunk, chunks_));
        const bool versions = timeline.has_versions && timeline.lanes == 1 && box.event->version >= 0;
        const double x = in_unit(box.start + (box.end - box.start) / 2);
        const std::string version = version_label(*box.event);
        if (numbered && fits(box, font_))
            texts_[{colour, font_}] +=
                fmt::format("{:.6f} {:.2f} {}\n", x, y + height / 2 - (versions ? 5 : 0), task.microbatch);
        if (versions && text_width(version, 7) + 2 <= width)
            texts_[{colour, 7}] +=
                fmt::format("{:.6f} {:.2f} {}\n", x, y + height / 2 + (is_compute(task.op) ? 8 : 0), version);
    }

    void place_transfer(const Box& box, double top, std::size_t panel) {
        const Op op = box.event->task.op;
        const double y = top_of_lane(top, is_recv(op));
        if (layout_.pixels(picture_, box.end - box.start) >= kThin)
            blocks_[{false, op, 0}] += box_row(box, y, y + kLane, panel);
    }

    static bool is_in_lane(const Box& box, bool receives) { return is_recv(box.event->task.op) == receives; }

    // Browsers would leave out or widen boxes that are thinner than kThin pixels, by their position, which makes
    // patterns that are not in the trace. Columns of pixels with such boxes get the mean of the colours in them
    // instead.
    void place_thin(const Timeline& timeline, const Row& row, double top) {
        const double height = layout_.task / timeline.lanes;
        for (int lane = 0; lane < timeline.lanes; ++lane)
            place_columns(row.tasks, kWhite, top + height * lane, height,
                          [lane](const Box& box) { return box.lane == lane; });
        for (const bool receives : {false, true})
            place_columns(row.transfers, kLaneBed, top_of_lane(top, receives), kLane,
                          [receives](const Box& box) { return is_in_lane(box, receives); });
    }

    template <class Belongs>
    void place_columns(const std::vector<Box>& boxes, Colour background, double y, double height, Belongs belongs) {
        std::vector<Column> columns(static_cast<std::size_t>(layout_.field()) + 1);
        bool any = false;
        for (const Box& box : boxes) {
            if (!belongs(box))
                continue;
            const Op op = box.event->task.op;
            const double from = layout_.pixels(picture_, box.start), to = layout_.pixels(picture_, box.end);
            const bool is_thin = to - from < kThin;
            any = any || is_thin;
            for (int x = static_cast<int>(from); x < to; ++x)
                columns[static_cast<std::size_t>(x)].add(colour_of(op, box.chunk, is_transfer(op) ? 1 : chunks_),
                                                         std::min(to, x + 1.0) - std::max<double>(from, x), is_thin);
        }
        if (!any)
            return;
        const double unit = in_unit(picture_.length) / layout_.field();
        for (std::size_t x = 0, next = 0; x < columns.size(); x = next) {  // equal neighbours are one
            const std::optional<Colour> colour = columns[x].mean(background);
            for (next = x + 1; next < columns.size() && columns[next].mean(background) == colour;)
                ++next;
            if (colour)
                thin_ += fmt::format("{:.9g} {:.9g} {:.2f} {:.2f} {}\n", static_cast<double>(x) * unit,
                                     static_cast<double>(next) * unit, y, y + height, *colour);
        }
    }

    void add_memory() {
        const double top = kLegend + layout_.timelines_end;
        add("\n# memory\nunset label\nunset object\n");
        add_memory_legend(top + kMemoryTitle * 0.6);
        add("set tmargin at screen {:.5f}\nset bmargin at screen {:.5f}\n", y_of(top + kMemoryTitle),
            y_of(top + kMemoryTitle + layout_.memory));
        add("unset ytics\nset ytics autofreq scale 0 format '%g {}' font 'sans-serif,11' tc rgb '#57606a'\n",
            picture_.bytes.name);
        add("set grid xtics ytics back lt 1 lc rgb '#e3e6ea' lw 0.7\nset xtics format '%g' tc rgb '#57606a'\n");
        add("set xlabel 'time in {}' offset 0,0.3 tc rgb '#1f2328'\nset yrange [0:{:.6f}]\n\n", picture_.time.name,
            1.08 * static_cast<double>(picture_.memory) / picture_.bytes.size);
        put("# Memory: time in {}, {}\n", picture_.time.name, picture_.bytes.name);
        std::string lines;
        for (std::size_t i = 0; i < picture_.timelines.size(); ++i) {
            const Timeline& timeline = picture_.timelines[i];
            for (const Row& row : timeline.rows) {
                if (row.memory.empty())
                    continue;
                const std::string name = fmt::format("memory.{}.{}", i, row.device);
                put("# {}\n", name);
                for (const auto& [time, bytes] : row.memory)
                    put_memory(time, bytes);
                put_memory(timeline.length, row.memory.back().second);
                put("\n\n");
                names_.parts.push_back(fmt::format("memory of device {}{}", row.device,
                                                   picture_.timelines.size() > 1 ? ", " + timeline.title : ""));
                lines +=
                    fmt::format("{} index '{}' using 1:2 with steps lw {} dt {} lc rgb '{}', \\\n     ", kGnuplotData,
                                name, timeline.rows.size() > 8 ? "1.0" : "1.6", timeline.dashed ? "(7,4)" : "solid",
                                hex(curve_colour(row.device, static_cast<int>(timeline.rows.size()))));
            }
        }
        lines.resize(lines.rfind(','));
        add("plot {}\n", lines);
    }

    void put_memory(Ns time, Bytes bytes) {
        put("{:.6f} {:.6f}\n", in_unit(time), static_cast<double>(bytes) / picture_.bytes.size);
    }

    void add_stroke(double x, double y, Colour colour, bool dashed) {
        add("set arrow from screen {0:.5f},{1:.5f} to screen {2:.5f},{1:.5f} nohead {4} lw 2 lc rgb '{3}'\n", x_of(x),
            y_of(y), x_of(x + 22), hex(colour), dashed ? "lt 2 dt (7,4)" : "lt 1");
    }

    void add_memory_legend(double y) {
        double x = layout_.left;
        add_label(x, y, "Memory", fmt::format("{},12", gnuplot_bold(file_)));
        x += 70;
        std::size_t widest = 0;
        for (std::size_t i = 0; i < picture_.timelines.size(); ++i)
            if (picture_.timelines[i].rows.size() > picture_.timelines[widest].rows.size())
                widest = i;
        const int devices = static_cast<int>(picture_.timelines[widest].rows.size());
        const int every = (devices + 15) / 16;
        for (int device = 0; device < devices; device += every) {
            const std::string name = fmt::format("{}{}", device == 0 ? "device " : "", device);
            add_stroke(x, y, curve_colour(device, devices), false);
            add_label(x + 27, y, name, "sans-serif,11");
            x += 27 + text_width(name, 11) + 14;
        }
        if (picture_.timelines.size() < 2)
            return;
        x += 16;
        for (const Timeline& timeline : picture_.timelines) {
            add_stroke(x, y, 0x57606a, timeline.dashed);
            add_label(x + 27, y, timeline.name, "sans-serif,11");
            x += 27 + text_width(timeline.name, 11) + 14;
        }
    }

    static constexpr Colour kHatch = 0x2f6db5, kLaneBed = 0xf1f3f5, kWhite = 0xffffff;
    static constexpr double kThin = 2;  // pixels

    const Picture& picture_;
    const std::string& file_;
    const TimelineLayout layout_;
    const double screen_;  // height
    // Rows of data: tasks above transfers, operation, chunk; colour and font size of texts.
    std::map<std::tuple<bool, Op, int>, std::string> blocks_;
    std::map<std::pair<Colour, int>, std::string> texts_;
    int chunks_ = 1, font_ = 10;
    Ns median_ = 0;
    std::string thin_;  // rows of data
    std::string script_, data_;
    PictureNames names_;
};

}  // namespace

void timeline_by_gnuplot(const std::vector<Panel>& panels, const std::string& file) {
    const Picture picture = picture_of(panels);
    TimelineScript(picture, file).draw();
}

}  // namespace pw

// Ranges of NVTX as Nsight Systems exports them: nsys stats --report nvtx_gpu_proj_trace --format csv, whose times are
// the GPU's, or nvtx_pushpop_trace, whose times are the host's. A row is a range with name, process and thread. Columns
// have their unit in brackets, as in "Start (ns)", which --timeunit decides. The domain of a name precedes a colon:
// ":fwd_mb3_stage1" for the default domain. Lines before the names of the columns are nsys's own messages. Each
// process of each file is a device.
#include "schedules/import/log_lines.h"
#include "schedules/import/named_ranges.h"
#include "schedules/import/trace_form.h"
#include "schedules/trace/trace_events.h"
#include "workloads/text/files.h"
#include "workloads/text/gzip.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

namespace pw {

namespace {

constexpr const char* kRangeRows = "rows of NVTX ranges with names such as fwd_mb3_stage1 (Nsight Systems)";
constexpr const char* kNsightHelp =
    "export the ranges of tasks: nsys stats --report nvtx_gpu_proj_trace --format csv FILE.nsys-rep, or "
    "nvtx_pushpop_trace where the GPU was not recorded";

struct TimeUnit {
    std::string_view name;
    double nanoseconds;
};
constexpr TimeUnit kTimeUnits[] = {{"ns", 1},   {"nsec", 1},   {"us", 1e3}, {"usec", 1e3},
                                   {"ms", 1e6}, {"msec", 1e6}, {"s", 1e9},  {"sec", 1e9}};

// Returns the cells of a row. A cell may be in quotes, where two quotes are one.
std::vector<std::string> cells_of(std::string_view row) {
    std::vector<std::string> cells(1);
    bool quoted = false;
    for (std::size_t at = 0; at < row.size(); ++at) {
        if (row[at] == '"' && quoted && row.substr(at + 1).starts_with('"'))
            cells.back() += row[++at];
        else if (row[at] == '"')
            quoted = !quoted;
        else if (row[at] == ',' && !quoted)
            cells.emplace_back();
        else if (row[at] != '\r')
            cells.back() += row[at];
    }
    return cells;
}

// A column of times, in nanoseconds per unit.
struct TimeColumn {
    std::size_t number;
    double unit;
};

// The columns of a table of ranges.
struct RangeColumns {
    std::optional<TimeColumn> start, end, duration;
    std::optional<std::size_t> name, process, thread;
    bool projected = false;  // onto the GPU

    bool are_of_ranges() const { return name && start && (end || duration); }
};

// Takes a column of times: "Projected Start (ns)".
void take_time(std::string_view cell, std::size_t number, RangeColumns& columns) {
    const std::size_t bracket = cell.find('(');
    if (bracket == cell.npos || !cell.ends_with(')'))
        return;
    const std::string_view unit = cell.substr(bracket + 1, cell.size() - bracket - 2);
    const auto row = std::find_if(std::begin(kTimeUnits), std::end(kTimeUnits),
                                  [&](const TimeUnit& known) { return known.name == unit; });
    std::string_view name = cell.substr(0, bracket);
    name.remove_suffix(name.ends_with(' ') ? 1 : 0);
    if (row == std::end(kTimeUnits))
        return;
    const TimeColumn column{number, row->nanoseconds};
    constexpr std::string_view kProjected = "Projected ";
    const bool projected = name.starts_with(kProjected);
    if (columns.projected && !projected)
        return;
    if (projected && !columns.projected)  // columns before it are the host's
        columns.start = columns.end = columns.duration = std::nullopt;
    columns.projected = projected;
    name.remove_prefix(projected ? kProjected.size() : 0);
    if (name == "Start")
        columns.start = column;
    else if (name == "End")
        columns.end = column;
    else if (name == "Duration")
        columns.duration = column;
}

RangeColumns columns_in(std::string_view line) {
    RangeColumns columns;
    const std::vector<std::string> cells = cells_of(line);
    for (std::size_t k = 0; k < cells.size(); ++k) {
        if (cells[k] == "Name" || cells[k] == "Range")
            columns.name = k;
        else if (cells[k] == "PID" || cells[k] == "Pid")
            columns.process = k;
        else if (cells[k] == "TID" || cells[k] == "Tid")
            columns.thread = k;
        else
            take_time(cells[k], k, columns);
    }
    return columns;
}

bool begins_as_ranges(std::string_view beginning) {
    constexpr int kMostLines = 20;
    for (int line = 0; line < kMostLines && !beginning.empty(); ++line) {
        const std::size_t end = std::min(beginning.find('\n'), beginning.size());
        if (columns_in(beginning.substr(0, end)).are_of_ranges())
            return true;
        beginning.remove_prefix(std::min(end + 1, beginning.size()));
    }
    return false;
}

class RangeTable {
public:
    RangeTable(const std::vector<std::string>& paths, std::size_t file, TaskNames& names)
        : path_(paths[file]), file_(file), names_(names) {}

    // Returns whether the times are the GPU's.
    bool read(std::vector<NamedRange>& ranges) {
        const std::string text = read_text(path_, kNsightHelp, kMostTrace);
        const std::size_t before = ranges.size();
        for_each_line(path_, text, kNsightHelp, [&](const LogLine& line) {
            if (!columns_.are_of_ranges())
                columns_ = columns_in(line.text);
            else if (!line.words().empty())
                read_row(line, ranges);
        });
        if (!columns_.are_of_ranges())
            fail("trace '{}': it has no table of ranges, whose first row has Name, Start and Duration\n  help: {}",
                 path_, kNsightHelp);
        if (ranges.size() == before)
            names_.require_use(path_);
        if (ranges.size() == before)
            fail("trace '{}': none of its ranges is a task of a pipeline: {}; {}\n  help: {}", path_, kRangeRows,
                 seen_.empty() ? "it has no ranges" : fmt::format("it has ranges '{}'", fmt::join(seen_, "', '")),
                 kNsightHelp);
        return columns_.projected;
    }

private:
    void read_row(const LogLine& line, std::vector<NamedRange>& ranges) {
        const std::vector<std::string> cells = cells_of(line.text);
        if (cells.size() <= *columns_.name)
            line.reject("expected {} cells or more, got {}", *columns_.name + 1, cells.size());
        const NamedTask task = task_in(cells[*columns_.name]);
        if (!task.is_task())
            return;
        const Ns start = time_in(line, cells, *columns_.start);
        const Ns end =
            columns_.end ? time_in(line, cells, *columns_.end) : start + time_in(line, cells, *columns_.duration);
        if (end < start || end > kMaxTime)
            line.reject("the range ends before it begins, or later than {} ns", kMaxTime);
        ranges.push_back({file_, number_as_text(file_) + cell_or_none(cells, columns_.process),
                          cell_or_none(cells, columns_.thread), task, start, end});
    }

    NamedTask task_in(std::string_view name) {
        if (name.starts_with(':'))
            name.remove_prefix(1);
        if (const NamedTask task = names_.task_in(name); task.is_task())
            return task;
        constexpr std::size_t kMostNames = 3;
        if (seen_.size() < kMostNames && std::find(seen_.begin(), seen_.end(), name) == seen_.end())
            seen_.push_back(shortened(std::string(name), 60));
        const std::size_t domain = name.find(':');
        return domain == name.npos ? NamedTask{} : names_.task_in(name.substr(domain + 1));
    }

    static Ns time_in(const LogLine& line, const std::vector<std::string>& cells, TimeColumn column) {
        const std::string none, &cell = column.number < cells.size() ? cells[column.number] : none;
        const double time = number_in_log(cell) * column.unit;
        if (time < 0 || time > static_cast<double>(kMaxTime) / 4)
            line.reject("expected a time, got '{}'", shortened(cell, 40));
        std::int64_t whole = 0;
        if (std::from_chars(cell.data(), cell.data() + cell.size(), whole).ptr == cell.data() + cell.size())
            return whole * std::llround(column.unit);  // a double has 53 bits
        return std::llround(time);
    }

    static std::string cell_or_none(const std::vector<std::string>& cells, std::optional<std::size_t> column) {
        if (!column || *column >= cells.size())
            return "";
        const double number = number_in_log(cells[*column]);
        constexpr double kMostNumber = 1e15;
        return number >= 0 && number < kMostNumber ? number_as_text(static_cast<std::uint64_t>(number))
                                                   : cells[*column];
    }

    const std::string& path_;
    const std::size_t file_;
    TaskNames& names_;
    RangeColumns columns_;
    std::vector<std::string> seen_;  // names that are no tasks
};

Trace read_nsight(const std::vector<std::string>& paths, TaskNames& names, std::vector<std::string>& notes) {
    std::vector<NamedRange> ranges;
    bool on_gpu = true;
    for (std::size_t file = 0; file < paths.size(); ++file)
        on_gpu = RangeTable(paths, file, names).read(ranges) && on_gpu;
    if (!on_gpu)
        notes.push_back(
            "times are the host's, which does not wait for its GPU: nsys stats --report nvtx_gpu_proj_trace exports "
            "the "
            "times of the GPU");
    return trace_of_ranges(paths, std::move(ranges), notes);
}

}  // namespace

extern const TraceForm kNsight{.tasks = kRangeRows,
                               .of_one_rank = true,
                               .names_tasks = true,
                               .is_task = nullptr,
                               .is_file = begins_as_ranges,
                               .read = read_nsight};

}  // namespace pw

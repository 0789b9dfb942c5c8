// The database of Nsight Systems: nsys export --type sqlite. NVTX_EVENTS has the ranges of the host, with a text or its
// number in StringIds. A task on the GPU lasts from the first to the last kernel that its process has launched within
// the range, by CUPTI_ACTIVITY_KIND_RUNTIME and its correlationId. Kernels of NCCL do not count. Backwards launch from
// threads of their own, so all threads of a process count. If a task of the process launches nothing, all of its times
// are the host's. TARGET_INFO_SESSION_START_TIME sets the clocks of several files, and TARGET_INFO_SYSTEM_ENV names the
// host.
#include "schedules/import/named_ranges.h"
#include "schedules/import/trace_form.h"
#include "schedules/trace/trace_events.h"
#include "workloads/error.h"
#include "workloads/text/printable.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace pw {

namespace {

constexpr const char* kDatabaseTasks = "ranges of NVTX with names such as fwd_mb3_stage1 (database of Nsight Systems)";
constexpr const char* kDatabaseHelp =
    "export the recording anew: nsys export --type sqlite FILE.nsys-rep, or as a table with nsys stats --report "
    "nvtx_pushpop_trace --format csv FILE.nsys-rep";
constexpr std::int64_t kIdsOfProcess = std::int64_t{1} << 24;  // a globalTid is a process times this, and a thread

bool begins_as_database(std::string_view beginning) { return beginning.starts_with("SQLite format 3"); }

class Database {
public:
    explicit Database(const std::string& path) : path_(path) {
        sqlite3* opened = nullptr;
        const int result = sqlite3_open_v2(path.c_str(), &opened, SQLITE_OPEN_READONLY, nullptr);
        database_.reset(opened);
        if (result != SQLITE_OK)
            reject();
        sqlite3_db_config(opened, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    }

    bool has_column(const char* table, const char* column) const {
        bool found = false;
        each(fmt::format("SELECT 1 FROM pragma_table_info('{}') WHERE name = '{}'", table, column),
             [&](sqlite3_stmt*) { found = true; });
        return found;
    }

    // Calls `take` with each row of a query.
    template <class Take>
    void each(const std::string& sql, Take take) const {
        sqlite3_stmt* prepared = nullptr;
        if (sqlite3_prepare_v2(database_.get(), sql.c_str(), -1, &prepared, nullptr) != SQLITE_OK)
            reject();
        const std::unique_ptr<sqlite3_stmt, decltype(&sqlite3_finalize)> query(prepared, sqlite3_finalize);
        int result = sqlite3_step(prepared);
        for (; result == SQLITE_ROW; result = sqlite3_step(prepared))
            take(prepared);
        if (result != SQLITE_DONE)
            reject();
    }

private:
    [[noreturn]] void reject() const {
        fail("trace '{}': not a database of Nsight Systems: {}\n  help: {}", path_,
             shortened(sqlite3_errmsg(database_.get()), 200), kDatabaseHelp);
    }

    const std::string& path_;
    std::unique_ptr<sqlite3, decltype(&sqlite3_close)> database_{nullptr, sqlite3_close};
};

struct Kernel {
    Ns launched;  // on the host
    Ns start, end;
};

std::string_view text_in(sqlite3_stmt* row, int column) {
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(row, column));
    return text == nullptr ? std::string_view() : std::string_view(text);
}

class DatabaseReader {
public:
    DatabaseReader(const std::vector<std::string>& paths, std::size_t file, TaskNames& names)
        : path_(paths[file]), file_(file), names_(names), database_(paths[file]) {}

    // Returns whether all times are the GPU's.
    bool read(std::vector<NamedRange>& ranges) {
        read_ranges();
        if (by_process_.empty()) {
            names_.require_use(path_);
            fail("trace '{}': none of its ranges is a task of a pipeline: {}; {}\n  help: {}", path_, kDatabaseTasks,
                 seen_.empty() ? "it has no ranges" : fmt::format("it has ranges '{}'", fmt::join(seen_, "', '")),
                 kDatabaseHelp);
        }
        read_kernels();
        const Ns begin = begin_of_session();
        const std::string host = host_of_session();
        bool on_gpu = true;
        for (auto& [process, found] : by_process_) {
            on_gpu = project(kernels_[process], found) && on_gpu;
            for (NamedRange& range : found) {
                range.start += begin;
                range.end += begin;
                range.host = host;
                ranges.push_back(std::move(range));
            }
        }
        return on_gpu;
    }

private:
    Ns time_in(sqlite3_stmt* row, int column) const {
        const Ns time = sqlite3_column_int64(row, column);
        if (time < 0 || time > kMaxTime / 2)
            fail("trace '{}': a time of {} ns is not between 0 and {}\n  help: {}", path_, time, kMaxTime / 2,
                 kDatabaseHelp);
        return time;
    }

    void read_ranges() {
        if (!database_.has_column("NVTX_EVENTS", "globalTid"))
            fail(
                "trace '{}': the database has no table NVTX_EVENTS: no range of NVTX was recorded\n  help: record with "
                "nsys profile --trace=cuda,nvtx, and name the tasks with ranges, as in nvtx.push_range('fwd mb 3')",
                path_);
        const bool by_number = database_.has_column("NVTX_EVENTS", "textId") && database_.has_column("StringIds", "id");
        database_.each(by_number ? "SELECT e.start, e.end, coalesce(e.text, s.value), e.globalTid FROM NVTX_EVENTS e "
                                   "LEFT JOIN StringIds s ON e.textId = s.id WHERE e.end IS NOT NULL"
                                 : "SELECT start, end, text, globalTid FROM NVTX_EVENTS WHERE end IS NOT NULL",
                       [this](sqlite3_stmt* row) { take_range(row); });
    }

    void take_range(sqlite3_stmt* row) {
        constexpr std::size_t kMostNames = 3;
        const std::string_view name = text_in(row, 2);
        const NamedTask task = names_.task_in(name);
        if (!task.is_task()) {
            if (seen_.size() < kMostNames)
                seen_.push_back(shortened(name, 60));
            return;
        }
        const Ns start = time_in(row, 0), end = time_in(row, 1);
        if (end < start)
            fail("trace '{}': the range '{}' ends before it begins\n  help: {}", path_, shortened(name, 60),
                 kDatabaseHelp);
        const auto thread = static_cast<std::uint64_t>(sqlite3_column_int64(row, 3));
        const std::uint64_t process = thread / kIdsOfProcess;
        by_process_[process].push_back({file_, number_as_text(file_) + number_as_text(process),
                                        number_as_text(thread % kIdsOfProcess), task, start, end});
    }

    void read_kernels() {
        if (!database_.has_column("CUPTI_ACTIVITY_KIND_KERNEL", "correlationId") ||
            !database_.has_column("CUPTI_ACTIVITY_KIND_RUNTIME", "correlationId"))
            return;
        const std::string query = fmt::format(
            "SELECT r.start, k.start, k.end, s.value, r.globalTid FROM CUPTI_ACTIVITY_KIND_KERNEL k "
            "JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId "
            "AND r.globalTid / {0} = k.globalPid / {0} LEFT JOIN StringIds s ON s.id = k.demangledName",
            kIdsOfProcess);
        database_.each(query, [this](sqlite3_stmt* row) {
            if (text_in(row, 3).starts_with("nccl"))
                return;
            const auto process = static_cast<std::uint64_t>(sqlite3_column_int64(row, 4)) / kIdsOfProcess;
            kernels_[process].push_back({time_in(row, 0), time_in(row, 1), time_in(row, 2)});
        });
        for (auto& [process, kernels] : kernels_)
            std::sort(kernels.begin(), kernels.end(),
                      [](const Kernel& a, const Kernel& b) { return a.launched < b.launched; });
    }

    // Sets the ranges of a process to the times of their kernels. Returns whether all of them have kernels.
    static bool project(const std::vector<Kernel>& kernels, std::vector<NamedRange>& ranges) {
        std::vector<std::pair<Ns, Ns>> times;
        for (const NamedRange& range : ranges) {
            auto next = std::lower_bound(kernels.begin(), kernels.end(), range.start,
                                         [](const Kernel& kernel, Ns time) { return kernel.launched < time; });
            Ns start = kMaxTime, end = -1;
            for (; next != kernels.end() && next->launched <= range.end; ++next) {
                start = std::min(start, next->start);
                end = std::max(end, next->end);
            }
            if (end < start)
                return false;
            times.emplace_back(start, end);
        }
        for (std::size_t k = 0; k < ranges.size(); ++k)
            std::tie(ranges[k].start, ranges[k].end) = times[k];
        return true;
    }

    Ns begin_of_session() const {
        Ns begin = 0;
        if (database_.has_column("TARGET_INFO_SESSION_START_TIME", "utcEpochNs"))
            database_.each("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME LIMIT 1",
                           [&](sqlite3_stmt* row) { begin = time_in(row, 0); });
        return begin;
    }

    std::string host_of_session() const {
        std::string host;
        if (database_.has_column("TARGET_INFO_SYSTEM_ENV", "name") &&
            database_.has_column("TARGET_INFO_SYSTEM_ENV", "value"))
            database_.each("SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'Hostname' LIMIT 1",
                           [&](sqlite3_stmt* row) { host = shortened(text_in(row, 0), kMostHostName); });
        return host;
    }

    const std::string& path_;
    const std::size_t file_;
    TaskNames& names_;
    const Database database_;
    std::map<std::uint64_t, std::vector<NamedRange>> by_process_;
    std::map<std::uint64_t, std::vector<Kernel>> kernels_;  // by process, by their launch
    std::vector<std::string> seen_;                         // names that are no tasks
};

Trace read_database(const std::vector<std::string>& paths, TaskNames& names, std::vector<std::string>& notes) {
    std::vector<NamedRange> ranges;
    bool on_gpu = true;
    for (std::size_t file = 0; file < paths.size(); ++file)
        on_gpu = DatabaseReader(paths, file, names).read(ranges) && on_gpu;
    if (!on_gpu)
        notes.push_back("times are the host's: some tasks launched no kernel while they ran");
    return trace_of_ranges(paths, std::move(ranges), notes);
}

}  // namespace

extern const TraceForm kNsightDatabase{.tasks = kDatabaseTasks,
                                       .of_one_rank = true,
                                       .names_tasks = true,
                                       .is_task = nullptr,
                                       .is_file = begins_as_database,
                                       .read = read_database};

}  // namespace pw

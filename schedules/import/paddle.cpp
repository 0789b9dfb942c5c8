// Logs of PaddlePaddle's static pipelines with enable_job_schedule_profiler: workerlog.N for each device N, with a line
// for each job of a step among others:
//     I1020 09:15:07.265326 22317 standalone_executor.cc:217] Profiler Info: Job (3), type = forward,
//     micro_batch_id = 2, job_start_time = 1697793307213.760986, job_end_time = 1697793307254.006104
// in one line, with times in milliseconds by events of the GPU. A number after the type is the chunk of the model.
// Jobs of other types (lr, optimizer) are left out. Steps are not named: a job's n-th run is in step n.
#include "schedules/import/log_lines.h"
#include "schedules/import/recorded_ranks.h"
#include "schedules/import/trace_form.h"
#include "schedules/trace/trace_events.h"
#include "workloads/text/files.h"

#include <filesystem>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

namespace pw {

namespace {

constexpr const char* kPaddleHelp =
    "name the log of every device as Paddle does, as in workerlog.0, written with enable_job_schedule_profiler";
constexpr std::string_view kJob = "Profiler Info: Job (";

struct JobType {
    std::string_view name;
    Op op;
};
constexpr JobType kJobTypes[] = {{"forward", Op::Forward},
                                 {"backward", Op::Backward},
                                 {"backward_b", Op::BackwardInput},
                                 {"backward_w", Op::BackwardWeight}};

bool begins_as_paddle(std::string_view text) { return text.find(kJob) != text.npos; }

// Returns the word after "name = ", without a comma at its end.
std::string_view value_of(std::string_view line, std::string_view name) {
    const std::size_t at = line.find(name);
    if (at == line.npos || !line.substr(at + name.size()).starts_with(" = "))
        return {};
    const std::string_view rest = line.substr(at + name.size() + 3);
    return rest.substr(0, std::min(rest.find_first_of(", \r"), rest.size()));
}

std::optional<int> device_of_paddle(const std::string& path) {
    const std::string suffix = std::filesystem::path(path).extension().string();
    const double number = suffix.empty() ? -1 : number_in_log(std::string_view(suffix).substr(1));
    constexpr int kMost = 65'535;
    return number >= 0 && number <= kMost ? std::optional(static_cast<int>(number)) : std::nullopt;
}

class PaddleLog {
public:
    PaddleLog(const std::string& path, int place)
        : rank_{path, device_of_paddle(path).value_or(place), {}}, place_(place) {}

    RecordedRank read() {
        const std::string text = read_text(rank_.path, kPaddleHelp, kMostTrace);
        for_each_line(rank_.path, text, kPaddleHelp, [this](const LogLine& line) {
            if (line.text.find(kJob) != line.text.npos)
                read_job(line);
        });
        if (rank_.tasks.empty())
            fail("trace '{}': none of its jobs is a forward or a backward\n  help: {}", rank_.path, kPaddleHelp);
        return std::move(rank_);
    }

private:
    void read_job(const LogLine& line) {
        std::string_view type = value_of(line.text, "type");
        const std::size_t digits = std::min(type.find_last_not_of("0123456789") + 1, type.size());
        const double chunk = digits < type.size() ? number_in_log(type.substr(digits)) : -1;
        const auto row = std::find_if(std::begin(kJobTypes), std::end(kJobTypes),
                                      [&](const JobType& known) { return known.name == type.substr(0, digits); });
        if (row == std::end(kJobTypes))
            return;
        constexpr double kMostNumber = 65'535, kMostMillis = static_cast<double>(kMaxTime) / 2e6;
        const double micro_batch = number_in_log(value_of(line.text, "micro_batch_id")),
                     start = number_in_log(value_of(line.text, "job_start_time")),
                     end = number_in_log(value_of(line.text, "job_end_time"));
        if (micro_batch < 0 || micro_batch > kMostNumber || chunk > kMostNumber || start < 0 || end < start ||
            end > kMostMillis)
            line.reject("expected a micro-batch, and a beginning and an end in milliseconds");
        rank_.tasks.push_back({Task{row->op, place_, static_cast<int>(micro_batch)}, std::llround(start * 1e6),
                               std::llround(end * 1e6), 0, static_cast<int>(chunk)});
    }

    RecordedRank rank_;
    const int place_;
};

Trace read_paddle(const std::vector<std::string>& paths, TaskNames&, std::vector<std::string>& notes) {
    std::vector<std::pair<int, std::string>> files;
    for (const std::string& path : paths)
        files.emplace_back(device_of_paddle(path).value_or(static_cast<int>(files.size())), path);
    std::stable_sort(files.begin(), files.end());
    std::vector<RecordedRank> ranks;
    for (const auto& [device, path] : files)
        ranks.push_back(PaddleLog(path, static_cast<int>(ranks.size())).read());
    complete_names(ranks, false, notes);
    return trace_of_ranks(std::move(ranks), RankClocks::Running, notes);
}

}  // namespace

extern const TraceForm kPaddle{.tasks = "lines 'Profiler Info: Job (3), type = forward, ...' (Paddle)",
                               .of_one_rank = true,
                               .names_tasks = false,
                               .is_task = nullptr,
                               .is_file = begins_as_paddle,
                               .read = read_paddle};

}  // namespace pw

// Varuna's logs of tasks: a file for each stage, varuna_logs-mBS2-stage0of4, with a line for each task:
//     fwd 0 1589289677.8322432 0.22525763511657715
// that is the operation, a number that is not used, the beginning in seconds and the duration. `start time` begins a
// step and `BATCH END` ends it. Lines of messages (recvacts, recvgrads) and of sums (SYNC!) are left out. Micro-batches
// are not named: the n-th forward of a step is of micro-batch n, and so is the n-th backward with the `rec` before it.
#include "schedules/import/log_lines.h"
#include "schedules/import/recorded_ranks.h"
#include "schedules/import/trace_form.h"
#include "schedules/trace/trace_events.h"
#include "workloads/text/files.h"
#include "workloads/text/gzip.h"

#include <filesystem>
#include <map>
#include <string_view>
#include <utility>

namespace pw {

namespace {

constexpr const char* kVarunaHelp = "name the log of every stage as Varuna does, as in varuna_logs-mBS2-stage0of4";

bool begins_as_varuna(std::string_view text) {
    return text.starts_with("start time ") && text.find("\nfwd ") != text.npos;
}

int stage_of_varuna(const std::string& path, std::size_t files) {
    const std::string name = std::filesystem::path(path).filename().string();
    for (std::size_t at = name.find("stage"); at != name.npos; at = name.find("stage", at + 1)) {
        int stage = 0, stages = 0;
        const char* const end = name.data() + name.size();
        const auto first = std::from_chars(name.data() + at + 5, end, stage);
        if (first.ec != std::errc() || std::string_view(first.ptr, end).substr(0, 2) != "of" ||
            std::from_chars(first.ptr + 2, end, stages).ec != std::errc())
            continue;
        if (stage < 0 || stage >= stages || stages != static_cast<int>(files))
            fail("trace '{}' is of stage {} of {}, and {} files are named\n  help: {}", path, stage, stages, files,
                 kVarunaHelp);
        return stage;
    }
    fail("trace '{}': its name does not say which stage it is of\n  help: {}", path, kVarunaHelp);
}

class VarunaLog {
public:
    VarunaLog(const std::string& path, std::size_t files) : rank_{path, stage_of_varuna(path, files), {}} {}

    RecordedRank read() {
        const std::string text = read_text(rank_.path, kVarunaHelp, kMostTrace);
        for_each_line(rank_.path, text, kVarunaHelp, [this](const LogLine& line) { read_line(line); });
        return std::move(rank_);
    }

private:
    void read_line(const LogLine& line) {
        if (line.text.starts_with("start time")) {  // a step that did not end is left out
            open_.clear();
            passes_.clear();
        } else if (line.text.starts_with("BATCH END")) {
            rank_.tasks.insert(rank_.tasks.end(), open_.begin(), open_.end());
            open_.clear();
            passes_.clear();
            ++step_;
        } else if (line.text.starts_with("fwd ")) {
            add(line, Op::Forward, passes_[Op::Forward]++);
        } else if (line.text.starts_with("bwd ")) {
            add(line, Op::Backward, passes_[Op::Backward]++);
        } else if (line.text.starts_with("rec ")) {
            add(line, Op::Recompute, passes_[Op::Backward]);
        }
    }

    void add(const LogLine& line, Op op, int microbatch) {
        const std::vector<std::string_view> words = line.words();
        const double start = words.size() == 4 ? number_in_log(words[2]) : -1;
        const double duration = words.size() == 4 ? number_in_log(words[3]) : -1;
        constexpr double kMost = static_cast<double>(kMaxTime) / 2e9;
        if (start < 0 || duration < 0 || start > kMost || duration > kMost)
            line.reject("expected an operation, a number, the beginning and the duration in seconds");
        const Ns begin = std::llround(start * 1e9);
        open_.push_back({Task{op, rank_.rank, microbatch}, begin, begin + std::llround(duration * 1e9), step_});
    }

    RecordedRank rank_;
    std::vector<RecordedTask> open_;  // of the step that has not ended
    std::map<Op, int> passes_;        // in it
    int step_ = 0;
};

Trace read_varuna(const std::vector<std::string>& paths, TaskNames&, std::vector<std::string>& notes) {
    std::vector<RecordedRank> ranks;
    for (const std::string& path : paths)
        ranks.push_back(VarunaLog(path, paths.size()).read());
    return trace_of_ranks(std::move(ranks), RankClocks::Running, notes);
}

}  // namespace

extern const TraceForm kVaruna{.tasks = "lines such as 'fwd 0 1589289677.832 0.225' (Varuna)",
                               .of_one_rank = true,
                               .names_tasks = false,
                               .is_task = nullptr,
                               .is_file = begins_as_varuna,
                               .read = read_varuna};

}  // namespace pw

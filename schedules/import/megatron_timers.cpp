// The timers of Megatron-LM (`--timing-log-level 2 --timing-log-option all`): sums over a step by rank, in one log:
//     times across ranks (ms):
//       forward-compute:
//          rank  0: 812.31
// A log has no times of tasks. Each takes the mean of its stage, over its ranks and micro-batches, in the order of
// Megatron's schedule and as early as the plan allows. The shape is that of the arguments at the beginning of the log.
#include "schedules/import/log_lines.h"
#include "schedules/import/recorded_ranks.h"
#include "schedules/import/trace_form.h"
#include "schedules/orders/schedule.h"
#include "schedules/passes/passes.h"
#include "schedules/trace/trace_events.h"
#include "workloads/text/files.h"
#include "workloads/text/gzip.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

namespace pw {

namespace {

constexpr const char* kMegatronHelp =
    "train with --timing-log-level 2 --timing-log-option all, and name the whole log, whose beginning lists the "
    "arguments";
constexpr std::string_view kAcrossRanks = "times across ranks (ms):", kMinMax = "(min, max) time across ranks (ms):";

bool begins_as_megatron(std::string_view text) {
    return text.find(kAcrossRanks) != text.npos || text.find("time across ranks (ms):") != text.npos ||
           text.find("\n  pipeline_model_parallel_size ...") != text.npos;
}

using TimesOfRanks = std::map<int, double>;                       // milliseconds
using Timers = std::map<std::string, TimesOfRanks, std::less<>>;  // of a step

class MegatronLog {
public:
    explicit MegatronLog(const std::string& path) : path_(path) {
        const std::string text = read_text(path, kMegatronHelp, kMostTrace);
        for_each_line(path, text, kMegatronHelp, [this](const LogLine& line) { read_line(line); });
    }

    Trace trace(std::vector<std::string>& notes) {
        if (steps_.empty())
            fail("trace '{}': {}\n  help: {}", path_,
                 has_min_max_ ? "it has the least and the most over the ranks, which do not say whose stage is slow"
                              : "it has no times across ranks",
                 kMegatronHelp);
        const Shape shape = shape_of_log();
        const auto row = std::find_if(schedules().begin(), schedules().end(), [&](const Schedule& schedule) {
            return schedule.elsewhere.megatron && (schedule.chunks > 1) == (shape.stages > shape.devices);
        });
        const ProvenPlan planned = proven_plan(*row, shape);
        std::vector<RecordedRank> ranks;
        for (int rank = 0; rank < shape.devices; ++rank)
            ranks.push_back({path_, rank, {}});
        for (std::size_t step = 0; step < steps_.size(); ++step)
            add_step(planned, static_cast<int>(step), ranks);
        notes.push_back(
            fmt::format("the log has sums over a step: tasks take the means of their stages, in the order of {} and as "
                        "early as possible; waiting is computed, not measured{}",
                        row->name, measured_step()));
        return trace_of_ranks(std::move(ranks), RankClocks::FromSteps, notes);
    }

private:
    // Launchers write the rank before each line: "[default3]:".
    static std::string_view without_prefix(std::string_view text) {
        if (text.starts_with('[') && text.find("]:") < 24)
            text.remove_prefix(text.find("]:") + 2);
        text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
        while (text.ends_with('\r') || text.ends_with(' '))
            text.remove_suffix(1);
        return text;
    }

    void read_line(LogLine line) {
        line.text = without_prefix(line.text);
        has_min_max_ = has_min_max_ || line.text.find(kMinMax) != line.text.npos;
        if (line.text.ends_with(kAcrossRanks) && !line.text.ends_with(kMinMax)) {
            steps_.emplace_back();
            timer_.clear();
        } else if (steps_.empty()) {
            read_argument(line.words());
        } else if (line.text.starts_with("rank ")) {
            read_time(line);
        } else if (line.text.ends_with(':') && line.text.find(' ') == line.text.npos) {
            timer_ = line.text.substr(0, line.text.size() - 1);
        } else {
            timer_.clear();
        }
    }

    void read_argument(const std::vector<std::string_view>& words) {
        if (words.size() == 3 && words[1].starts_with("..."))
            if (const double value = number_in_log(words[2]); value >= 0 && value <= 1e6)
                arguments_.try_emplace(std::string(words[0]), static_cast<int>(value));
    }

    void read_time(const LogLine& line) {
        const std::vector<std::string_view> words = line.words();
        const std::string_view rank = words.size() == 3 ? words[1] : std::string_view();
        const double number = rank.ends_with(':') ? number_in_log(rank.substr(0, rank.size() - 1)) : -1;
        const double time = words.size() == 3 ? number_in_log(words[2]) : -1;
        if (timer_.empty())
            return;
        if (number < 0 || number > 1e6 || time < 0 || time > 1e9)
            line.reject("expected 'rank N: milliseconds'");
        steps_.back()[timer_][static_cast<int>(number)] = time;
    }

    int argument(const char* name, int otherwise = 0) const {
        const auto found = arguments_.find(name);
        const int value = found == arguments_.end() ? otherwise : found->second;
        if (value < 1)
            fail("trace '{}': the arguments before its first times have no {}\n  help: {}", path_, name, kMegatronHelp);
        return value;
    }

    Shape shape_of_log() {
        Shape shape;
        shape.devices = argument("pipeline_model_parallel_size");
        chunks_ = argument("virtual_pipeline_model_parallel_size", 1);
        const std::int64_t stages = std::int64_t{shape.devices} * chunks_;
        const int batch = argument("global_batch_size"), replicas = argument("data_parallel_size");
        const std::int64_t per_micro_batch = std::int64_t{argument("micro_batch_size")} * replicas;
        if (batch % per_micro_batch != 0)
            fail("trace '{}': global_batch_size {} is not a multiple of micro_batch_size times data_parallel_size, {}",
                 path_, batch, per_micro_batch);
        shape.microbatches = static_cast<int>(batch / per_micro_batch);
        constexpr std::int64_t kMostForwards = 10'000'000;
        if (stages > kMostForwards / shape.microbatches)
            fail("trace '{}': {} stages with {} micro-batches have more than {} forwards", path_, stages,
                 shape.microbatches, kMostForwards);
        shape.stages = static_cast<int>(stages);
        ranks_per_stage_ = argument("world_size") / shape.devices;
        if (ranks_per_stage_ * shape.devices != argument("world_size"))
            fail("trace '{}': world_size {} is not a multiple of pipeline_model_parallel_size {}", path_,
                 argument("world_size"), shape.devices);
        return shape;
    }

    // Returns the mean over the ranks of a device, whose numbers follow each other.
    Ns time_of(std::string_view timer, int step, int device, int tasks) const {
        const auto found = steps_[static_cast<std::size_t>(step)].find(timer);
        double sum = 0;
        int count = 0;
        if (found != steps_[static_cast<std::size_t>(step)].end())
            for (auto rank = found->second.lower_bound(device * ranks_per_stage_);
                 rank != found->second.end() && rank->first < (device + 1) * ranks_per_stage_; ++rank, ++count)
                sum += rank->second;
        if (count == 0)
            fail("trace '{}': its times number {} have no {} of ranks {} to {}\n  help: {}", path_, step + 1, timer,
                 device * ranks_per_stage_, (device + 1) * ranks_per_stage_ - 1, kMegatronHelp);
        return std::llround(sum / count / tasks * 1e6);
    }

    void add_step(const ProvenPlan& planned, int step, std::vector<RecordedRank>& ranks) const {
        const PlanGraph& graph = planned.proof->graph;
        const int tasks = planned.plan.shape.microbatches * chunks_;
        std::vector<std::array<Ns, 2>> times;  // of a forward and a backward
        for (int device = 0; device < planned.plan.shape.devices; ++device)
            times.push_back(
                {time_of("forward-compute", step, device, tasks), time_of("backward-compute", step, device, tasks)});
        std::vector<Ns> ends(static_cast<std::size_t>(graph.size()), 0), free(times.size(), 0);
        for (const int node : planned.proof->order) {
            const Task& task = graph.task(node);
            const auto device = static_cast<std::size_t>(graph.device_of(node));
            Ns start = is_transfer(task.op) ? 0 : free[device];
            for (const int input : graph.inputs(node))
                start = std::max(start, ends[static_cast<std::size_t>(input)]);
            Ns& end = ends[static_cast<std::size_t>(node)];
            end = start;
            if (!is_compute(task.op))
                continue;
            end += times[device][task.op == Op::Forward ? 0 : 1];
            free[device] = end;
            ranks[device].tasks.push_back({task, start, end, step});
        }
    }

    // Returns what the log says of the whole pass, for comparison.
    std::string measured_step() const {
        const auto found = steps_.back().find("forward-backward");
        if (found == steps_.back().end())
            return "";
        double most = 0;
        for (const auto& [rank, time] : found->second)
            most = std::max(most, time);
        return fmt::format("; its last forward-backward took {}", print_time(std::llround(most * 1e6)));
    }

    const std::string& path_;
    std::map<std::string, int, std::less<>> arguments_;
    std::vector<Timers> steps_;
    std::string timer_;  // whose times follow
    bool has_min_max_ = false;
    int ranks_per_stage_ = 1, chunks_ = 1;
};

Trace read_megatron(const std::vector<std::string>& paths, TaskNames&, std::vector<std::string>& notes) {
    if (paths.size() > 1)
        fail("trace '{}' has all ranks, but {} files are named\n  help: name one log", paths.front(), paths.size());
    return MegatronLog(paths.front()).trace(notes);
}

}  // namespace

extern const TraceForm kMegatronTimers{.tasks = "'times across ranks (ms):' with forward-compute (Megatron-LM)",
                                       .of_one_rank = false,
                                       .names_tasks = false,
                                       .is_task = nullptr,
                                       .is_file = begins_as_megatron,
                                       .read = read_megatron};

}  // namespace pw

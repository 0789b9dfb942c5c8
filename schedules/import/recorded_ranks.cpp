#include "schedules/import/recorded_ranks.h"

#include "schedules/import/rank_clocks.h"
#include "schedules/trace/trace_events.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace pw {

namespace {

std::string place_of(const TraceEvent& event) { return fmt::format("{} of rank {}", print(event.task), event.rank); }

// Returns the host of each rank. Empty if a host is not known.
std::vector<std::string> hosts_of(const std::vector<RecordedRank>& ranks) {
    std::vector<std::string> hosts;
    for (const RecordedRank& rank : ranks)
        if (!rank.host.empty())
            hosts.push_back(rank.host);
    return hosts.size() == ranks.size() ? hosts : std::vector<std::string>{};
}

// Says how the tasks of a step, by rank, differ from the tasks of most steps.
std::string difference(const std::set<std::pair<int, Task>>& tasks, const std::set<std::pair<int, Task>>& usual) {
    for (const auto& [rank, task] : usual)
        if (!tasks.contains({rank, task}))
            return fmt::format("rank {} has no {} in it", rank, print(task));
    for (const auto& [rank, task] : tasks)
        if (!usual.contains({rank, task}))
            return fmt::format("rank {} has {} in it, which other steps lack", rank, print(task));
    return "";
}

class Merge {
public:
    Merge(std::vector<RecordedRank> ranks, RankClocks clocks, std::vector<std::string>& notes)
        : ranks_(std::move(ranks)), clocks_(clocks), notes_(notes) {}

    Trace trace() {
        check_ranks();
        keep_common_steps();
        for (const RecordedRank& rank : ranks_) {
            const int device = trace_.devices++;
            for (const RecordedTask& one : rank.tasks)
                trace_.events.push_back({one.step, device, rank.rank, one.task, one.start, one.end, 0, -1});
        }
        check_tasks();
        check_micro_batches();
        for (TraceEvent& event : trace_.events)
            of_one_clock_[clocks_ == RankClocks::FromSteps ? event.step : 0].push_back(&event);
        for (const auto& [step, events] : of_one_clock_)
            align(events);
        length_ = begin_at_zero();
        note_moves();
        note_ranges();
        trace_.schedule = kForeign;
        trace_.hosts = hosts_of(ranks_);
        complete_from_tasks(trace_, ranks_.front().path);
        return std::move(trace_);
    }

private:
    void check_ranks() {
        std::stable_sort(ranks_.begin(), ranks_.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
        for (std::size_t k = 1; k < ranks_.size(); ++k)
            if (ranks_[k].rank == ranks_[k - 1].rank)
                fail("traces '{}' and '{}' are both of rank {}\n  help: name one file for each rank",
                     ranks_[k - 1].path, ranks_[k].path, ranks_[k].rank);
    }

    // Every stage has all micro-batches: where the largest numbers differ, the files are of unlike runs.
    void check_micro_batches() const {
        const auto last_of = [](const RecordedRank& rank) {
            int last = 0;
            for (const RecordedTask& one : rank.tasks)
                last = std::max(last, one.task.microbatch);
            return last;
        };
        for (const RecordedRank& rank : ranks_)
            if (const int last = last_of(rank), first = last_of(ranks_.front()); last != first)
                fail(
                    "traces '{}' and '{}' are of different runs: the first has {} micro-batches, the second {}\n  "
                    "help: "
                    "name the files of one run",
                    ranks_.front().path, rank.path, first + 1, last + 1);
    }

    // Keeps the steps that have the same tasks on all ranks as most steps have.
    void keep_common_steps() {
        std::map<int, std::set<int>> ranks_of;
        std::map<int, std::set<std::pair<int, Task>>> tasks_of;  // rank, task
        for (const RecordedRank& rank : ranks_)
            for (const RecordedTask& one : rank.tasks) {
                ranks_of[one.step].insert(rank.rank);
                tasks_of[one.step].emplace(rank.rank, one.task);
            }
        std::map<std::set<std::pair<int, Task>>, int> steps_with;
        for (const auto& [step, tasks] : tasks_of)
            if (ranks_of[step].size() == ranks_.size())
                ++steps_with[tasks];
        if (steps_with.empty())
            fail(
                "traces '{}' and '{}' have no step in common: {}\n  help: name the files of one run, recorded with "
                "the same schedule of the profiler",
                ranks_.front().path, ranks_.back().path, steps_by_rank());
        const auto& usual = std::max_element(steps_with.begin(), steps_with.end(), [](const auto& a, const auto& b) {
                                return std::pair(a.second, a.first.size()) < std::pair(b.second, b.first.size());
                            })->first;
        std::vector<std::string> left_out;
        for (const auto& [step, tasks] : tasks_of) {
            if (tasks == usual)
                steps_.push_back(step);
            else if (ranks_of[step].size() < ranks_.size())
                left_out.push_back(fmt::format("step {} is left out: only rank {} has tasks in it", step,
                                               fmt::join(ranks_of[step], ", ")));
            else
                left_out.push_back(fmt::format("step {} is left out: {}", step, difference(tasks, usual)));
        }
        constexpr std::size_t kMostNotes = 3;
        if (left_out.size() > kMostNotes)
            left_out[kMostNotes - 1] =
                fmt::format("{} more steps are left out for such reasons", left_out.size() - kMostNotes + 1);
        left_out.resize(std::min(left_out.size(), kMostNotes));
        notes_.insert(notes_.end(), left_out.begin(), left_out.end());
        for (RecordedRank& rank : ranks_)
            std::erase_if(rank.tasks, [&](const RecordedTask& one) {
                return !std::binary_search(steps_.begin(), steps_.end(), one.step);
            });
    }

    std::string steps_by_rank() const {
        std::vector<std::string> parts;
        for (const RecordedRank& rank : ranks_) {
            std::set<int> steps;
            for (const RecordedTask& one : rank.tasks)
                steps.insert(one.step);
            parts.push_back(fmt::format("rank {} has {}", rank.rank, fmt::join(steps, ", ")));
        }
        return fmt::format("{}", fmt::join(parts, "; "));
    }

    void check_tasks() const {
        std::map<std::pair<int, Task>, const TraceEvent*> seen;
        std::set<int> stages;
        for (const TraceEvent& event : trace_.events) {
            const auto [other, fresh] = seen.try_emplace({event.step, event.task}, &event);
            if (!fresh && other->second->device != event.device)
                fail(
                    "traces '{}' and '{}' both have {} in step {}\n  help: name the files of one pipeline only, not "
                    "those of its replicas (data parallel) or of other ranks of a stage (tensor parallel)",
                    ranks_[static_cast<std::size_t>(other->second->device)].path,
                    ranks_[static_cast<std::size_t>(event.device)].path, print(event.task), event.step);
            stages.insert(event.task.stage);
        }
        for (int stage = 0; stage < *stages.rbegin(); ++stage)
            if (!stages.contains(stage))
                fail("trace '{}': no file has a task of stage {}\n  help: name the files of all ranks of the pipeline",
                     ranks_.front().path, stage);
    }

    void align(const std::vector<TraceEvent*>& events) {
        const ClockBounds bounds = clock_bounds(events);
        const auto moves = clock_moves(bounds, trace_.devices);
        if (!moves) {
            const auto worst = std::max_element(bounds.begin(), bounds.end(), [](const auto& a, const auto& b) {
                return a.second.least < b.second.least;
            });
            not_aligned_ = fmt::format(
                "the clocks of the ranks cannot be aligned: {} begins {} before {} ends, and a later clock of rank {} "
                "lets others begin too early; times are those of the files",
                place_of(*worst->second.read), print_time(worst->second.least), place_of(*worst->second.made),
                worst->second.read->rank);
            return;
        }
        for (TraceEvent* event : events) {
            const Ns move = (*moves)[static_cast<std::size_t>(event->device)];
            event->start += move;
            event->end += move;
            if (move > 0)
                moved_[event->rank] = std::max(moved_[event->rank], move);
        }
        widen(clock_ranges(bounds, *moves));
    }

    // Keeps the widest range of each rank over the steps whose clocks are apart.
    void widen(const std::vector<ClockRange>& ranges) {
        ranges_.resize(ranges.size());
        for (std::size_t device = 0; device < ranges.size(); ++device) {
            ranges_[device].earlier = std::max(ranges_[device].earlier, ranges[device].earlier);
            ranges_[device].later = std::max(ranges_[device].later, ranges[device].later);
        }
    }

    // Processes of the same file share its clock.
    bool has_several_clocks() const {
        return std::any_of(ranks_.begin(), ranks_.end(),
                           [&](const RecordedRank& rank) { return rank.path != ranks_.front().path; });
    }

    void note_ranges() {
        if (!not_aligned_.empty() || !has_several_clocks())
            return;
        std::vector<std::size_t> order;
        for (std::size_t device = 1; device < ranges_.size(); ++device)
            order.push_back(device);
        std::stable_sort(order.begin(), order.end(),
                         [&](std::size_t a, std::size_t b) { return ranges_[a].width() > ranges_[b].width(); });
        std::vector<std::string> parts;
        for (const std::size_t device : order)
            parts.push_back(fmt::format("rank {} {}", ranks_[device].rank, print(ranges_[device])));
        constexpr std::size_t kMost = 8;
        const std::size_t more = parts.size() - std::min(parts.size(), kMost);
        parts.resize(parts.size() - more);
        notes_.push_back(fmt::format("the order of the tasks bounds the clocks, against rank {}: {}{}",
                                     ranks_.front().rank, fmt::join(parts, ", "),
                                     more > 0 ? fmt::format(", and {} ranks surer", more) : ""));
    }

    void note_moves() {
        if (!not_aligned_.empty())
            notes_.push_back(not_aligned_);
        std::vector<std::string> parts;
        for (const auto& [rank, move] : moved_)
            parts.push_back(fmt::format("rank {} {}", rank, print_time(move)));
        constexpr std::size_t kMost = 8;
        const std::size_t more = parts.size() - std::min(parts.size(), kMost);
        parts.resize(parts.size() - more);
        const bool far = std::any_of(moved_.begin(), moved_.end(),
                                     [&](const auto& rank_and_move) { return rank_and_move.second > length_; });
        if (!parts.empty())
            notes_.push_back(fmt::format(
                "clocks differ: tasks began before other ranks had made their inputs, so these ranks are moved "
                "later{}: "
                "{}{}{}",
                clocks_ == RankClocks::FromSteps ? ", at most by" : "", fmt::join(parts, ", "),
                more > 0 ? fmt::format(", {} more", more) : "",
                far ? "; that is more than the whole recording lasts: if the files are of different runs, the waiting "
                      "means nothing"
                    : ""));
    }

    // Steps that begin at 0 follow each other without a gap. Returns the end of the last step.
    Ns begin_at_zero() {
        Ns reached = 0;
        for (const auto& [step, events] : of_one_clock_)
            reached = move_to(reached, events);
        for (TraceEvent& event : trace_.events)
            event.step -= steps_.front();
        return reached;
    }

    // Moves events so that the first begins at `begin`. Returns the end of the last.
    static Ns move_to(Ns begin, const std::vector<TraceEvent*>& events) {
        Ns first = kMaxTime, last = begin;
        for (const TraceEvent* event : events)
            first = std::min(first, event->start);
        for (TraceEvent* event : events) {
            event->start += begin - first;
            event->end += begin - first;
            last = std::max(last, event->end);
        }
        return last;
    }

    std::vector<RecordedRank> ranks_;
    const RankClocks clocks_;
    std::vector<std::string>& notes_;
    Trace trace_;
    std::map<int, std::vector<TraceEvent*>> of_one_clock_;  // of each step, or of all of them, by clocks_
    std::vector<int> steps_;                                // that all ranks have
    std::map<int, Ns> moved_;                               // rank -> the most
    std::vector<ClockRange> ranges_;                        // by device, against device 0
    Ns length_ = 0;                                         // of the trace
    std::string not_aligned_;
};

}  // namespace

Trace trace_of_ranks(std::vector<RecordedRank> ranks, RankClocks clocks, std::vector<std::string>& notes) {
    return Merge(std::move(ranks), clocks, notes).trace();
}

}  // namespace pw

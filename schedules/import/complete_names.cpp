// What names of tasks leave out: stages where they have chunks of the model, micro-batches, and steps.
#include "schedules/import/recorded_ranks.h"
#include "workloads/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <utility>

namespace pw {

namespace {

constexpr const char* kNameThem = "give each task a name with its micro-batch and stage, as in 'fwd mb 3 stage 1'";

template <class Do>
void for_each_task(std::vector<RecordedRank>& ranks, Do act) {
    for (RecordedRank& rank : ranks)
        for (RecordedTask& task : rank.tasks)
            act(rank, task);
}

// Chunk c of D places is stage c * D + place where the places take turns, and (c + 1) * D - 1 - place for odd c where
// they form a V. The place that begins first with chunk 1 decides.
class StagesOfChunks {
public:
    explicit StagesOfChunks(std::vector<RecordedRank>& ranks) : ranks_(ranks) {}

    void set() {
        for_each_task(ranks_, [&](const RecordedRank& rank, const RecordedTask& task) { see(rank, task); });
        if (chunks_.size() < 2 || several_.empty())
            return;
        if (!unnamed_.empty())
            fail("trace '{}': some names of tasks have a chunk, and others have none\n  help: {}", unnamed_, kNameThem);
        const int places = static_cast<int>(places_.size());
        const int first = number_of(first_of_chunk_1_);
        if (first != 0 && first != places - 1)
            fail(
                "trace '{}': the stages of its chunks are not known: chunk 1 begins on rank {} of {}, neither on the "
                "first (interleaved) nor on the last (a V)\n  help: {}",
                ranks_.front().path, first, places, kNameThem);
        for_each_task(ranks_, [&](const RecordedRank&, RecordedTask& task) {
            const int place = number_of(task.task.stage);
            const bool back = first != 0 && task.chunk % 2 == 1;
            task.task.stage = task.chunk * places + (back ? places - 1 - place : place);
        });
    }

private:
    void see(const RecordedRank& rank, const RecordedTask& task) {
        places_.insert(task.task.stage);
        if (task.chunk < 0) {
            unnamed_ = rank.path;
            return;
        }
        chunks_.insert(task.chunk);
        const auto [known, fresh] = chunk_of_.try_emplace(task.task.stage, task.chunk);
        if (!fresh && known->second != task.chunk)
            several_.insert(task.task.stage);
        if (task.chunk == 1 && task.task.op == Op::Forward && task.start < earliest_) {
            earliest_ = task.start;
            first_of_chunk_1_ = task.task.stage;
        }
    }

    int number_of(int place) const { return static_cast<int>(std::distance(places_.begin(), places_.find(place))); }

    std::vector<RecordedRank>& ranks_;
    std::set<int> places_, chunks_, several_;  // several_: places with several chunks
    std::map<int, int> chunk_of_;
    std::string unnamed_;  // a file with a task without a chunk
    Ns earliest_ = std::numeric_limits<Ns>::max();
    int first_of_chunk_1_ = 0;
};

void sort_by_start(std::vector<RecordedTask>& tasks) {
    std::stable_sort(tasks.begin(), tasks.end(),
                     [](const RecordedTask& a, const RecordedTask& b) { return a.start < b.start; });
}

// Two names of the same task, one inside the other, would be two runs of the task.
void refuse_overlaps(const RecordedRank& rank) {
    std::map<Task, Ns> ends;
    for (const RecordedTask& one : rank.tasks) {
        Ns& end = ends[one.task];
        if (one.start < end)
            fail("trace '{}': {} of stage {}{} begins before {} has ended\n  help: name each task once: {}", rank.path,
                 letters_of(one.task.op), one.task.stage,
                 one.task.microbatch == kNotNamed ? "" : fmt::format(" for micro-batch {}", one.task.microbatch),
                 one.task.microbatch == kNotNamed ? "another one" : "another run of it", kNameThem);
        end = std::max(end, one.end);
    }
}

// Counts micro-batches of each stage, by step where steps are known.
void count_micro_batches(RecordedRank& rank) {
    std::map<std::pair<int, int>, std::map<Op, int>> runs;  // stage and step
    for (RecordedTask& one : rank.tasks) {
        std::map<Op, int>& counted = runs[{one.task.stage, one.step}];
        const Op op = one.task.op;
        const bool of_inputs = op == Op::BackwardInput || op == Op::Backward;
        const int number = op == Op::Recompute ? counted[Op::Backward] : counted[of_inputs ? Op::Backward : op]++;
        if (one.task.microbatch == kNotNamed)
            one.task.microbatch = number;
    }
}

// Steps of counted micro-batches: a step ends after as many forwards as all stages have then run backwards.
class CountedSteps {
public:
    explicit CountedSteps(std::vector<RecordedRank>& ranks) : ranks_(ranks) {}

    void set() {
        std::map<int, std::set<int>> balanced;  // stage -> forwards after which it has run as many backwards
        for (const RecordedRank& rank : ranks_)
            see(rank, balanced);
        std::set<int> ends = balanced.begin()->second;
        for (const auto& of_stage : balanced)
            std::erase_if(ends, [&](int count) { return !of_stage.second.contains(count); });
        for_each_task(ranks_, [&](const RecordedRank&, RecordedTask& one) {
            const auto next = ends.upper_bound(one.task.microbatch);
            one.step = static_cast<int>(std::distance(ends.begin(), next));
            one.task.microbatch -= next == ends.begin() ? 0 : *std::prev(next);
        });
    }

private:
    static void see(const RecordedRank& rank, std::map<int, std::set<int>>& balanced) {
        std::map<int, std::pair<int, int>> passes;  // stage -> forwards, backwards
        for (const RecordedTask& one : rank.tasks) {
            auto& [forwards, backwards] = passes[one.task.stage];
            forwards += one.task.op == Op::Forward ? 1 : 0;
            backwards += makes_input_gradient(one.task.op) ? 1 : 0;
            std::set<int>& counts = balanced[one.task.stage];
            if (forwards == backwards)
                counts.insert(forwards);
        }
    }

    std::vector<RecordedRank>& ranks_;
};

void number_steps_by_runs(RecordedRank& rank) {
    std::map<Task, int> runs;
    for (RecordedTask& one : rank.tasks)
        one.step = runs[one.task]++;
}

}  // namespace

void complete_names(std::vector<RecordedRank>& ranks, bool has_steps, std::vector<std::string>& notes) {
    StagesOfChunks(ranks).set();
    bool counts = false, goes_back = false;
    for_each_task(ranks, [&](const RecordedRank&, const RecordedTask& one) {
        counts = counts || one.task.microbatch == kNotNamed;
        goes_back = goes_back || is_backward(one.task.op);
    });
    if (counts && !goes_back)
        fail(
            "trace '{}': names of its tasks have no number of the micro-batch, and there are no backwards to count "
            "them by\n  help: {}",
            ranks.front().path, kNameThem);
    for (RecordedRank& rank : ranks) {
        sort_by_start(rank.tasks);
        refuse_overlaps(rank);
        if (counts)
            count_micro_batches(rank);
        else if (!has_steps)
            number_steps_by_runs(rank);
    }
    if (!counts)
        return;
    if (!has_steps)
        CountedSteps(ranks).set();
    notes.push_back(fmt::format(
        "names have no number of the micro-batch: the n-th forward of a stage in a step is taken for that of "
        "micro-batch n, and so is the n-th backward{}",
        has_steps ? ""
                  : "; no steps are recorded, so a step ends where all stages have run as many backwards as forwards"));
}

}  // namespace pw

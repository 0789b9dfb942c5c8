#include "search/plans/batches.h"

#include "workloads/threads.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <new>

namespace pw {

namespace {

// The size of a batch is fixed, so that the results that a batch uses do not depend on the number of threads.
constexpr std::size_t kBatch = 8;

}  // namespace

Batches::Batches(SearchedChoices& choices, const MakespanLimits& limits, const SearchProgress& progress)
    : choices_(choices),
      limits_(limits),
      progress_(progress),
      deadline_(limits.seconds, 1, limits.should_stop),
      hurried_(limits.seconds < std::numeric_limits<double>::infinity()) {}

void Batches::show(const std::string& doing, std::size_t done, std::size_t all) const {
    if (!progress_)
        return;
    const Ns best = choices_.best();
    const std::string found = best == kNeverFits ? "nothing fits yet" : "best " + print_time(best);
    progress_(fmt::format("{} {}/{}: {}, {} plans simulated", doing, done, all, found, choices_.candidates()));
}

// Returns false if there was not enough memory, or time for the choice's plan.
bool Batches::attempt(SearchedChoice& choice, Ns limit, const Work& work) {
    Trial& trial = *choice.trial;
    Deadline deadline = deadline_;
    deadline.leave(std::max(trial.step_lasts(), step_lasts_));
    bool enough = true;
    try {
        work(choice, limit, deadline);
        if (hurried_ && trial.is_open() && !deadline.passed())
            trial.finish();
    } catch (const TimeIsUp&) {
        enough = !trial.is_too_long();
    } catch (const std::bad_alloc&) {
        enough = false;
    }
    trial.close();
    if (deadline.passed())
        time_is_up_ = true;
    return enough;
}

// A choice that ran out of memory in parallel with others is tried again alone.
void Batches::run(const std::string& doing, const std::vector<std::size_t>& order, const Work& work) {
    for (std::size_t begin = 0; begin < order.size() && !deadline_.passed(); begin += kBatch) {
        const std::size_t end = std::min(begin + kBatch, order.size());
        const Ns limit = choices_.best();
        std::vector<SearchedChoice*> batch;
        for (std::size_t i = begin; i < end; ++i)
            if (SearchedChoice& choice = choices_[order[i]]; !choice.left_out)
                batch.push_back(&choice);
        for_each_index(batch.size(), limits_.threads,
                       [&](std::size_t i) { batch[i]->left_out = !attempt(*batch[i], limit, work); });
        if (limits_.threads > 1)
            for (SearchedChoice* choice : batch)
                choice->left_out = choice->left_out && !attempt(*choice, limit, work);
        for (const SearchedChoice* choice : batch)
            if (choice->trial->has_plan())  // else the time would be up before the first one
                step_lasts_ = std::max(step_lasts_, choice->trial->step_lasts());
        show(doing, end, order.size());
    }
}

}  // namespace pw

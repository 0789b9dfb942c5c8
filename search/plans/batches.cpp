#include "search/plans/batches.h"

#include "search/plans/search_result.h"
#include "workloads/interruption.h"
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

Batches::Batches(SearchedChoices& choices, const std::vector<Family>& families, const PlanLimits& limits,
                 const SearchProgress& progress)
    : choices_(choices),
      families_(families),
      limits_(limits),
      progress_(progress),
      deadline_(limits.seconds, 1, limits.should_stop),
      hurried_(limits.seconds < std::numeric_limits<double>::infinity()) {}

// Between batches.
void Batches::look_at_all() {
    constexpr std::chrono::milliseconds kBetweenLooks{500};  // a look at all bounds may take long
    shown_.best = choices_.best();
    shown_.candidates = choices_.candidates();
    const auto now = std::chrono::steady_clock::now();
    if (now - looked_ < kBetweenLooks)
        return;
    shown_.bound = lower_bound_of(choices_, families_);
    looked_ = now;
}

void Batches::show() const {
    std::string found = "nothing fits yet";
    if (shown_.best < kNeverFits)
        found = fmt::format("best {}, gap {:.1f} %", print_time(shown_.best),
                            100 * gap_of(shown_.best, std::min(shown_.bound, shown_.best)));
    progress_(fmt::format("{} {}/{}: {}, {} plan{} simulated", shown_.doing, shown_.done, shown_.all, found,
                          shown_.candidates, shown_.candidates == 1 ? "" : "s"));
}

// Returns false if there was not enough memory, or time for the choice's plan.
bool Batches::attempt(SearchedChoice& choice, Ns limit, const Work& work) {
    Trial& trial = *choice.trial;
    Deadline deadline = deadline_;
    deadline.leave(std::max(trial.step_lasts(), step_lasts_));
    const Interruption interruption([&] {  // the first plan is completed, however little time there is
        if (limit < kNeverFits ? deadline.is_over() : limits_.should_stop && limits_.should_stop())
            throw TimeIsUp{};
    });
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

// The trial is this thread's: its plan counts at once.
bool Batches::attempt_shown(SearchedChoice& choice, Ns limit, const Work& work) {
    const std::int64_t before = choice.trial->candidates();
    const bool enough = attempt(choice, limit, work);
    if (!progress_)
        return enough;
    const std::scoped_lock lock(mutex_);
    ++shown_.done;
    shown_.candidates += choice.trial->candidates() - before;
    if (choice.trial->fits())
        shown_.best = std::min(shown_.best, choice.trial->step_time());
    show();
    return enough;
}

// A choice that ran out of memory in parallel with other choices is tried again alone.
void Batches::run(const std::string& doing, const std::vector<std::size_t>& order, const Work& work) {
    for (std::size_t begin = 0; begin < order.size() && !deadline_.passed(); begin += kBatch) {
        const std::size_t end = std::min(begin + kBatch, order.size());
        const Ns limit = choices_.best();
        shown_ = {doing, begin, order.size(), limit, shown_.bound, 0};
        if (progress_) {
            look_at_all();
            show();
        }
        std::vector<SearchedChoice*> batch;
        for (std::size_t i = begin; i < end; ++i)
            if (SearchedChoice& choice = choices_[order[i]]; !choice.left_out)
                batch.push_back(&choice);
        for_each_index(batch.size(), limits_.threads,
                       [&](std::size_t i) { batch[i]->left_out = !attempt_shown(*batch[i], limit, work); });
        if (limits_.threads > 1)
            for (SearchedChoice* choice : batch)
                choice->left_out = choice->left_out && !attempt(*choice, limit, work);
        for (const SearchedChoice* choice : batch)
            if (choice->trial->has_plan())  // else the time would be up before the first plan
                step_lasts_ = std::max(step_lasts_, choice->trial->step_lasts());
    }
}

}  // namespace pw

// Work on the choices of a search in batches, on several threads, until the time is up. Then the current work is ended
// from inside.
#pragma once

#include "search/plans/families.h"
#include "search/plans/searched_choices.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace pw {

class Batches {
public:
    // It refers to its arguments.
    Batches(SearchedChoices& choices, const std::vector<Family>& families, const PlanLimits& limits,
            const SearchProgress& progress);

    // Works on a choice: `limit` is the best step time before the batch. May throw TimeIsUp.
    using Work = std::function<void(SearchedChoice& choice, Ns limit, Deadline& deadline)>;
    // Works on these choices, and reports its progress. A choice for which there is not enough memory, or no time for
    // its plan, is left out. The plans found so far stay.
    void run(const std::string& doing, const std::vector<std::size_t>& order, const Work& work);

    Deadline deadline() const { return deadline_; }  // for work outside of batches
    bool hurried() const { return hurried_; }        // a clock ends the search
    bool is_over() { return time_is_up_ || deadline_.passed(); }

private:
    // What progress says of the search. Other threads change the trials in the meantime.
    struct Shown {
        std::string doing;
        std::size_t done = 0, all = 0;
        Ns best = 0, bound = 0;
        std::int64_t candidates = 0;
    };

    bool attempt(SearchedChoice& choice, Ns limit, const Work& work);
    bool attempt_shown(SearchedChoice& choice, Ns limit, const Work& work);
    void look_at_all();
    void show() const;

    SearchedChoices& choices_;
    const std::vector<Family>& families_;
    const PlanLimits& limits_;
    const SearchProgress& progress_;
    Deadline deadline_;
    bool hurried_;
    std::atomic<bool> time_is_up_ = false;               // for some choice
    std::chrono::steady_clock::duration step_lasts_{0};  // to simulate the largest plan so far
    std::mutex mutex_;                                   // of `shown_`
    Shown shown_;
    std::chrono::steady_clock::time_point looked_{};  // when the bound was last computed
};

}  // namespace pw

// Work on the choices of a search in batches, on several threads, until the time is up.
#pragma once

#include "search/plans/searched_choices.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace pw {

class Batches {
public:
    // It refers to its arguments.
    Batches(SearchedChoices& choices, const MakespanLimits& limits, const SearchProgress& progress);

    // Works on one choice: `limit` is the best step time before the batch. May throw TimeIsUp.
    using Work = std::function<void(SearchedChoice& choice, Ns limit, Deadline& deadline)>;
    // Works on these choices, and reports its progress. A choice for which there is not enough memory, or no time for
    // its plan, is left out; the plans found so far stay.
    void run(const std::string& doing, const std::vector<std::size_t>& order, const Work& work);

    Deadline deadline() const { return deadline_; }  // for work outside of batches
    bool hurried() const { return hurried_; }        // a clock ends the search
    bool is_over() { return time_is_up_ || deadline_.passed(); }

private:
    bool attempt(SearchedChoice& choice, Ns limit, const Work& work);
    void show(const std::string& doing, std::size_t done, std::size_t all) const;

    SearchedChoices& choices_;
    const MakespanLimits& limits_;
    const SearchProgress& progress_;
    Deadline deadline_;
    bool hurried_;
    std::atomic<bool> time_is_up_ = false;               // for some choice
    std::chrono::steady_clock::duration step_lasts_{0};  // to simulate the largest plan so far
};

}  // namespace pw

// The search that judges plans by their simulated step time: over schedule, micro-batch size, number of stages, order
// of devices, recomputed stages and split at once, within the memory of every device. A lower bound over all splits
// prunes the search, and is printed.
#pragma once

#include "search/partition.h"
#include "search/plans/choice_list.h"
#include "search/plans/search_problem.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>

namespace pw {

struct ProvenPlan;  // schedules/orders/schedule.h

struct MakespanLimits {
    double seconds = std::numeric_limits<double>::infinity();
    // The number of tasks to simulate, ten million per second or more, which gives the same answer on every machine. It
    // is unlimited if `seconds` is given.
    std::int64_t tasks = 40'000'000;
    int threads = 1;          // never change the answer, unless `seconds` ends the search
    std::size_t cuts = 1200;  // where there are more topological cuts, only those of the forward order are tried
    ChoiceLimits choices = {};
    std::optional<PlanChoice> only = {};     // this choice alone is searched
    std::function<bool()> should_stop = {};  // asked often, by all threads
};

// A found plan is the best for one choice.
struct FoundPlan {
    PlanChoice choice;
    StageSplit split;
    Ns step_time = 0;
    Ns lower_bound = 0;           // bound on every split under this choice
    bool may_fit = true;          // false: no split can
    std::vector<Bytes> reserved;  // per device, the memory that a run reserves before its first step
    bool fits = false;
    std::optional<Shortage> shortage = {};        // why it does not fit
    std::optional<double> bubble_rate = {};       // of a plan that fits; absent if the time was up
    std::optional<double> effort = {};            // pipeline.effort of its order, if that is not the choice's
    std::shared_ptr<const ProvenPlan> plan = {};  // what make_job makes of it, if that takes long
    Bytes most_reserved() const;                  // on any device
};

// Returns the setup of a found plan, ready for make_job.
Setup setup_of(const SearchProblem& problem, const FoundPlan& plan);

// Returns (time - bound) / time: the reduction of the time that is not excluded.
double gap_of(Ns time, Ns lower_bound);

enum class SearchStop { None, Time, Memory, Caller };

struct SearchResult {
    std::vector<FoundPlan> plans;  // a plan for every choice that was tried: those that fit first, then by step time
    Ns lower_bound = 0;  // bound on every choice and split; equals the best step time when that is proven optimal
    std::optional<Shortage> shortage;    // the closest try when no plan fits; absent: schedules refuse every split
    bool none_fits = false;              // it is proven that no plan fits
    std::int64_t candidates = 0;         // simulated plans
    int choices = 0;                     // without those that their schedule refuses
    int fitting = 0;                     // how many of `plans` fit
    bool every_cut = true;               // all topological cuts were open, not only those of the forward order
    bool every_choice = true;            // and all orders of devices and ways to share them out
    SearchStop stop = SearchStop::None;  // what ended it before its effort was spent
    int left_out = 0;                    // choices for which there was not enough memory
    std::vector<std::string> notes;      // for the user: what was left out

    const FoundPlan* best() const;  // null when there is none: see shortage
    double gap() const;             // gap of the best plan; 0 without one
};

using SearchProgress = std::function<void(const std::string& state)>;

// Searches for the best plan. The same problem gives the same result on every machine, unless time, memory (a failed
// allocation) or the caller ends the search: then the result has the plans found so far. Throws Error (BadInput) if the
// config leaves nothing to try.
SearchResult search_plans(const SearchProblem& problem, const MakespanLimits& limits = {},
                          const SearchProgress& progress = {});

}  // namespace pw

// What a search for plans is asked, and what it finds.
#pragma once

#include "search/partition.h"
#include "search/plan_choice.h"
#include "search/search_team.h"
#include "search/step_parts.h"
#include "workloads/transformers/recipes.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace pw {

struct ProvenPlan;  // schedules/orders/schedule.h

// Layer graphs: limits on the listed choices.
struct ChoiceLimits {
    // Ways to share out the devices among the stages: if there are more for a number of stages, only some are tried.
    std::int64_t shares = 512;
    // Orders of devices that are not alike, for each way to share them out. Few if only the network distinguishes
    // devices: all orders have the same bounds, and the best order is seldom far from the order of the setup.
    std::size_t orders = 720, network_orders = 6;
};

struct PlanLimits {
    double seconds = std::numeric_limits<double>::infinity();
    // Layer graphs: the number of tasks to simulate, ten million per second or more, which gives the same answer on
    // every machine. The number is unlimited if `seconds` is given.
    std::int64_t tasks = 40'000'000;
    int threads = 1;  // never change the answer, unless something ends the search
    // Layer graphs: a graph with more topological cuts is cut in the forward order alone.
    std::size_t cuts = 1200;
    ChoiceLimits choices = {};               // layer graphs
    std::optional<PlanChoice> only = {};     // layer graphs: this choice alone is searched
    std::size_t exact = 10;                  // transformers: this many degrees are proven the best, each with its plan
    std::function<bool()> should_stop = {};  // asked often, by all threads
    Ns below = std::numeric_limits<Ns>::max();  // transformers: plans with longer steps need not be found
    SearchTeam team = {};                       // transformers: shares the work, with the same result
    // Transformers: returns why a plan with this setup must not be proposed, or an empty text. Null: every plan may be
    // proposed. All processes must give the same answer for a setup.
    std::function<std::string(const Setup& setup)> refusal = {};
};

using SearchProgress = std::function<void(const std::string& state)>;

// A plan that was simulated: for a layer graph, the best plan that was found for its choice.
struct FoundPlan {
    PlanChoice choice;
    StageSplit split = {};  // of a layer graph
    Ns step_time = 0;
    Ns lower_bound = 0;                // layer graphs: bound on every split under this choice
    bool may_fit = true;               // layer graphs (false: no split can)
    std::vector<Bytes> reserved = {};  // by device of the plan, the memory that a run reserves before its first step
    bool fits = false;
    std::optional<Shortage> shortage = {};        // layer graphs: why the plan does not fit
    std::optional<double> bubble_rate = {};       // absent: not computed
    std::optional<double> effort = {};            // pipeline.effort of its order, if that is not the choice's
    std::shared_ptr<const ProvenPlan> plan = {};  // what make_job makes of the plan, if that takes long
    // Transformers: the time that the device that waits longest for messages between stages waits, and what the step
    // consists of.
    Ns exposed = 0;
    StepParts parts = {};

    Bytes most_reserved() const;  // on any device
};

// Returns whether plan a comes before plan b: a plan that fits, then the faster plan, then the smaller plan.
bool is_better(const FoundPlan& a, const FoundPlan& b);

// Returns (time - bound) / time: the reduction of the time that is not excluded.
double gap_of(Ns time, Ns lower_bound);

enum class SearchStop { None, Time, Memory, Caller };

struct SearchResult {
    std::vector<FoundPlan> plans;        // plans that fit first, then by step time (layer graphs: a plan per choice)
    Ns lower_bound = 0;                  // on every choice and split (the best step time when that is proven optimal)
    std::optional<Shortage> shortage;    // if no plan fits, of the closest try (absent: schedules refuse every plan)
    bool none_fits = false;              // it is proven that no plan fits
    std::int64_t candidates = 0;         // simulated plans
    int choices = 0;                     // without choices that their schedule refuses
    int fitting = 0;                     // how many of `plans` fit
    SearchStop stop = SearchStop::None;  // what ended the search before its effort was spent
    int left_out = 0;                    // choices for which there was not enough memory
    std::vector<std::string> notes;      // for the user: what was left out
    // Layer graphs.
    bool every_cut = true;     // all topological cuts were open, not only cuts of the forward order
    bool every_choice = true;  // all orders of devices, and all ways to share devices out, were open
    // Transformers.
    const Recipe* recipe = nullptr;      // the nearest recipe that the cluster can run
    std::optional<FoundPlan> vendor;     // the recipe's plan, also if the search does not list the plan
    Ns equal_bound = 0;                  // on every choice with as equal numbers of blocks as possible
    std::optional<PlanChoice> smallest;  // the choice of `shortage`
    bool every_bound = true;             // false: the search ended before all bounds were known
    int too_large = 0;                   // choices that do not fit by the bound on their memory
    int too_slow = 0;                    // choices that are no faster than the best by the bound on their step
    int refused = 0;                     // choices that could be the best, but PlanLimits::refusal refuses them
    std::string refusal;                 // of the refused choice with the least bound
    int untried = 0;                     // choices that are ordered by costs, which takes long, and might be faster
    // Orders of hosts: searched, no faster by their bounds, and not searched although they may be faster.
    int orders = 1, slow_orders = 0, orders_left = 0;

    const FoundPlan* best() const;  // null when there is none: see shortage
    double gap() const;             // gap of the best plan (0 without a plan)
};

}  // namespace pw

#include "search/plans/makespan.h"

#include "job/plan.h"
#include "job/settings.h"
#include "search/clusters/cluster_search.h"
#include "search/plans/batches.h"
#include "search/plans/families.h"
#include "search/plans/search_result.h"
#include "workloads/error.h"
#include "workloads/lower_bound.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <new>
#include <set>
#include <utility>

namespace pw {

namespace {

constexpr std::int64_t kFirstRound = 2'000'000;  // tasks
constexpr std::size_t kClimbers = 24, kLeastClimbers = 4, kSharpened = 8, kRefined = 4;
constexpr std::size_t kPolished[] = {3, 1, 1};  // plans, again and again
constexpr int kEffortOfDeepening = 3;           // in multiples of the usual effort for a bound
constexpr double kEffortOfPolish = 0.1;         // of the whole effort for an order

struct Search {
    const SearchProblem& problem;
    const PlanLimits& limits;
    SearchedChoices choices;
    std::vector<Family> families = {};
    Batches batches;
    std::vector<std::string> notes = {};
    bool out_of_memory = false;  // outside the choices

    Search(const SearchProblem& searched, const PlanLimits& most, const SearchProgress& progress)
        : problem(searched), limits(most), choices(searched, most.cuts), batches(choices, families, most, progress) {}
};

void list(Search& search) {
    if (search.limits.only)
        return search.choices.add(*search.limits.only);
    const Choices choices = choices_of(search.problem.setup, search.choices.space().units(), search.limits.choices);
    search.notes = choices.notes;
    for (const Choices::Partial& partial : choices.partial)
        search.families.push_back({partial});
    for (const PlanChoice& choice : choices.all)
        search.choices.add(choice);
}

[[noreturn]] void fail_as_refused(const Search& search) {
    const Trial& first = *search.choices[0].trial;
    if (first.is_beyond())
        throw *first.refused();
    fail_at(search.problem.setup, "search", *first.refused(), "widen search.schedules or search.micro_batch_sizes");
}

// With a time limit, choices that cannot be the best are left out.
void propose(Search& search) {
    const auto propose_one = [&](SearchedChoice& choice, Ns limit, Deadline& deadline) {
        Trial& trial = *choice.trial;
        const auto is_hopeless = [&] {
            return search.batches.hurried() && limit < kNeverFits && trial.bound() >= limit;
        };
        if (is_hopeless())
            return;
        trial.open(deadline);
        if (!trial.refused() && !is_hopeless())
            trial.propose(deadline);
    };
    SearchedChoices& choices = search.choices;
    search.batches.run("proposing", choices.ordered_by([](const Trial& trial) { return trial.expected(); }),
                       propose_one);
    if (choices.size() > 0 && std::all_of(choices.begin(), choices.end(), [](const SearchedChoice& choice) {
            return choice.trial->refused().has_value();
        }))
        fail_as_refused(search);
    const std::vector<std::size_t> added = add_balanced(search.families, choices, search.problem.setup.cluster.devices,
                                                        search.limits.threads, search.batches.deadline());
    search.batches.run("balancing", added, propose_one);
}

void climb(Search& search, std::int64_t tasks, std::size_t climbers) {
    const SearchedChoices& choices = search.choices;
    const auto promise = [](const Trial& trial) {
        return std::pair(!trial.fits(), trial.step_time() / 2 + trial.bound() / 2);
    };
    std::vector<std::size_t> order = choices.ordered_by(promise);
    std::erase_if(order, [&, limit = choices.best()](std::size_t index) {
        const Trial& trial = *choices[index].trial;
        return choices[index].proven || !trial.has_plan() || trial.bound() >= limit;
    });
    order.resize(std::min(order.size(), climbers));
    const std::int64_t each = tasks / static_cast<std::int64_t>(std::max<std::size_t>(order.size(), 1));
    search.batches.run("improving", order, [&](SearchedChoice& choice, Ns so_far, Deadline& deadline) {
        if (choice.trial->bound() < so_far)
            choice.trial->climb(each, deadline);
    });
}

// Returns whether two choices differ in the order of tasks alone.
bool are_placed_alike(const Search& search, const PlanChoice& one, const PlanChoice& other) {
    PlanChoice renamed = one;
    renamed.schedule = other.schedule;
    renamed.ahead = other.ahead;
    const auto places = [&](const PlanChoice& choice) {
        Shape shape;
        shape.devices = static_cast<int>(choice.devices.size());
        shape.stages = choice.stages;
        shape.copies = choice.copies;
        place_stages(schedule_named(search.problem.setup, choice.schedule), shape);
        std::vector<std::vector<int>> holders;
        for (int stage = 0; stage < shape.stages; ++stage)
            holders.push_back(shape.devices_of(stage));
        return holders;
    };
    return renamed == other && places(one) == places(other);
}

// A bound that holds for any order of the tasks holds for all schedules with the placement.
void share_bounds_of_any_order(Search& search) {
    for (const SearchedChoice& any : search.choices)
        if (any.trial->has_bound_of_any_order())
            for (const SearchedChoice& choice : search.choices)
                if (choice.trial->bound() < any.trial->bound() &&
                    are_placed_alike(search, choice.trial->found().choice, any.trial->found().choice))
                    choice.trial->raise_to_any_order(any.trial->bound());
}

// Raises the least bounds, as long as that raises the overall bound.
void sharpen(Search& search) {
    const SearchedChoices& choices = search.choices;
    while (!search.batches.is_over()) {
        Ns least = choices.best();
        for (const SearchedChoice& choice : choices)
            if (!choice.proven && choice.trial->is_sharp())
                least = std::min(least, choice.trial->bound());
        std::vector<std::size_t> order =
            choices.ordered_by([](const Trial& trial) { return std::pair(!trial.orders_by_costs(), trial.bound()); });
        std::erase_if(order, [&](std::size_t index) {
            const auto& [trial, left_out, proven] = choices[index];
            return proven || left_out || trial->is_sharp() || trial->bound() >= least;
        });
        if (order.empty())
            return;
        const auto in_any_order =
            std::ranges::count_if(order, [&](std::size_t index) { return choices[index].trial->orders_by_costs(); });
        order.resize(std::min(in_any_order > 0 ? static_cast<std::size_t>(in_any_order) : order.size(), kSharpened));
        search.batches.run("bounding", order, [](SearchedChoice& choice, Ns limit, Deadline& deadline) {
            choice.trial->open(deadline);
            if (!choice.trial->refused())
                choice.trial->sharpen(limit, 1, deadline);
        });
        share_bounds_of_any_order(search);
    }
}

// Raises the least bounds of any order with more effort. The best plan is known by now.
void deepen(Search& search) {
    const SearchedChoices& choices = search.choices;
    for (std::set<std::size_t> deepened; !search.batches.is_over();) {
        search.choices.prune();
        std::vector<std::size_t> order = choices.ordered_by([](const Trial& trial) { return trial.bound(); });
        std::erase_if(order, [&](std::size_t index) { return choices[index].proven || choices[index].left_out; });
        const auto any = std::ranges::find_if(
            order, [&](std::size_t index) { return choices[index].trial->has_bound_of_any_order(); });
        if (any == order.end() || choices[*any].trial->bound() > choices[order.front()].trial->bound() ||
            !deepened.insert(*any).second)
            return;
        search.batches.run("bounding", {*any}, [](SearchedChoice& choice, Ns limit, Deadline& deadline) {
            choice.trial->open(deadline);
            choice.trial->sharpen(limit, kEffortOfDeepening, deadline);
        });
        share_bounds_of_any_order(search);
    }
}

// Proves in order of the bounds: the open choice with the least bound limits the gap.
void prove(Search& search, std::int64_t tasks) {
    sharpen(search);
    const std::size_t open = search.choices.prune();
    if (open == 0)
        return;
    const std::int64_t each = tasks / static_cast<std::int64_t>(open);
    const auto order = search.choices.ordered_by([](const Trial& trial) { return trial.bound(); });
    search.batches.run("proving", order, [&](SearchedChoice& choice, Ns so_far, Deadline& deadline) {
        if (choice.proven)
            return;
        Trial& trial = *choice.trial;
        trial.open(deadline);
        choice.proven = trial.bound() >= so_far || (trial.is_open() && trial.prove(so_far, each, deadline));
    });
}

// Climbs and proves in turn, each for half of a round, until nothing is open or the effort is spent. Every round is
// twice as long as the previous one, with half as many climbing choices: the most promising ones.
void improve(Search& search) {
    SearchedChoices& choices = search.choices;
    constexpr std::int64_t kUnlimitedTasks = std::numeric_limits<std::int64_t>::max() / 8;
    std::int64_t left = search.batches.hurried() ? kUnlimitedTasks : search.limits.tasks;
    std::size_t climbers = kClimbers;
    for (std::int64_t round = kFirstRound; choices.prune() > 0 && left > 0 && !search.batches.is_over(); round *= 2) {
        const std::int64_t before = choices.spent(), tasks = left < 2 * round ? left : round;
        climb(search, tasks / 2, climbers);
        prove(search, tasks / 2);
        if (choices.spent() == before)
            break;  // there is no memory for any open choice
        left -= std::max(tasks, choices.spent() - before);
        climbers = std::max(kLeastClimbers, climbers / 2);
    }
}

// Orders by costs the tasks of the best plan of each placement.
void adopt(Search& search) {
    const SearchedChoices& choices = search.choices;
    const std::vector<std::size_t> order =
        choices.ordered_by([](const Trial& trial) { return std::pair(!trial.fits(), trial.step_time()); });
    std::vector<std::size_t> by_costs = order;
    std::erase_if(by_costs, [&](std::size_t index) { return !choices[index].trial->orders_by_costs(); });
    search.batches.run("ordering", by_costs, [&](SearchedChoice& choice, Ns so_far, Deadline& deadline) {
        if (choice.trial->bound() >= so_far)
            return;
        for (const std::size_t index : order)
            if (const Trial& other = *choices[index].trial;
                !other.orders_by_costs() && other.fits() &&
                are_placed_alike(search, other.found().choice, choice.trial->found().choice))
                return choice.trial->adopt(other, deadline);
    });
}

// Finds better splits and orders for the most promising plans whose order depends on the split.
void refine(Search& search) {
    const SearchedChoices& choices = search.choices;
    const double effort = search.problem.setup.pipeline.options.effort;
    const auto run = [&](const std::string& doing, std::size_t most, auto work) {
        std::vector<std::size_t> order = choices.ordered_by([](const Trial& trial) { return trial.step_time(); });
        std::erase_if(order, [&](std::size_t index) {
            return !choices[index].trial->orders_by_costs() || !choices[index].trial->fits();
        });
        order.resize(std::min(order.size(), most));
        search.batches.run(doing, order, work);
    };
    for (const std::size_t most : kPolished)
        run("polishing", most, [&](SearchedChoice& choice, Ns so_far, Deadline& deadline) {
            if (choice.trial->bound() < so_far)
                choice.trial->polish(kEffortOfPolish * effort, deadline);
        });
    run("refining", kRefined,
        [&](SearchedChoice& choice, Ns, Deadline& deadline) { choice.trial->refine(effort, deadline); });
}

SearchStop stop_of(Search& search, int left_out) {
    if (search.limits.should_stop && search.limits.should_stop())
        return SearchStop::Caller;
    if (search.batches.is_over() || count_too_long(search.choices) > 0)
        return SearchStop::Time;
    return search.out_of_memory || left_out > 0 ? SearchStop::Memory : SearchStop::None;
}

}  // namespace

Setup setup_of(const SearchProblem& problem, const FoundPlan& plan) {
    Setup setup = setup_of(problem.setup, plan.choice);
    if (plan.choice.is_of_transformer())
        return setup;
    setup.pipeline.options.effort = plan.effort.value_or(setup.pipeline.options.effort);
    set_split(setup.pipeline, problem.model.layers, plan.split);
    setup.yaml = print_setup(setup);
    return setup;
}

SearchResult search_plans(const SearchProblem& problem, const PlanLimits& limits, const SearchProgress& progress) {
    if (searches_cluster(problem.setup))
        return search_cluster(problem.setup, limits, progress);
    Search search(problem, limits, progress);
    try {
        list(search);
        propose(search);
        improve(search);
        adopt(search);
        refine(search);
        deepen(search);
    } catch (const std::bad_alloc&) {  // the plans found so far stay
        search.out_of_memory = true;
    }
    search.choices.settle(limits.threads, limits.should_stop);
    if (search.out_of_memory)
        search.choices.forget_models();  // room for the answer
    SearchResult result = result_of(search.choices, search.families, !search.out_of_memory);
    result.notes.insert(result.notes.begin(), search.notes.begin(), search.notes.end());
    result.stop = stop_of(search, result.left_out);
    return result;
}

}  // namespace pw

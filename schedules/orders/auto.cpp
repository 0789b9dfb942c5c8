// The shortest order that is found for given costs, links and memory.

#include "schedules/orders/all_orders.h"
#include "schedules/orders/justification.h"
#include "schedules/orders/list_scheduling.h"
#include "schedules/orders/order_bound.h"
#include "schedules/orders/order_changes.h"
#include "schedules/orders/order_model.h"
#include "schedules/orders/own_order.h"
#include "schedules/orders/tabu_search.h"
#include "workloads/error.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <span>
#include <utility>

namespace pw {

namespace {

// Effort is counted in passes that are placed or timed, so that the answer depends on the request alone. All levels
// share these limits: of rules, of exceptions from them, and of moves.
constexpr double kMostPlaced = 7.5e6, kMostExcepted = 9e6, kMostTimed = 7.5e6;
constexpr double kMostJustified = 250'000;  // in an order that is justified again and again
constexpr double kTimedInRound = 5;         // as long as a round of the tabu search, about
constexpr double kMostTries = 200, kMostExceptions = 400, kMostRounds = 2500;  // at a level
constexpr double kMostExhausted = 20'000;                                      // tries among all orders of a small plan
constexpr int kMostSpared = 8;              // times that an order spares the memory that the order before lacks
constexpr double kSparedPasses = 1e5;       // the same of a large plan, in all such orders
constexpr std::size_t kMostSimulated = 12;  // orders of a level
constexpr int kMostLonger = 2;          // consecutive levels of bytes whose orders are longer than an order that fits
constexpr double kSlowerIfSeveral = 8;  // stages on a device: times as long to place a pass
constexpr int kUsualLevels = 8;         // that share the effort; most of more are not tried
constexpr double kAhead[] = {2.5, 1, 2, 1e9, 3, 1.5, 0.5};
struct Filling {
    double patience;
    bool level;
};
constexpr Filling kFilling[] = {{0.75, false}, {0, true}, {0, false}, {1, false}};
constexpr double kLag[] = {0, 1.5};
constexpr Filling kRefilling[] = {{0, false}, {0.25, false}, {0.5, false}, {0, true}, {0.25, true}, {0.5, true}};
constexpr OrderRules::Stages kStages[] = {OrderRules::Stages::Oldest, OrderRules::Stages::InOrder,
                                          OrderRules::Stages::Apart, OrderRules::Stages::LastApart};

std::vector<OrderRules> all_rules(bool several_stages) {
    std::vector<OrderRules> all;
    const auto add = [&](OrderRules rules) {
        for (const bool forward_first : {false, true})
            for (const OrderRules::Stages stages : std::span(kStages).first(several_stages ? std::size(kStages) : 1)) {
                rules.forward_first = forward_first;
                rules.stages = stages;
                all.push_back(rules);
            }
    };
    for (const double lag : kLag)
        for (const Filling& filling : kFilling) {
            if (!several_stages)
                add({.undelayed = true, .lag = lag, .patience = filling.patience, .level = filling.level});
            for (const double ahead : kAhead)
                add({.ahead = ahead, .lag = lag, .patience = filling.patience, .level = filling.level});
        }
    for (const double ahead : kAhead)
        add({.ahead = ahead, .whole = true});
    return all;
}

// Of many levels only some are tried, eight until a level is twice as high: 16, 18, 20, ..., 32, 36, 40, ...
int rounded_level(int level) {
    int unit = 1;
    while (level / unit >= 16)
        unit *= 2;
    return level / unit * unit;
}

// Returns the orders of the other schedules on this placement.
std::vector<std::vector<Tasks>> named_orders(const Request& request) {
    std::vector<std::vector<Tasks>> all;
    for (const Schedule& schedule : schedules()) {
        Shape shape = request.shape;
        shape.placement.clear();
        shape.serving.clear();
        if (schedule.needs_costs || schedule.asynchronous() || !schedule.trains || !place_stages(schedule, shape))
            continue;
        bool alike = shape.serving == request.shape.serving;
        for (int stage = 0; alike && stage < shape.stages; ++stage)
            alike = shape.devices_of(stage) == request.shape.devices_of(stage);
        if (!alike)
            continue;
        try {
            all.push_back(schedule.orders({shape, request.options}));
        } catch (const Error&) {  // it is not defined for the shape
        }
    }
    return all;
}

bool has_pairs(const std::vector<Tasks>& order) {
    return std::ranges::any_of(order, [](const Tasks& list) { return std::ranges::any_of(list, &Task::with_next); });
}

// Returns the lists with the micro-batches of each stage in ascending order, F, I or B, and W. Equally long
// micro-batches are interchangeable, and sums of gradients then have the same order.
PassLists in_ascending_order(const OrderModel& model, PassLists lists) {
    for (std::vector<OrderPass>& list : lists) {
        std::map<int, std::vector<int>> forwards, separate;  // by stage: micro-batches in order; those with I and W
        for (const OrderPass pass : list)
            if (pass.kind() == OrderPass::F)
                forwards[model.stage_of(pass.number())].push_back(model.microbatch_of(pass.number()));
        for (auto& [stage, microbatches] : forwards)
            std::ranges::sort(microbatches);
        std::map<int, std::array<std::size_t, 3>> done;  // by stage and kind
        for (OrderPass& pass : list) {
            const int stage = model.stage_of(pass.number()), kind = pass.kind();
            const std::size_t next = done[stage][kind]++;
            const int mb = kind == OrderPass::W ? separate[stage][next] : forwards[stage][next];
            if (kind == OrderPass::I && !pass.whole())
                separate[stage].push_back(mb);
            pass = OrderPass(model.number(stage, mb, kind), pass.whole());
        }
    }
    return lists;
}

constexpr std::size_t kStarts = 4;
std::size_t start_of(const OrderRules& rules) {
    return (rules.forward_first ? 1 : 0) + (rules.lag > 0 || rules.whole ? 2 : 0);
}

struct Tried {
    TimedOrder order;
    OrderRules rules;
};

class Shortest {
public:
    explicit Shortest(const Request& request)
        : costs_(*request.costs),
          model_(request),
          timer_(model_),
          aim_(request.options.aim),
          effort_(request.options.effort),
          rules_(all_rules(model_.has_several_stages())) {
        for (std::vector<Tasks>& tasks : named_orders(request)) {
            PassLists lists = model_.lists_of(tasks);
            const StepTimes times = timer_.times(lists);
            if (costs_.simulate && has_pairs(tasks) && fits(model_, lists))
                paired_.push_back(std::move(tasks));
            named_.push_back({std::move(lists), times});
        }
    }

    // An order for less memory is also an order for more: it is tried unless it cannot be shorter, so that more
    // activations never make a step longer. The simulator counts more memory. Until an order fits, an order that spares
    // what it lacks is tried.
    std::vector<Tasks> order() {
        for (const TimedOrder& order : named_)
            if (fits(model_, order.lists))
                consider(order);
        for (const std::vector<Tasks>& tasks : paired_)
            keep(tasks, costs_.simulate(tasks));
        bool spares = model_.limits_bytes();
        const bool limits_recomputed = model_.limits_bytes() && model_.recomputes();
        const int levels = spares ? model_.levels() : rounded_level(model_.levels());
        Ns proven = 0;  // with at least as much room
        for (int level = levels, longer = 0; level > 0 && longer < kMostLonger;) {
            model_.limit_to(level);
            StepTimes least = least_times(model_);
            if (best_.order.fits && main_time(best_.order.times, aim_) <= std::max(proven, main_time(least, aim_)))
                break;
            SimulatedOrder own = consider_found(least);
            proven = std::max(proven, main_time(least, aim_));
            if (spares && !own.fits)
                spares = !spare(level, std::move(own)) || limits_recomputed;
            else
                spares = false;
            const bool is_longer =
                best_.order.fits && main_time(found_.front().times, aim_) > main_time(best_.order.times, aim_);
            longer = model_.limits_bytes() && is_longer ? longer + 1 : 0;
            if (limits_recomputed)
                level = spares && level == levels ? lowest_that_lacks(level) : level - 1;
            else
                level = rounded_level(level - 1);
        }
        return best_.tasks;
    }

private:
    // Finds orders that spare the memory which the order before lacks. Returns whether an order fits.
    bool spare(int level, SimulatedOrder own) {
        SparedRoom spared;
        const int most = std::clamp(static_cast<int>(kSparedPasses / model_.passes()), 1, kMostSpared);
        for (int tries = 0; tries < most && !own.fits && !own.missing.empty(); ++tries) {
            model_.spare(found_.front().lists, std::move(own.missing), spared);
            model_.limit_to(level, spared);
            StepTimes least = least_times(model_);
            own = consider_found(least);
        }
        return own.fits;
    }

    // Returns the lowest level below `level` at which memory is missing, or 0: with recomputation there are as many
    // levels as micro-batches.
    int lowest_that_lacks(int level) {
        int fits = 0, lacks = level;
        while (lacks - fits > 1) {
            const int middle = (fits + lacks) / 2;
            model_.limit_to(middle);
            StepTimes least = least_times(model_);
            (consider_found(least).fits ? fits : lacks) = middle;
        }
        return std::min(lacks, level - 1);
    }

    SimulatedOrder consider(TimedOrder order) {
        if (model_.has_equal_microbatches())
            order.lists = in_ascending_order(model_, std::move(order.lists));
        std::vector<Tasks> tasks = model_.order_of(order.lists);
        SimulatedOrder own = costs_.simulate ? costs_.simulate(tasks) : SimulatedOrder{order.times};
        keep(std::move(tasks), own);
        return own;
    }

    void keep(std::vector<Tasks> tasks, const SimulatedOrder& own) {
        if (best_.tasks.empty() ||
            (own.fits != best_.order.fits ? own.fits : is_shorter(own.times, best_.order.times, aim_)))
            best_ = {std::move(tasks), own};
    }

    // Simulates the best orders of a level, as the simulator has more rules than the model. Returns what the simulator
    // says of the order that is best by the model.
    SimulatedOrder consider_found(StepTimes& least) {
        found_.clear();
        found_.push_back(at_level(least));
        std::stable_sort(found_.begin(), found_.end(), [&](const TimedOrder& one, const TimedOrder& other) {
            return is_shorter(one.times, other.times, aim_);
        });
        const SimulatedOrder first = consider(found_.front());
        std::size_t simulated = 1;
        for (std::size_t at = 1; at < found_.size() && simulated < kMostSimulated; ++at) {
            if (best_.order.fits && main_time(best_.order.times, aim_) <= main_time(found_[at].times, aim_))
                break;
            if (found_[at].lists == found_[at - 1].lists)
                continue;
            consider(found_[at]);
            ++simulated;
        }
        return first;
    }

    void take(TimedOrder& best, TimedOrder other) {
        if (costs_.simulate && !other.lists.empty())
            found_.push_back(other);
        if (is_shorter(other.times, best.times, aim_))
            best = std::move(other);
    }

    // Raises `least` if it is proven that no order is shorter.
    TimedOrder at_level(StepTimes& least) {
        TimedOrder best;
        for (const TimedOrder& order : named_)
            if (is_shorter(order.times, best.times, aim_) && fits(model_, order.lists))
                best = order;
        justify(best);
        // Each level gets the same effort, whatever their number is.
        const double timed = static_cast<double>(model_.passes()) * kUsualLevels;
        const double placed = timed * (model_.has_several_stages() ? kSlowerIfSeveral : 1);
        const int tries = static_cast<int>(std::max(effort_ * std::clamp(kMostPlaced / placed, 12.0, kMostTries), 1.0));
        left_ = tries;
        std::vector<Tried> first(kStarts);  // the best of each kind of rules
        for (std::size_t rule = 0; rule < rules_.size() && 2 * left_ > tries; ++rule)
            attempt(rules_[rule], first[start_of(rules_[rule])]);
        const auto is_shorter_one = [&](const Tried& one, const Tried& other) {
            return is_shorter(one.order.times, other.order.times, aim_);
        };
        const auto may_shorten = [&](const Tried& one) {
            return !one.order.lists.empty() && main_time(best.times, aim_) > main_time(least, aim_);
        };
        std::stable_sort(first.begin(), first.end(), is_shorter_one);
        for (Tried& one : first) {
            if (may_shorten(one))
                refine(one, least);
            take(best, one.order);
        }
        if (const Tried& one = *std::min_element(first.begin(), first.end(), is_shorter_one); may_shorten(one)) {
            const auto exceptions = static_cast<int>(effort_ * std::min(kMostExceptions, kMostExcepted / placed));
            take(best, with_exceptions(model_, timer_, one.order, one.rules, least, aim_, exceptions));
        }
        refill(best);
        justify(best);
        const auto rounds = static_cast<int>(effort_ * std::min(kMostRounds, kMostTimed / (kTimedInRound * timed)));
        best = tabu_searched(model_, timer_, std::move(best), least, aim_, rounds);
        justify(best);
        exhaust(best, least);
        return best;
    }

    bool attempt(const OrderRules& rules, Tried& best) {
        --left_;
        PassLists lists = scheduled(model_, rules);
        const StepTimes times = timer_.times(lists);
        if (!is_shorter(times, best.order.times, aim_))
            return false;
        best = {{std::move(lists), times}, rules};
        return true;
    }

    void justify(TimedOrder& order) {
        const int most = std::max(4, static_cast<int>(kMostJustified / model_.passes()));
        for (int round = 0; round < most && !order.lists.empty() && order.lists != justified_; ++round) {
            justified_ = order.lists;
            PassLists lists = justified(model_, timer_, order.lists, aim_);
            if (lists.empty())
                return;
            const StepTimes times = timer_.times(lists);
            if (is_shorter(times, order.times, aim_))
                order = {std::move(lists), times};
        }
    }

    // Tries all orders of a small plan.
    void exhaust(TimedOrder& best, StepTimes& least) {
        const Ns& time = aim_ == Aim::Step ? best.times.step : best.times.span;
        while (time > main_time(least, aim_)) {
            AllOrdersAnswer answer =
                search_all_orders(model_, aim_, time - 1, static_cast<int>(effort_ * kMostExhausted));
            if (answer.none)
                (aim_ == Aim::Step ? least.step : least.span) = time;
            if (answer.lists.empty())
                return;
            const StepTimes times = timer_.times(answer.lists);
            // Messages may wait for each other in their lanes, and devices start as early as they can.
            if (!is_shorter(times, best.times, aim_))
                return;
            take(best, {std::move(answer.lists), times});
        }
    }

    // Places W by rules.
    void refill(TimedOrder& best) {
        const PassLists lists = best.lists;
        for (const Filling& filling : kRefilling) {
            PassLists filled = refilled(model_, {.patience = filling.patience, .level = filling.level}, lists);
            if (filled.empty())
                continue;
            const StepTimes times = timer_.times(filled);
            take(best, {std::move(filled), times});
        }
    }

    // Changes the numbers of the best rules a little, as long as that helps.
    void refine(Tried& best, const StepTimes& least) {
        for (double step = 0.16; step > 0.004; step /= 2)
            for (double OrderRules::*const number : {&OrderRules::ahead, &OrderRules::patience, &OrderRules::lag})
                for (const double factor : {1 + step, 1 - step}) {
                    OrderRules rules = best.rules;
                    do
                        rules.*number = std::max(rules.*number, 0.1) * factor;
                    while (left_ > 0 && main_time(best.order.times, aim_) > main_time(least, aim_) &&
                           attempt(rules, best));
                }
    }

    const OrderCosts& costs_;
    OrderModel model_;
    OrderTimer timer_;
    Aim aim_;
    double effort_;
    std::vector<OrderRules> rules_;
    std::vector<std::vector<Tasks>> paired_;  // named orders that fit, with pairs, which the model does not have
    std::vector<TimedOrder> named_, found_;   // found: at a level
    struct {
        std::vector<Tasks> tasks;
        SimulatedOrder order = {{}, false};
    } best_;
    PassLists justified_;  // the last order that was justified
    int left_ = 0;         // orders to try at a level
};

std::vector<Tasks> shortest_order(const Request& request) {
    const auto order = [](const Request& own) { return Shortest(own).order(); };
    return request.options.micro_batches == ScheduleOptions::MicroBatches::Any && !request.costs->classes.empty()
               ? in_own_order(request, order)
               : order(request);
}

}  // namespace

extern const Schedule kAuto{.name = "auto",
                            .summary = "the shortest order found for the costs, links and memory",
                            .placement = kLooped,
                            .orders = shortest_order,
                            .option = "activations",
                            .needs_costs = true};

extern const Schedule kAutoV{.name = "auto-v",
                             .summary = "the same with two stages per device in a V",
                             .placement = kV,
                             .chunks = 2,
                             .orders = shortest_order,
                             .option = "activations",
                             .needs_costs = true};

extern const Schedule kAutoBidirectional{.name = "auto-bidirectional",
                                         .summary = "the same in both directions, two copies of the weights",
                                         .placement = kBothDirections,
                                         .orders = shortest_order,
                                         .option = "activations",
                                         .needs_costs = true};

}  // namespace pw

#include "schedules/orders/order_bound.h"

#include "schedules/orders/all_orders.h"
#include "schedules/orders/crossing_bound.h"
#include "workloads/bounded.h"
#include "workloads/rounding.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace pw {

namespace {

constexpr int kProvingTries = 200'000;  // to prove that the order of a small plan is the shortest

// The passes of a micro-batch on a stage, with the paths that lead to its F and from its I.
struct Visit {
    const OrderModel::Held& held;
    Ns forward, input, backward;    // the least times: input of I or B, backward of I and W or B
    Ns longest, longest_weight;     // the most time of I and W or B, and of W
    Ns added, most_added;           // to the gradients of another micro-batch: the least and the most
    Ns head, trip, tail, way_back;  // until F starts, from its end to I, from the end of I; the part of the tail on the
                                    // way to the first stage and there
    Ns lead;                        // from the start of F on the device's first stage to the start of this F
    Ns rest() const { return backward - input; }  // the least time after I
};

// The visits of a stage on a device.
struct StageVisits {
    Ns update;  // after the last B or W
    std::vector<Visit> visits;
};

// Returns by number of a pass the longest path to it, or from its end, without waits for devices.
std::vector<Ns> heads(const OrderModel& model) {
    std::vector<Ns> heads(static_cast<std::size_t>(model.passes()), 0);
    const auto from = [&](int number) {
        for (const OrderModel::Message& message : model.messages(number))
            heads[message.reader] =
                std::max(heads[message.reader], heads[number] + model.time(OrderPass(number)) + message.time());
    };
    for (int stage = 0; stage < model.stages(); ++stage)
        for (int mb = 0; mb < model.microbatches(); ++mb)
            from(model.number(stage, mb, 0));
    return heads;
}

// If `way_back`, only the paths to the end of the first stage.
std::vector<Ns> tails(const OrderModel& model, bool way_back) {
    std::vector<Ns> tails(static_cast<std::size_t>(model.passes()), 0);
    for (int stage = 0; stage < model.stages(); ++stage)
        for (int mb = 0; mb < model.microbatches(); ++mb) {
            const int input = model.number(stage, mb, 1);
            if (!way_back || stage == 0)  // of a whole B, what it takes longer than I
                tails[input] = model.least_backward(input) - model.least_input(input);
            for (const OrderModel::Message& message : model.messages(input))
                if (message.reader % 3 == 1)
                    tails[input] = std::max(tails[input],
                                            message.time() + model.least_input(message.reader) + tails[message.reader]);
        }
    return tails;
}

// Returns the most time that activations which fill `room` can still take. Each activation before I takes the time
// `whole` of its visit. Each activation after I is smaller and takes the time `later`.
template <class Whole, class Later>
Ns most_left(const OrderModel::Amounts& room, const std::vector<StageVisits>& own, Whole whole, Later later) {
    struct Part {
        double amount, time;
    };
    Ns least = std::numeric_limits<Ns>::max();
    for (std::size_t limit = 0; limit < OrderModel::kLimits; ++limit) {
        std::vector<Part> parts;
        double most = 0;
        for (const StageVisits& stage : own)
            for (const Visit& visit : stage.visits) {
                const auto all = static_cast<double>(visit.held.after_forward[limit]);
                const auto small = static_cast<double>(visit.held.after_input[limit]);
                const auto rest = static_cast<double>(later(visit));
                const double both = std::max(rest, static_cast<double>(whole(visit)));
                if (rest * all > both * small)  // the small part takes more time for its room
                    parts.insert(parts.end(), {{small, rest}, {all - small, both - rest}});
                else
                    parts.push_back({all, both});
            }
        std::erase_if(parts, [](const Part& part) { return part.time == 0; });  // which have no place in the order
        std::ranges::sort(parts, [](const Part& one, const Part& other) {
            return one.time * other.amount > other.time * one.amount;
        });
        auto left = static_cast<double>(room[limit]);
        for (const Part& part : parts) {
            const double share = part.amount > left ? left / part.amount : 1;
            most += share * part.time;
            left -= share * part.amount;
        }
        least = std::min(least, static_cast<Ns>(most * (1 + kRounding)));
    }
    return least;
}

template <class Value>
Ns least_of(const std::vector<StageVisits>& own, Value value) {
    Ns least = std::numeric_limits<Ns>::max();
    for (const StageVisits& stage : own)
        for (const Visit& visit : stage.visits)
            least = std::min(least, std::invoke(value, visit));
    return least;
}

template <class Value>
Ns sum_of(const std::vector<StageVisits>& own, Value value) {
    Ns sum = 0;
    for (const StageVisits& stage : own)
        for (const Visit& visit : stage.visits)
            sum += std::invoke(value, visit);
    return sum;
}

// Returns by stage the longest path from the start of F on `first` to the start of F there, or -1 for none.
std::vector<Ns> paths_from(const OrderModel& model, int first, int mb) {
    std::vector<Ns> paths(static_cast<std::size_t>(model.stages()), -1);
    paths[first] = 0;
    for (int stage = first; stage < model.stages(); ++stage)
        for (const OrderModel::Message& message : model.messages(model.number(stage, mb, 0)))
            if (message.reader % 3 == 0 && paths[stage] >= 0) {
                Ns& path = paths[model.stage_of(message.reader)];
                path =
                    std::max(path, paths[stage] + model.time(OrderPass(model.number(stage, mb, 0))) + message.time());
            }
    return paths;
}

OrderModel::Amounts least_held(const std::vector<StageVisits>& own) {
    OrderModel::Amounts least{kBeyond, kBeyond};
    for (const StageVisits& stage : own)
        for (const Visit& visit : stage.visits)
            for (std::size_t limit = 0; limit < OrderModel::kLimits; ++limit)
                least[limit] = std::min(least[limit], visit.held.after_forward[limit]);
    return least;
}

std::int64_t count_of(const std::vector<StageVisits>& own) {
    std::int64_t count = 0;
    for (const StageVisits& stage : own)
        count += std::ssize(stage.visits);
    return count;
}

// The smallest first.
std::int64_t most_in_flight(const OrderModel::Amounts& room, const std::vector<StageVisits>& own) {
    std::int64_t most = count_of(own);
    for (std::size_t limit = 0; limit < OrderModel::kLimits; ++limit) {
        std::int64_t left = room[limit], more = kBeyond;
        std::vector<std::int64_t> held;
        for (const StageVisits& stage : own)
            for (const Visit& visit : stage.visits) {
                held.push_back(visit.held.after_forward[limit]);
                more = std::min(more, visit.held.by_forward[limit]);
            }
        std::ranges::sort(held);
        left -= more;
        std::int64_t fit = 0;
        while (fit < most && held[static_cast<std::size_t>(fit)] <= left)
            left -= held[static_cast<std::size_t>(fit++)];
        most = fit;
    }
    return most;
}

// Returns how long a device waits at least before its first I: until then it runs at most `most` F. A micro-batch that
// it has on its first stage, too, begins there.
Ns first_wait(std::int64_t most, const std::vector<StageVisits>& own) {
    std::vector<Ns> forwards;
    for (const StageVisits& stage : own)
        for (const Visit& visit : stage.visits)
            forwards.push_back(visit.forward);
    std::ranges::nth_element(forwards, forwards.begin() + most, std::greater<>());
    Ns first = least_of(own, [](const Visit& visit) { return visit.lead + visit.forward + visit.trip; });
    for (std::int64_t k = 0; k < most; ++k)
        first -= forwards[static_cast<std::size_t>(k)];
    return std::max<Ns>(first, 0);
}

// Returns how long a device waits at least from the end of its last F to the I of that micro-batch: it only runs I and
// W of the remaining micro-batches that it holds then.
Ns last_wait(const OrderModel::Amounts& room, const std::vector<StageVisits>& own) {
    OrderModel::Amounts others = room;
    const OrderModel::Amounts held = least_held(own);
    for (std::size_t limit = 0; limit < OrderModel::kLimits; ++limit)
        others[limit] -= held[limit];
    Ns most = most_left(
        others, own, [](const Visit& visit) { return visit.longest + visit.most_added; },
        [](const Visit& visit) { return visit.longest_weight + visit.most_added; });
    for (const StageVisits& stage : own)
        most += own.size() > 1 ? stage.update : 0;
    return std::max<Ns>(0, least_of(own, &Visit::trip) - most);
}

// Returns what is added to gradients at least: each stage's first B or W, of any micro-batch, adds nothing.
Ns added_to(const std::vector<StageVisits>& own) {
    Ns sum = 0;
    for (const StageVisits& stage : own) {
        Ns most = 0;
        for (const Visit& visit : stage.visits) {
            sum += visit.added;
            most = std::max(most, visit.added);
        }
        sum -= most;
    }
    return sum;
}

// Returns the least times by the waits of a device whose first F starts at `head`. If there is no room for all, its
// last F follows an I, so that the waits before its first I and after its last F are apart. After the last F there is a
// way back from that micro-batch's I, and after the last I from that I. What the device has left to do then is at most
// what its room can hold. If a device starts and ends every path, its span contains all of them. The work is with the
// updates that count.
StepTimes times_by_waits(const OrderModel::Amounts& room, const std::vector<StageVisits>& own, const StepTimes& work,
                         Ns head, bool starts_alone) {
    const std::int64_t most = most_in_flight(room, own);
    const Ns first = first_wait(most, own), last = last_wait(room, own);
    const bool apart = most < count_of(own);
    const Ns waits = apart ? first + last : std::max(first, last);
    const auto rest = [](const Visit& visit) { return visit.rest() + visit.added; };
    const auto backward = [](const Visit& visit) { return visit.backward + visit.added; };
    const Ns added = added_to(own);
    const Ns rests = sum_of(own, &Visit::rest) + added, backwards = sum_of(own, &Visit::backward) + added;
    const Ns forwards = head + sum_of(own, &Visit::forward);
    const Ns until_last_forward =
        forwards + std::max<Ns>(0, backwards - most_left(room, own, backward, rest)) + (apart ? first : 0);
    const Ns until_last_input =
        forwards + sum_of(own, &Visit::input) + waits + std::max<Ns>(0, rests - most_left(room, own, rest, rest));
    const auto whole_way = [&](Ns Visit::*const tail) {
        const auto from_forward = [&](const Visit& visit) { return visit.trip + visit.input + visit.*tail; };
        return std::max(until_last_forward + least_of(own, from_forward), until_last_input + least_of(own, tail));
    };
    return {std::max(head + work.step + waits, whole_way(&Visit::tail)),
            std::max(work.span + waits, starts_alone ? whole_way(&Visit::way_back) : 0)};
}

// Activations that are held for at least a time each need a span in which the room holds them all.
Ns span_of_room(const OrderModel::Amounts& room, const std::vector<StageVisits>& own) {
    double span = 0;
    for (std::size_t limit = 0; limit < OrderModel::kLimits; ++limit) {
        double held = 0;
        for (const StageVisits& stage : own)
            for (const Visit& visit : stage.visits) {
                const auto all = static_cast<double>(visit.held.after_forward[limit]);
                const auto later = static_cast<double>(visit.held.after_input[limit]);
                const Ns until = visit.forward + visit.trip + visit.input;
                held += all * static_cast<double>(until) + later * static_cast<double>(visit.rest());
            }
        span = std::max(span, held / static_cast<double>(room[limit]));
    }
    return static_cast<Ns>(std::ceil(span * (1 - kRounding)));  // of whole nanoseconds
}

Visit visit_of(const OrderModel& model, int forward, Ns head, Ns trip) {
    const int input = forward + 1;
    const OrderPass weight(forward + 2), whole(input, true);
    return {.held = model.held(forward),
            .forward = model.time(OrderPass(forward)),
            .input = model.least_input(input),
            .backward = model.least_backward(input),
            .longest = std::max(model.time(OrderPass(input)) + model.time(weight), model.time(whole)),
            .longest_weight = model.time(weight),
            .added = model.least_added(input),
            .most_added = std::max(model.added(weight), model.added(whole)),
            .head = head,
            .trip = trip,
            .tail = 0,
            .way_back = 0,
            .lead = 0};
}

// Returns the times of all passes and updates of a device.
StepTimes work_of(const OrderModel& model, int device, const std::vector<StageVisits>& stages) {
    const Ns passes = sum_of(stages, &Visit::forward) + sum_of(stages, &Visit::backward) + added_to(stages);
    Ns updates = 0;
    for (const StageVisits& stage : stages)
        updates += stage.update;
    return {passes + updates, passes + model.updates_between_passes(device)};
}

}  // namespace

StepTimes least_times(const OrderModel& model) {
    const std::vector<Ns> head = heads(model), tail = tails(model, false), way_back = tails(model, true);
    std::vector<std::vector<Ns>> trips;
    for (int mb = 0; mb < model.microbatches(); ++mb)
        trips.push_back(model.round_trips(mb));
    StepTimes all{0, 0};
    bool starts_alone = true;
    for (int number = 0; number < model.passes(); number += 3)
        starts_alone = starts_alone && (model.inputs()[number] > 0 || model.device_of(number) == model.device_of(0));
    for (int device = 0; device < model.devices(); ++device) {
        std::vector<StageVisits> stages;
        Ns first = std::numeric_limits<Ns>::max();
        std::vector<std::vector<Ns>> leads;  // by micro-batch
        const int first_stage = model.stages_on(device).empty() ? 0 : model.stages_on(device).front();
        for (int mb = 0; model.stages_on(device).size() > 1 && mb < model.microbatches(); ++mb)
            leads.push_back(paths_from(model, first_stage, mb));
        for (const int stage : model.stages_on(device)) {
            StageVisits own{0, {}};
            for (int mb = 0; mb < model.microbatches(); ++mb) {
                const int forward = model.number(stage, mb, 0);
                if (model.device_of(forward) != device)
                    continue;
                own.visits.push_back(visit_of(model, forward, head[forward], trips[mb][stage]));
                Visit& visit = own.visits.back();
                visit.tail = tail[forward + 1];
                visit.way_back = way_back[forward + 1];
                if (stage != first_stage && model.device_of(model.number(first_stage, mb, 0)) == device)
                    visit.lead = std::max<Ns>(0, leads[mb][stage]);
                first = std::min(first, visit.head);
                all.step = std::max(all.step, visit.head + visit.forward + visit.trip + visit.input + visit.tail);
            }
            if (own.visits.empty())
                continue;
            own.update = model.update_after(stage, device, static_cast<int>(own.visits.size()) - 1);
            stages.push_back(std::move(own));
        }
        if (stages.empty())
            continue;
        const Ns span = span_of_room(model.room(device), stages);
        const StepTimes by_waits =
            times_by_waits(model.room(device), stages, work_of(model, device, stages), first, starts_alone);
        all = {std::max({all.step, by_waits.step, first + span}), std::max({all.span, by_waits.span, span})};
    }
    return all;
}

StepTimes least_work(const OrderModel& model) {
    StepTimes all{0, 0};
    for (int device = 0; device < model.devices(); ++device) {
        std::vector<StageVisits> stages;
        for (const int stage : model.stages_on(device)) {
            StageVisits own{0, {}};
            for (int mb = 0; mb < model.microbatches(); ++mb)
                if (const int forward = model.number(stage, mb, 0); model.device_of(forward) == device)
                    own.visits.push_back(visit_of(model, forward, 0, 0));
            if (own.visits.empty())
                continue;
            own.update = model.update_after(stage, device, static_cast<int>(own.visits.size()) - 1);
            stages.push_back(std::move(own));
        }
        if (stages.empty())
            continue;
        const StepTimes work = work_of(model, device, stages);
        all = {std::max(all.step, work.step), std::max(all.span, work.span)};
    }
    return all;
}

StepTimes least_times(const OrderModel& model, const StepTimes& found) {
    StepTimes least = least_times(model);
    if (least.step < found.step || least.span < found.span) {
        // In a line the first device ends with the update of its stage.
        const Ns update = model.update_after(0, model.device_of(0), model.microbatches() - 1);
        const Ns by_crossings = least_time_by_crossings(model, found.step - update);
        least = {std::max(least.step, by_crossings + update), std::max(least.span, by_crossings)};
    }
    if (least.step < found.step && search_all_orders(model, Aim::Step, found.step - 1, kProvingTries).none)
        least.step = found.step;
    if (least.span < found.span && search_all_orders(model, Aim::Span, found.span - 1, kProvingTries).none)
        least.span = found.span;
    return least;
}

}  // namespace pw

#include "schedules/orders/order_bound.h"

#include "schedules/orders/all_orders.h"
#include "schedules/orders/crossing_bound.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace pw {

namespace {

constexpr int kProvingTries = 200'000;  // to prove that the order of a small plan is the shortest

// The passes of one micro-batch on a stage, with the paths that lead to its F and from its I.
struct Visit {
    Ns forward, input, weight, backward;  // backward: the shorter of B, and I and W
    Ns head, trip, tail;                  // until F starts, from its end to I, from the end of I
    Ns way_back;                          // the part of the tail on the way to the first stage and there
    Ns lead;                              // from the start of F on the device's first stage to that of this F
    Ns rest() const { return std::max<Ns>(0, backward - input); }  // the least time after I
};

// The visits of one stage on a device.
struct StageVisits {
    OrderModel::Held held;
    Ns accumulate, update;  // after each B or W except the first, and after the last one
    std::vector<Visit> visits;
};

Ns time_of(const OrderModel::Message& message) { return message.occupied + message.latency; }

// Returns by number of a pass the longest path to it, or from its end, without waits for devices.
std::vector<Ns> heads(const OrderModel& model) {
    std::vector<Ns> heads(static_cast<std::size_t>(model.passes()), 0);
    const auto from = [&](int number) {
        for (const OrderModel::Message& message : model.messages(number))
            heads[message.reader] =
                std::max(heads[message.reader], heads[number] + model.time(2 * number) + time_of(message));
    };
    for (int stage = 0; stage < model.stages(); ++stage)
        for (int mb = 0; mb < model.microbatches(); ++mb)
            from(model.number(stage, mb, 0));
    return heads;
}

// If `way_back`, only those to the end of the first stage.
std::vector<Ns> tails(const OrderModel& model, bool way_back) {
    std::vector<Ns> tails(static_cast<std::size_t>(model.passes()), 0);
    for (int stage = 0; stage < model.stages(); ++stage)
        for (int mb = 0; mb < model.microbatches(); ++mb) {
            const int input = model.number(stage, mb, 1);
            const Ns separate = model.time(2 * input) + model.time(2 * (input + 1));
            if (!way_back || stage == 0)  // of a whole B, what it takes longer than I
                tails[input] = std::max<Ns>(0, std::min(separate, model.time(2 * input + 1)) - model.time(2 * input));
            for (const OrderModel::Message& message : model.messages(input))
                if (message.reader % 3 == 1)
                    tails[input] = std::max(tails[input],
                                            time_of(message) + model.time(2 * message.reader) + tails[message.reader]);
        }
    return tails;
}

// Returns the most time that activations which fill `room` can still take: each of those before I the time `whole` of
// its visit, each of those after I, which are smaller, the time `later`.
template <class Whole, class Later>
Ns most_left(const OrderModel::Amounts& room, const std::vector<StageVisits>& own, Whole whole, Later later) {
    struct Part {
        double amount, time;
    };
    Ns least = std::numeric_limits<Ns>::max();
    for (std::size_t limit = 0; limit < OrderModel::kLimits; ++limit) {
        std::vector<Part> parts;
        double most = 0;
        for (const StageVisits& stage : own) {
            const auto all = static_cast<double>(stage.held.after_forward[limit]);
            const auto small = static_cast<double>(stage.held.after_input[limit]);
            for (const Visit& visit : stage.visits) {
                const auto rest = static_cast<double>(later(stage, visit));
                const double both = std::max(rest, static_cast<double>(whole(stage, visit)));
                if (rest * all > both * small)  // the small part takes more time for its room
                    parts.insert(parts.end(), {{small, rest}, {all - small, both - rest}});
                else
                    parts.push_back({all, both});
            }
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
        least = std::min(least, static_cast<Ns>(most * (1 + 1e-12)));
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

// Returns by stage the longest path from the start of F on `first` to that of F there; -1 for none.
std::vector<Ns> paths_from(const OrderModel& model, int first, int mb) {
    std::vector<Ns> paths(static_cast<std::size_t>(model.stages()), -1);
    paths[first] = 0;
    for (int stage = first; stage < model.stages(); ++stage)
        for (const OrderModel::Message& message : model.messages(model.number(stage, mb, 0)))
            if (message.reader % 3 == 0 && paths[stage] >= 0) {
                Ns& path = paths[model.stage_of(message.reader)];
                path = std::max(path, paths[stage] + model.time(2 * model.number(stage, mb, 0)) + time_of(message));
            }
    return paths;
}

OrderModel::Amounts least_held(const std::vector<StageVisits>& own) {
    OrderModel::Amounts least = own.front().held.after_forward;
    for (const StageVisits& stage : own)
        for (std::size_t limit = 0; limit < OrderModel::kLimits; ++limit)
            least[limit] = std::min(least[limit], stage.held.after_forward[limit]);
    return least;
}

std::int64_t count_of(const std::vector<StageVisits>& own) {
    std::int64_t count = 0;
    for (const StageVisits& stage : own)
        count += std::ssize(stage.visits);
    return count;
}

std::int64_t most_in_flight(const OrderModel::Amounts& room, const std::vector<StageVisits>& own) {
    std::int64_t most = count_of(own);
    const OrderModel::Amounts held = least_held(own);
    for (std::size_t limit = 0; limit < OrderModel::kLimits; ++limit) {
        std::int64_t more = std::numeric_limits<std::int64_t>::max();
        for (const StageVisits& stage : own)
            more = std::min(more, stage.held.by_forward[limit]);
        if (held[limit] > 0)
            most = std::min(most, (room[limit] - more) / held[limit]);
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
// W of the others that it holds then.
Ns last_wait(const OrderModel::Amounts& room, const std::vector<StageVisits>& own) {
    OrderModel::Amounts others = room;
    const OrderModel::Amounts held = least_held(own);
    for (std::size_t limit = 0; limit < OrderModel::kLimits; ++limit)
        others[limit] -= held[limit];
    Ns most = most_left(
        others, own,
        [](const StageVisits& stage, const Visit& visit) {
            return std::max(visit.input + visit.weight, visit.backward) + stage.accumulate;
        },
        [](const StageVisits& stage, const Visit& visit) { return visit.weight + stage.accumulate; });
    for (const StageVisits& stage : own)
        most += own.size() > 1 ? stage.update : 0;
    return std::max<Ns>(0, least_of(own, &Visit::trip) - most);
}

// Returns the least times by the waits of a device whose first F starts at `head`. If there is no room for all, its
// last F follows an I, so that the waits before its first I and after its last F are apart. After the last F there is a
// way back from that micro-batch's I, and after the last I from that one; what the device has left to do then is at
// most what its room can hold. If one device starts and ends every path, its span contains all of them.
StepTimes times_by_waits(const OrderModel::Amounts& room, const std::vector<StageVisits>& own, Ns work, Ns head,
                         bool starts_alone) {
    const std::int64_t most = most_in_flight(room, own);
    const Ns first = first_wait(most, own), last = last_wait(room, own);
    const bool apart = most < count_of(own);
    const Ns waits = apart ? first + last : std::max(first, last);
    const auto rest = [](const StageVisits& stage, const Visit& visit) { return visit.rest() + stage.accumulate; };
    const auto backward = [](const StageVisits& stage, const Visit& visit) {
        return visit.backward + stage.accumulate;
    };
    Ns rests = sum_of(own, &Visit::rest), backwards = sum_of(own, &Visit::backward);
    for (const StageVisits& stage : own) {
        const Ns accumulated = (std::ssize(stage.visits) - 1) * stage.accumulate;
        rests += accumulated;
        backwards += accumulated;
    }
    const Ns forwards = head + sum_of(own, &Visit::forward);
    const Ns until_last_forward =
        forwards + std::max<Ns>(0, backwards - most_left(room, own, backward, rest)) + (apart ? first : 0);
    const Ns until_last_input =
        forwards + sum_of(own, &Visit::input) + waits + std::max<Ns>(0, rests - most_left(room, own, rest, rest));
    const auto whole_way = [&](Ns Visit::*const tail) {
        const auto from_forward = [&](const Visit& visit) { return visit.trip + visit.input + visit.*tail; };
        return std::max(until_last_forward + least_of(own, from_forward), until_last_input + least_of(own, tail));
    };
    return {std::max(head + work + waits, whole_way(&Visit::tail)),
            std::max(work + waits, starts_alone ? whole_way(&Visit::way_back) : 0)};
}

// Activations that are held for at least a time each need a span in which the room holds them all.
Ns span_of_room(const OrderModel::Amounts& room, const std::vector<StageVisits>& own) {
    double span = 0;
    for (std::size_t limit = 0; limit < OrderModel::kLimits; ++limit) {
        double held = 0;
        for (const StageVisits& stage : own)
            for (const Visit& visit : stage.visits) {
                const auto all = static_cast<double>(stage.held.after_forward[limit]);
                const auto later = static_cast<double>(stage.held.after_input[limit]);
                const Ns until = visit.forward + visit.trip + visit.input;
                const Ns more = std::max<Ns>(0, visit.backward - visit.input);
                held += all * static_cast<double>(until) + later * static_cast<double>(more);
            }
        span = std::max(span, held / static_cast<double>(room[limit]));
    }
    return static_cast<Ns>(std::ceil(span * (1 - 1e-12)));  // of whole nanoseconds
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
        Ns work = 0, first = std::numeric_limits<Ns>::max();
        std::vector<std::vector<Ns>> leads;  // by micro-batch
        const int first_stage = model.stages_on(device).empty() ? 0 : model.stages_on(device).front();
        for (int mb = 0; model.stages_on(device).size() > 1 && mb < model.microbatches(); ++mb)
            leads.push_back(paths_from(model, first_stage, mb));
        for (const int stage : model.stages_on(device)) {
            StageVisits own{model.held(stage), 0, 0, {}};
            for (int mb = 0; mb < model.microbatches(); ++mb) {
                const int number = model.number(stage, mb, 0);
                if (model.device_of(number) != device)
                    continue;
                const Ns input = model.time(2 * (number + 1)), weight = model.time(2 * (number + 2));
                own.visits.push_back({model.time(2 * number), input, weight,
                                      std::min(input + weight, model.time(2 * (number + 1) + 1)), head[number],
                                      trips[mb][stage], tail[number + 1], way_back[number + 1], 0});
                if (stage != first_stage && model.device_of(model.number(first_stage, mb, 0)) == device)
                    own.visits.back().lead = std::max<Ns>(0, leads[mb][stage]);
                const Visit& visit = own.visits.back();
                work += visit.forward + visit.backward;
                first = std::min(first, visit.head);
                all.step = std::max(all.step, visit.head + visit.forward + visit.trip + visit.input + visit.tail);
            }
            const auto served = static_cast<int>(own.visits.size());
            if (served == 0)
                continue;
            own.accumulate = model.closing_time(stage, device, served);
            own.update = model.closing_time(stage, device, served - 1) - (served > 1 ? own.accumulate : 0);
            work += (served - 1) * own.accumulate + own.update;
            stages.push_back(std::move(own));
        }
        if (stages.empty())
            continue;
        const Ns span = span_of_room(model.room(device), stages);
        const StepTimes by_waits = times_by_waits(model.room(device), stages, work, first, starts_alone);
        all = {std::max({all.step, by_waits.step, first + span}), std::max({all.span, by_waits.span, span})};
    }
    return all;
}

StepTimes least_times(const OrderModel& model, const StepTimes& found) {
    StepTimes least = least_times(model);
    if (least.step < found.step || least.span < found.span) {
        const Ns by_crossings = least_time_by_crossings(model, found.step);
        least = {std::max(least.step, by_crossings), std::max(least.span, by_crossings)};
    }
    if (least.step < found.step && search_all_orders(model, Aim::Step, found.step - 1, kProvingTries).none)
        least.step = found.step;
    if (least.span < found.span && search_all_orders(model, Aim::Span, found.span - 1, kProvingTries).none)
        least.span = found.span;
    return least;
}

}  // namespace pw

#include "schedules/orders/order_bound.h"

#include "schedules/orders/crossing_bound.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace pw {

namespace {

// The passes of one micro-batch on a stage, with the paths that lead to its F and from its I.
struct Visit {
    Ns forward, input, weight, backward;  // backward: the shorter of B, and I and W
    Ns head, trip, tail;                  // until F starts, from its end to I, from the end of I
    Ns lead;                              // from the start of F on the device's first stage to that of this F
};

// The visits of one stage on a device.
struct StageVisits {
    int stage;
    OrderModel::Held held;
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

std::vector<Ns> tails(const OrderModel& model) {
    std::vector<Ns> tails(static_cast<std::size_t>(model.passes()), 0);
    for (int stage = 0; stage < model.stages(); ++stage)
        for (int mb = 0; mb < model.microbatches(); ++mb) {
            const int input = model.number(stage, mb, 1);
            const Ns separate = model.time(2 * input) + model.time(2 * (input + 1));
            // of a whole B, what it takes longer than I
            tails[input] = std::max<Ns>(0, std::min(separate, model.time(2 * input + 1)) - model.time(2 * input));
            for (const OrderModel::Message& message : model.messages(input))
                if (message.reader % 3 == 1)
                    tails[input] = std::max(tails[input],
                                            time_of(message) + model.time(2 * message.reader) + tails[message.reader]);
        }
    return tails;
}

// The most work in the passes I and W of activations that fill `room`, which F has taken before. Those of which I has
// run take less of it.
Ns most_backward_work(const OrderModel::Amounts& room, const StageVisits& own) {
    Ns weight = 0, both = 0;
    for (const Visit& visit : own.visits) {
        weight = std::max(weight, visit.weight);
        both = std::max({both, visit.input + visit.weight, visit.backward});
    }
    const auto others = static_cast<std::int64_t>(own.visits.size()) - 1;
    Ns least = others * both;
    for (std::size_t limit = 0; limit < OrderModel::kLimits; ++limit) {
        const std::int64_t all = own.held.from_forward[limit], later = all - own.held.freed_by_input[limit];
        if (all == 0)
            continue;
        Ns most = 0;
        const std::int64_t left = room[limit] - all;
        for (std::int64_t whole = 0; whole <= std::min(others, left / all); ++whole) {
            const std::int64_t halves = later == 0 ? others : (left - whole * all) / later;
            most = std::max(most, whole * both + std::min(halves, others - whole) * weight);
        }
        least = std::min(least, most);
    }
    return least;
}

std::int64_t most_in_flight(const OrderModel::Amounts& room, const StageVisits& own) {
    auto most = static_cast<std::int64_t>(own.visits.size());
    for (std::size_t limit = 0; limit < OrderModel::kLimits; ++limit)
        if (own.held.from_forward[limit] > 0)
            most = std::min(most, room[limit] / own.held.from_forward[limit]);
    return most;
}

template <class Value>
Ns least_of(const StageVisits& own, Value value) {
    Ns least = std::numeric_limits<Ns>::max();
    for (const Visit& visit : own.visits)
        least = std::min(least, std::invoke(value, visit));
    return least;
}

template <class Value>
Ns sum_of(const StageVisits& own, Value value) {
    Ns sum = 0;
    for (const Visit& visit : own.visits)
        sum += std::invoke(value, visit);
    return sum;
}

// Adds the waits of a device with one stage. Until its first I starts, only as many F run as there is room for. From
// the end of its last F to the I of that micro-batch, it can only run I and W of the others that it holds then. If
// there is no room for all, the last F follows a W, so that both times are apart. If one device starts and ends every
// path, its span contains all of them.
StepTimes times_of_one_stage(const OrderModel::Amounts& room, const StageVisits& own, Ns work, Ns head,
                             bool starts_alone) {
    const std::int64_t most = most_in_flight(room, own);
    std::vector<Ns> forwards, weights;
    for (const Visit& visit : own.visits) {
        forwards.push_back(visit.forward);
        weights.push_back(visit.weight);
    }
    std::sort(forwards.rbegin(), forwards.rend());
    std::sort(weights.begin(), weights.end());
    Ns first = least_of(own, [](const Visit& visit) { return visit.forward + visit.trip; });
    for (std::int64_t k = 0; k < most; ++k)
        first -= forwards[static_cast<std::size_t>(k)];
    first = std::max<Ns>(first, 0);
    const Ns last = std::max<Ns>(0, least_of(own, &Visit::trip) - most_backward_work(room, own));
    const bool apart = most < std::ssize(own.visits);
    const Ns waits = apart ? first + last : std::max(first, last);
    // the last I, and the way back from it
    Ns until_input = sum_of(own, &Visit::forward) + sum_of(own, &Visit::input) + waits;
    const bool whole =
        least_of(own, [](const Visit& visit) { return visit.input + visit.weight - visit.backward; }) < 0;
    for (std::size_t k = 0; !whole && static_cast<std::int64_t>(k) < std::ssize(weights) - most; ++k)
        until_input += own.held.freed_by_input == OrderModel::Amounts{} ? weights[k] : 0;
    const Ns whole_way = head + until_input + least_of(own, &Visit::tail);
    return {std::max(head + work + waits, whole_way), std::max(work + waits, starts_alone ? whole_way : 0)};
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

// Returns how long a device with several stages waits at least before its first I: until then it runs only as many F as
// there is room for. A micro-batch that it has on its first stage, too, begins there.
Ns first_wait(const OrderModel& model, int device, const std::vector<StageVisits>& own) {
    std::vector<Ns> forwards;
    OrderModel::Amounts least_held = own.front().held.from_forward;
    std::int64_t most = 0;
    Ns first = std::numeric_limits<Ns>::max();
    for (const StageVisits& stage : own) {
        most += std::ssize(stage.visits);
        for (std::size_t limit = 0; limit < OrderModel::kLimits; ++limit)
            least_held[limit] = std::min(least_held[limit], stage.held.from_forward[limit]);
        for (const Visit& visit : stage.visits) {
            forwards.push_back(visit.forward);
            first = std::min(first, visit.lead + visit.forward + visit.trip);
        }
    }
    for (std::size_t limit = 0; limit < OrderModel::kLimits; ++limit)
        if (least_held[limit] > 0)
            most = std::min(most, model.room(device)[limit] / least_held[limit]);
    std::ranges::nth_element(forwards, forwards.begin() + most, std::greater<>());
    for (std::int64_t k = 0; k < most; ++k)
        first -= forwards[static_cast<std::size_t>(k)];
    return std::max<Ns>(first, 0);
}

// Activations that are held for at least a time each need a span in which the room holds them all.
Ns span_of_room(const OrderModel::Amounts& room, const std::vector<StageVisits>& own) {
    double span = 0;
    for (std::size_t limit = 0; limit < OrderModel::kLimits; ++limit) {
        double held = 0;
        for (const StageVisits& stage : own)
            for (const Visit& visit : stage.visits) {
                const auto all = static_cast<double>(stage.held.from_forward[limit]);
                const double later = all - static_cast<double>(stage.held.freed_by_input[limit]);
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
    const std::vector<Ns> head = heads(model), tail = tails(model);
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
            StageVisits own{stage, model.held(stage), {}};
            for (int mb = 0; mb < model.microbatches(); ++mb) {
                const int number = model.number(stage, mb, 0);
                if (model.device_of(number) != device)
                    continue;
                const Ns input = model.time(2 * (number + 1)), weight = model.time(2 * (number + 2));
                own.visits.push_back({model.time(2 * number), input, weight,
                                      std::min(input + weight, model.time(2 * (number + 1) + 1)), head[number],
                                      trips[mb][stage], tail[number + 1], 0});
                if (stage != first_stage && model.device_of(model.number(first_stage, mb, 0)) == device)
                    own.visits.back().lead = std::max<Ns>(0, leads[mb][stage]);
                const Visit& visit = own.visits.back();
                work += visit.forward + visit.backward;
                first = std::min(first, visit.head);
                all.step = std::max(all.step, visit.head + visit.forward + visit.trip + visit.input + visit.tail);
            }
            const auto served = static_cast<int>(own.visits.size());
            for (int k = 0; k < served; ++k)
                work += model.closing_time(stage, device, k);
            if (served > 0)
                stages.push_back(std::move(own));
        }
        if (stages.empty())
            continue;
        const Ns span = span_of_room(model.room(device), stages);
        Ns busy = std::max(work, span);
        if (stages.size() > 1)
            busy = std::max(busy, work + first_wait(model, device, stages));
        StepTimes own{first + busy, busy};
        if (stages.size() == 1) {
            const StepTimes one = times_of_one_stage(model.room(device), stages.front(), work, first, starts_alone);
            own = {std::max(own.step, one.step), std::max(own.span, one.span)};
        }
        all = {std::max(all.step, own.step), std::max(all.span, own.span)};
    }
    return all;
}

StepTimes least_times(const OrderModel& model, const StepTimes& found) {
    StepTimes least = least_times(model);
    if (least.step < found.step || least.span < found.span) {
        const Ns by_crossings = least_time_by_crossings(model, found.step);
        least = {std::max(least.step, by_crossings), std::max(least.span, by_crossings)};
    }
    return least;
}

}  // namespace pw

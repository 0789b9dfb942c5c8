// Plans of any schedule, with random shapes, modes, costs, and networks.
#pragma once

#include "schedules/memory/buffers.h"
#include "schedules/orders/schedule.h"
#include "schedules/plan/gradient_sums.h"
#include "tests/support/dice.h"
#include "tests/support/relaxed_times.h"
#include "tests/support/shapes.h"
#include "workloads/costs/slices.h"
#include "workloads/error.h"

#include <iterator>
#include <optional>
#include <vector>

namespace pw {

inline TransferMode random_mode(Random& random) {
    TransferMode mode;
    mode.communicator = static_cast<TransferMode::Communicator>(pick(random, 0, 2));
    mode.receive = static_cast<TransferMode::Receive>(pick(random, 0, 1));
    mode.protocol = pick(random, 0, 1) ? TransferMode::Protocol::Rendezvous : TransferMode::Protocol::Eager;
    if (mode.protocol == TransferMode::Protocol::Rendezvous && pick(random, 0, 1))
        mode.eager_limit = pick(random, 1, 30);
    mode.exchange = pick(random, 0, 2) ? TransferMode::Exchange::Overlapped : TransferMode::Exchange::Blocking;
    return mode;
}

inline Shape random_shape(Random& random, const Schedule& schedule) {
    Shape shape = shape_of(schedule, pick(random, 1, 6), pick(random, 1, 14));
    if (schedule.placement.name == "looped" || schedule.placement.name == "any")
        shape.stages = shape.devices * pick(random, 1, 3);
    if (schedule.takes_replicas() && pick(random, 0, 2) == 0) {
        Replicas replicas;
        for (int stage = pick(random, 1, 4); stage > 0; --stage)
            replicas.push_back(pick(random, 1, 3));
        shape = shape_of(replicas, shape.microbatches);
    } else if (!schedule.asynchronous() && pick(random, 0, 2) == 0) {
        shape.copies = pick(random, 2, 3);
        shape.devices *= shape.copies;
    }
    if (schedule.updates == Updates::PerMiniBatch)
        shape.per_update = pick(random, shape.devices, 2 * shape.devices);
    if (schedule.cuts_sequences()) {
        shape.slices = pick(random, 1, 3);
        shape.microbatches *= shape.slices;
    }
    shape.global_norm = !schedule.asynchronous() && pick(random, 0, 3) == 0;
    if (shape.stages > 2 && pick(random, 0, 3) == 0) {  // a skip past stages
        shape.edges.emplace();
        for (int stage = 1; stage < shape.stages; ++stage)
            shape.edges->push_back({stage - 1, stage});
        shape.edges->push_back({0, shape.stages - 1});
    }
    if (shape.stages > 1 && pick(random, 0, 3) == 0)
        shape.ties = {{0, shape.stages - 1}};
    return shape;
}

inline Costs random_costs(Random& random, const Shape& shape) {
    Costs costs;
    const int shortest = pick(random, 0, 1);
    for (int stage = 0; stage < shape.stages; ++stage) {
        StageCost& cost = costs.stage.emplace_back();
        for (Ns* time : {&cost.forward, &cost.backward, &cost.backward_input, &cost.backward_weight, &cost.recompute,
                         &cost.update, &cost.sum_gradients, &cost.accumulate})
            *time = pick(random, shortest, 20);
        costs.bytes.emplace_back();
        if (stage > 0)
            costs.edges.push_back({stage - 1, stage, pick(random, 0, 30), pick(random, 0, 30)});
    }
    if (shape.edges)
        costs.edges.push_back({0, shape.stages - 1, pick(random, 0, 30), pick(random, 0, 30)});
    if (pick(random, 0, 1))
        costs.last = costs.stage;
    if (pick(random, 0, 2) == 0)
        for (int microbatch = pick(random, 1, shape.microbatches); microbatch > 0; --microbatch)
            costs.lengths.push_back({pick(random, 1, 30) * 0.1, pick(random, 1, 30) * 0.1, pick(random, 1, 3) * 0.5,
                                     pick(random, 1, 3) * 0.5});
    ClusterEdit(costs)->link = {.latency = pick(random, 0, 1) * pick(random, 0, 40),
                                .bandwidth = 1e9 / pick(random, 1, 3)};
    if (pick(random, 0, 1)) {
        std::vector<double> speeds;
        for (int device = 0; device < shape.devices; ++device)
            speeds.push_back(pick(random, 5, 20) * 0.1);
        ClusterEdit(costs)->set_speeds(speeds);
    }
    costs.dispatch = pick(random, 0, 2);
    costs.sent_copies = pick(random, 0, 1) != 0;
    cut_in_slices(costs, slice_ends(shape.slices, 0));
    return costs;
}

inline RelaxedTimes::Latency latency_of(const Costs& costs) {
    return [&costs](int from, int to) { return costs.cluster->link_of(from, to).latency; };
}

// Places the devices on hosts, whose messages may share the ways out and in, and adds other shared capacities and sums
// that are messages too.
inline void add_network(Random& random, const Shape& shape, Costs& costs) {
    if (pick(random, 0, 2) == 0)
        return;
    const auto any_devices = [&] {
        std::vector<int> devices;
        for (int device = 0; device < shape.devices; ++device)
            if (pick(random, 0, 1))
                devices.push_back(device);
        return devices;
    };
    const auto any_bandwidth = [&] { return 1e9 / pick(random, 1, 3); };
    for (int device = 0; device < shape.devices; ++device)
        ClusterEdit(costs)->host.push_back(pick(random, 0, 2));
    ClusterEdit(costs)->between_hosts = {.latency = pick(random, 0, 40)};
    if (pick(random, 0, 1))
        ClusterEdit(costs)->between_hosts->bandwidth = any_bandwidth();
    if (pick(random, 0, 2) == 0)
        ClusterEdit(costs)->between_hosts->half_size = pick(random, 1, 30);
    for (int count = pick(random, 0, 2); count > 0; --count)
        ClusterEdit(costs)->shared.push_back(
            {static_cast<Capacity::Of>(pick(random, 0, 2)), any_devices(), any_bandwidth()});
    if (pick(random, 0, 2) == 0 && shape.devices > 1)
        ClusterEdit(costs)->own_links[{pick(random, 1, shape.devices - 1), 0}] = {.latency = pick(random, 0, 40),
                                                                                  .bandwidth = any_bandwidth()};
    ClusterEdit(costs)->sums = costs.cluster->link;
    for (StageBytes& bytes : costs.bytes)
        bytes.weights = pick(random, 0, 60);
    costs.zero = pick(random, 0, 2) == 0 ? 1 : 0;
    if (pick(random, 0, 1))
        add_gradient_sums(costs, shape, {}, static_cast<SumAlgorithm>(pick(random, 0, 2)));
}

// Lets the devices of a host slow each other down, and messages slow the devices down.
inline void add_neighbours(Random& random, Costs& costs) {
    if (pick(random, 0, 1)) {
        costs.busy = costs.stage;
        for (StageCost& cost : costs.busy)
            for (Ns* time : {&cost.forward, &cost.backward, &cost.backward_input, &cost.backward_weight})
                *time += pick(random, 0, 20);
        costs.busy_last = costs.last.empty() ? costs.last : costs.busy;
    }
    if (pick(random, 0, 3) == 0)
        costs.mover_share = pick(random, 1, 8) * 0.1;
    if (pick(random, 0, 3) == 0)
        costs.sum_bucket = pick(random, 1, 60);
}

struct Drawn {
    Plan plan;
    Costs costs;
    TransferMode mode;  // with the copies that the costs ask for
};

// Returns nothing if the schedule is not defined for the drawn shape.
inline std::optional<Drawn> draw(Random& random) {
    const Schedule& schedule = schedules()[static_cast<std::size_t>(pick(random, 0, std::ssize(schedules()) - 1))];
    PlanOptions options;
    options.transfers = random_mode(random);
    const Shape shape = random_shape(random, schedule);
    if (pick(random, 0, 2) == 0)
        options.recompute.stages = {pick(random, 0, shape.stages - 1)};
    Drawn drawn;
    try {
        drawn.plan = make_plan(schedule, shape, options);
    } catch (const Error&) {
        return std::nullopt;
    }
    drawn.costs = random_costs(random, drawn.plan.shape);
    drawn.mode = options.transfers;
    drawn.mode.sent_copies = keeps_copies(drawn.costs, drawn.mode.early_receive());
    return drawn;
}

}  // namespace pw

// Arrival times of messages that all leave at once, each from a device of its own or not.
#pragma once

#include "schedules/orders/schedule.h"
#include "sim/simulate.h"
#include "tests/support/shapes.h"

#include <map>
#include <utility>
#include <vector>

namespace pw {

inline constexpr Ns kForward = 100, kLatency = 10;

struct Message {
    int from, to;  // stages, each on a device of its own
    Bytes bytes;   // over a link of 1 GB/s as many nanoseconds alone
};

// Returns costs of links of 1 GB/s.
inline Costs costs_of_messages(int stages) {
    Costs costs = uniform(stages, kForward, 0, 0);
    ClusterEdit(costs)->link = {.latency = kLatency, .bandwidth = 1e9};
    return costs;
}

// Returns the arrival time of each message, less the latency. All leave stages without inputs, which end at kForward.
inline std::vector<Ns> arrivals_of(const std::vector<Message>& messages, Costs costs) {
    Shape shape;
    shape.devices = shape.stages = static_cast<int>(costs.stage.size());
    shape.microbatches = 1;
    shape.edges.emplace();
    for (const Message& message : messages) {
        shape.edges->push_back({message.from, message.to});
        costs.edges.push_back({message.from, message.to, message.bytes, 0});
    }
    const Plan plan = make_plan(schedule_named("forward-only"), shape, {});
    std::map<std::pair<int, int>, Ns> ends;
    for (const TraceEvent& event : simulate(plan, costs).events)
        if (event.task.op == Op::RecvForward)
            ends[{event.task.peer, event.task.stage}] = event.end;
    std::vector<Ns> arrivals;
    for (const Message& message : messages)
        arrivals.push_back(ends.at({message.from, message.to}) - kForward -
                           costs.cluster->link_of(message.from, message.to).latency);
    return arrivals;
}

}  // namespace pw

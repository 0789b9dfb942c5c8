#include "schedules/orders/order_costs.h"

#include "schedules/plan/durations.h"
#include "schedules/plan/shape_index.h"
#include "workloads/bounded.h"
#include "workloads/cluster/cluster.h"

#include <algorithm>

namespace pw {

OrderCosts order_costs(const Shape& shape, const Costs& costs, std::vector<Bytes> memory) {
    const ShapeIndex index(shape);
    const Traffic traffic(shape, index, costs);
    const Cluster& cluster = *costs.cluster;
    OrderCosts all{{}, {}, costs.bytes, std::move(memory)};
    const auto time_of = [&](const Task& send, int from, int to) {
        const Link& link = cluster.link_of(from, to);
        return bounded_sum(occupation_of(traffic.bytes(send), link, cluster.routes.most(from, to)), link.latency);
    };
    for (int stage = 0; stage < shape.stages; ++stage)
        for (const int device : index.devices_of(stage)) {
            const auto on_device = [&](Op op) { return duration_of(op, stage, device, costs); };
            all.times[{stage, device}] = {on_device(Op::Forward), on_device(Op::Backward), on_device(Op::BackwardInput),
                                          on_device(Op::BackwardWeight)};
            for (const int peer : index.after(stage))
                for (const int other : index.devices_of(peer)) {
                    if (other == device)
                        continue;
                    const OrderCosts::Holder here{stage, device}, there{peer, other};
                    all.messages[{here, there}] = time_of({Op::SendForward, stage, 0, 0, peer}, device, other);
                    all.messages[{there, here}] = time_of({Op::SendBackward, peer, 0, 0, stage}, other, device);
                }
        }
    return all;
}

OrderCosts costs_of_copies(const OrderCosts& all, int copies) {
    using Holder = OrderCosts::Holder;
    const auto own = [&](const Holder& holder) { return Holder{holder.stage, holder.device / copies}; };
    const auto raise = [](Ns& time, Ns other) { time = std::max(time, other); };
    OrderCosts one{{}, {}, all.bytes, {}};
    for (const auto& [holder, times] : all.times) {
        OrderCosts::Times& longest = one.times[own(holder)];
        raise(longest.forward, times.forward);
        raise(longest.backward, times.backward);
        raise(longest.backward_input, times.backward_input);
        raise(longest.backward_weight, times.backward_weight);
    }
    for (const auto& [ends, time] : all.messages)
        if (ends.first.device % copies == ends.second.device % copies)
            raise(one.messages[{own(ends.first), own(ends.second)}], time);
    for (auto first = all.memory.begin(); first != all.memory.end(); first += copies)
        one.memory.push_back(*std::min_element(first, first + copies));
    return one;
}

}  // namespace pw

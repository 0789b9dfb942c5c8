#include "schedules/orders/order_costs.h"

#include "schedules/plan/durations.h"
#include "schedules/plan/shape_index.h"
#include "workloads/bounded.h"
#include "workloads/cluster/cluster.h"

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

OrderCosts costs_of_copy(const OrderCosts& all, int copies, int copy) {
    using Holder = OrderCosts::Holder;
    const auto is_here = [&](const Holder& holder) { return holder.device % copies == copy; };
    const auto own = [&](const Holder& holder) { return Holder{holder.stage, holder.device / copies}; };
    OrderCosts one{{}, {}, all.bytes, {}};
    for (const auto& [holder, times] : all.times)
        if (is_here(holder))
            one.times[own(holder)] = times;
    for (const auto& [ends, time] : all.messages)
        if (is_here(ends.first) && is_here(ends.second))
            one.messages[{own(ends.first), own(ends.second)}] = time;
    for (std::size_t device = static_cast<std::size_t>(copy); device < all.memory.size();
         device += static_cast<std::size_t>(copies))
        one.memory.push_back(all.memory[device]);
    return one;
}

}  // namespace pw

#include "schedules/orders/order_costs.h"

#include "schedules/plan/durations.h"
#include "schedules/plan/shape_index.h"
#include "schedules/plan/traffic.h"
#include "workloads/bounded.h"
#include "workloads/cluster/cluster.h"

#include <algorithm>

namespace pw {

OrderCosts order_costs(const Shape& shape, const Costs& costs, std::vector<Bytes> memory,
                       const Recomputation& recomputation) {
    const ShapeIndex index(shape);
    const Traffic traffic(shape, index, costs);
    const Cluster& cluster = *costs.cluster;
    OrderCosts all{{}, {}, {}, costs.lengths, costs.bytes, std::move(memory), recomputation.stages, costs.edges};
    for (StageBytes& bytes : all.bytes)
        bytes.training = bytes.training.value_or(training_bytes(bytes.weights, costs.optimizer));
    const auto add = [&](const OrderCosts::Holder& from, const OrderCosts::Holder& to, Bytes bytes) {
        const Link& link = cluster.link_of(from.device, to.device);
        const Ns occupied = occupation_of(bytes, link, cluster.routes.most(from.device, to.device));
        all.occupations[{from, to}] = occupied;
        all.messages[{from, to}] = bounded_sum(occupied, link.latency);
    };
    Costs full;
    if (!costs.lengths.empty()) {
        full = costs;
        full.lengths.clear();
    }
    for (int stage = 0; stage < shape.stages; ++stage)
        for (const int device : index.devices_of(stage)) {
            const auto on_device = [&](Op op) {
                return duration_of(op, stage, device, costs.lengths.empty() ? costs : full);
            };
            const bool recomputes = std::ranges::binary_search(recomputation.stages, stage);
            const double accumulate = static_cast<double>(costs.stage[stage].accumulate) / cluster.speed_of(device);
            all.times[{stage, device}] = {on_device(Op::Forward),
                                          on_device(Op::Backward),
                                          on_device(Op::BackwardInput),
                                          on_device(Op::BackwardWeight),
                                          bounded(accumulate),
                                          on_device(Op::Update),
                                          recomputes ? on_device(Op::Recompute) : 0};
            for (const int peer : index.after(stage))
                for (const int other : index.devices_of(peer)) {
                    if (other == device)
                        continue;
                    const OrderCosts::Holder here{stage, device}, there{peer, other};
                    add(here, there, traffic.bytes({Op::SendForward, stage, 0, 0, peer}));
                    add(there, here, traffic.bytes({Op::SendBackward, peer, 0, 0, stage}));
                }
        }
    return all;
}

namespace {

struct PassTime {
    Op op;
    Ns OrderCosts::Times::*time;
};
constexpr PassTime kPassTimes[] = {{Op::Forward, &OrderCosts::Times::forward},
                                   {Op::Backward, &OrderCosts::Times::backward},
                                   {Op::BackwardInput, &OrderCosts::Times::backward_input},
                                   {Op::BackwardWeight, &OrderCosts::Times::backward_weight}};

}  // namespace

KnownTimes known_times(const OrderCosts& costs) {
    const auto time = [&costs](const Task& task, int device) {
        const auto own = costs.times.find({task.stage, device});
        const auto pass = std::ranges::find(kPassTimes, task.op, &PassTime::op);
        return own == costs.times.end() || pass == std::end(kPassTimes) ? Ns{0} : own->second.*pass->time;
    };
    const auto message = [&costs](const Task& from, int sender, const Task& to, int receiver) {
        const auto own = costs.messages.find({{from.stage, sender}, {to.stage, receiver}});
        return own == costs.messages.end() ? Ns{0} : own->second;
    };
    return {time, message};
}

OrderCosts costs_of_copies(const OrderCosts& all, int copies) {
    using Holder = OrderCosts::Holder;
    const auto own = [&](const Holder& holder) { return Holder{holder.stage, holder.device / copies}; };
    const auto raise = [](Ns& time, Ns other) { time = std::max(time, other); };
    OrderCosts one{{}, {}, {}, {}, all.bytes, {}, all.recomputed, all.edges};
    const auto longest = [](MicroBatchLength& length, const MicroBatchLength& other) {
        for (double MicroBatchLength::*const part : {&MicroBatchLength::forward, &MicroBatchLength::backward_input,
                                                     &MicroBatchLength::backward_weight, &MicroBatchLength::bytes})
            length.*part = std::max(length.*part, other.*part);
    };
    for (const auto& [holder, times] : all.times) {
        OrderCosts::Times& most = one.times[own(holder)];
        raise(most.forward, times.forward);
        raise(most.backward, times.backward);
        raise(most.backward_input, times.backward_input);
        raise(most.backward_weight, times.backward_weight);
        raise(most.accumulate, times.accumulate);
        raise(most.update, times.update);
        raise(most.recompute, times.recompute);
    }
    for (auto part : {&OrderCosts::messages, &OrderCosts::occupations})
        for (const auto& [ends, time] : all.*part)
            if (ends.first.device % copies == ends.second.device % copies)
                raise((one.*part)[{own(ends.first), own(ends.second)}], time);
    for (std::size_t mb = 0; mb < all.lengths.size(); ++mb) {
        if (mb % static_cast<std::size_t>(copies) == 0)
            one.lengths.push_back(all.lengths[mb]);
        longest(one.lengths.back(), all.lengths[mb]);
    }
    for (auto first = all.memory.begin(); first != all.memory.end(); first += copies)
        one.memory.push_back(*std::min_element(first, first + copies));
    return one;
}

}  // namespace pw

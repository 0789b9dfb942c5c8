#include "schedules/orders/order_costs.h"

#include "schedules/memory/held.h"
#include "schedules/plan/durations.h"
#include "schedules/plan/shape_index.h"
#include "schedules/plan/traffic.h"
#include "workloads/bounded.h"
#include "workloads/cluster/cluster.h"
#include "workloads/rounding.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

namespace pw {

namespace {

// A micro-batch of each class.
std::vector<int> examples_of(const std::vector<int>& classes) {
    std::vector<int> examples;
    for (std::size_t mb = 0; mb < classes.size(); ++mb)
        if (classes[mb] == std::ssize(examples))
            examples.push_back(static_cast<int>(mb));
    return examples.empty() ? std::vector<int>{0} : examples;
}

// A pass takes its time alone, or the time while other devices compute, if that is less.
OrderCosts::Times times_of(int stage, int device, int microbatch, bool recomputes, const Costs& costs) {
    const auto time = [&](Op op, bool accumulates = false) {
        const Ns alone = duration_of(op, stage, device, costs, microbatch, accumulates);
        return costs.busy.empty()
                   ? alone
                   : std::min(alone, duration_of(op, stage, device, costs, true, microbatch, accumulates));
    };
    OrderCosts::Times times{time(Op::Forward), time(Op::Backward), time(Op::BackwardInput), time(Op::BackwardWeight)};
    times.added_to_backward = time(Op::Backward, true) - times.backward;
    times.added_to_weight = time(Op::BackwardWeight, true) - times.backward_weight;
    times.recompute = recomputes ? time(Op::Recompute) : 0;
    return times;
}

// The tensors of a micro-batch on a stage, with their sizes.
std::vector<HeldTensor> tensors_of(int stage, int microbatch, bool recomputes, const Costs& costs) {
    const auto activations = activations_of(costs.bytes[static_cast<std::size_t>(stage)], recomputes, false);
    std::vector<HeldTensor> all(activations.begin(), activations.end());
    for (const EdgeBytes& edge : costs.edges) {
        if (edge.to == stage)
            all.push_back(landing_of(edge, true));
        if (edge.from == stage)
            all.push_back(landing_of(edge, false));
    }
    for (HeldTensor& tensor : all) {
        tensor.bytes = scaled_bytes(tensor.bytes, costs.length_of(microbatch, stage).bytes);
        for (Moment* const moment : {&tensor.from, &tensor.last})
            if (!recomputes && *moment == Moment::Again)
                *moment = Moment::Forward;
    }
    return all;
}

OrderCosts::Held held_by(int stage, int microbatch, bool recomputes, const Costs& costs) {
    const std::vector<HeldTensor> tensors = tensors_of(stage, microbatch, recomputes, costs);
    // Returns what lives from a pass until `last`, or longer.
    const auto held = [&](Moment from, Moment last, bool whole = false) {
        Bytes sum = 0;
        for (const HeldTensor& tensor : tensors)
            if (tensor.from <= from && tensor.last >= last && !(whole && tensor.use == BufferUse::GradientKept))
                sum = bounded_sum(sum, tensor.bytes);
        return sum;
    };
    using enum Moment;
    const Bytes after_forward = held(Forward, Again), again = recomputes ? held(Again, Again) : after_forward;
    const auto more = [&](Bytes needed) { return std::max(again, needed) - after_forward; };
    return {.after_forward = after_forward,
            .after_input = held(Input, Weight),
            .by_forward = held(Forward, Forward) - after_forward,
            .by_input = more(held(Input, Input)),
            .by_backward = more(held(Input, Input, true))};
}

// The workspace that the passes of a micro-batch need at least: of B, or of I and W.
Bytes workspace_of_passes(int stage, int microbatch, bool recomputes, const Costs& costs) {
    const auto of = [&](Op op) { return workspace_of({op, stage, microbatch}, costs); };
    const Bytes separate = std::max(of(Op::BackwardInput), of(Op::BackwardWeight));
    return std::max({of(Op::Forward), std::min(of(Op::Backward), separate), recomputes ? of(Op::Recompute) : Bytes{0}});
}

class CostTables {
public:
    CostTables(const Shape& shape, const Costs& costs, std::vector<Bytes> memory, const Recomputation& recomputation)
        : shape_(shape), costs_(costs), recomputation_(recomputation), index_(shape), traffic_(shape, index_, costs) {
        order_.classes = classes_of(costs.lengths);
        order_.memory = std::move(memory);
        order_.recomputed = recomputation.stages;
        examples_ = examples_of(order_.classes);
    }

    OrderCosts made() {
        for (int stage = 0; stage < shape_.stages; ++stage) {
            std::vector<OrderCosts::Held>& held = order_.held.emplace_back();
            for (const int mb : examples_)
                held.push_back(held_by(stage, mb, recomputes(stage), costs_));
            for (const int device : index_.devices_of(stage)) {
                add_times({stage, device});
                for (const int peer : index_.after(stage))
                    for (const int other : index_.devices_of(peer))
                        if (other != device) {
                            add_messages({stage, device}, {peer, other}, Op::SendForward);
                            add_messages({peer, other}, {stage, device}, Op::SendBackward);
                        }
            }
        }
        for (int device = 0; device < shape_.devices; ++device)
            order_.always_held.push_back(always_held(device));
        return std::move(order_);
    }

private:
    bool recomputes(int stage) const { return std::ranges::binary_search(recomputation_.stages, stage); }

    void add_times(const OrderCosts::Holder& holder) {
        for (const int mb : examples_)
            order_.times[holder].push_back(times_of(holder.stage, holder.device, mb, recomputes(holder.stage), costs_));
        order_.updates[holder] = duration_of(Op::Update, holder.stage, holder.device, costs_);
    }

    void add_messages(const OrderCosts::Holder& from, const OrderCosts::Holder& to, Op op) {
        const Ns latency = costs_.cluster->link_of(from.device, to.device).latency;
        for (const int mb : examples_) {
            const Task send{op, from.stage, mb, 0, to.stage};
            order_.messages[{from, to}].push_back(
                {occupation_of(send, from.device, to.device, costs_, traffic_), latency, traffic_.bytes(send)});
        }
    }

    // Weights, gradients and states of the optimizer, and the workspace.
    Bytes always_held(int device) const {
        Bytes sum = 0, workspace = 0;
        for (const int stage : index_.stages_of(device)) {
            const StageBytes& bytes = costs_.bytes[static_cast<std::size_t>(stage)];
            const auto holders = static_cast<int>(index_.devices_of(stage).size());
            const HeldState state = held_state_of(stage, holders, costs_);
            sum += state.weights + state.frozen + bytes.statistics + state.gradients + state.states;
            const bool needs_again = recomputes(stage) && recomputation_.saved == 0;
            std::set<std::size_t> served;  // classes
            for (int mb = 0; mb < shape_.microbatches; ++mb)
                if (shape_.server_of(stage, mb) == device && served.insert(order_.class_of(mb)).second)
                    workspace = std::max(workspace, workspace_of_passes(stage, mb, needs_again, costs_));
        }
        return sum + workspace;
    }

    const Shape& shape_;
    const Costs& costs_;
    const Recomputation& recomputation_;
    const ShapeIndex index_;
    const Traffic traffic_;
    std::vector<int> examples_;
    OrderCosts order_;
};

}  // namespace

OrderCosts order_costs(const Shape& shape, const Costs& costs, std::vector<Bytes> memory,
                       const Recomputation& recomputation) {
    return CostTables(shape, costs, std::move(memory), recomputation).made();
}

namespace {

// The least shares of its own time that a pass takes of a pair.
class PairShares {
public:
    PairShares(const OrderCosts& order, const Costs& costs, PairPart part) : costs_(costs), part_(part) {
        for (const auto& [holder, times] : order.times)
            stages_on_[holder.device].push_back(holder.stage);
    }

    // Returns the share of a measured pair of F and B, without dispatch. From 1 on, a pair only hides a single
    // dispatch.
    std::optional<double> measured(const OrderCosts::Holder& holder, bool forward) const {
        std::optional<double> least;
        for (const int other : stages_on_.at(holder.device))
            if (const auto share =
                    measured_share_of_pair(forward ? holder.stage : other, forward ? other : holder.stage,
                                           costs_.times_on(holder.device).stage))
                least = std::min(least.value_or(*share), *share);
        return least;
    }

    // A pair takes the longer time, a share of the shorter time, and a dispatch of the two: at least the mean of 1 and
    // the share of both, and half a dispatch each. The shorter pass alone may take its share without dispatch, or no
    // time where the pair is measured.
    Ns shared(Ns time, const std::optional<double>& measured) const {
        if (part_ == PairPart::Least)
            return measured ? 0 : exposed_part(time - costs_.dispatch, costs_.pair_exposed);
        const double share = std::min((1 + costs_.pair_exposed) / 2, measured.value_or(1));
        return std::min(time, part_of(time - costs_.dispatch, share) + costs_.dispatch / 2);
    }

private:
    static Ns part_of(Ns time, double share) {
        return share == 1 ? time
                          : static_cast<Ns>(std::min(static_cast<double>(time) * share * (1 - kRounding),
                                                     static_cast<double>(kBeyond)));
    }

    const Costs& costs_;
    const PairPart part_;
    std::map<int, std::vector<int>> stages_on_;
};

}  // namespace

void hide_in_pairs(OrderCosts& order, const Costs& costs, PairPart part) {
    if (!overlaps_pairs(costs))
        return;
    const PairShares shares(order, costs, part);
    for (auto& [holder, of_classes] : order.times) {
        const auto forward = shares.measured(holder, true), backward = shares.measured(holder, false);
        for (OrderCosts::Times& times : of_classes) {
            const Ns whole = times.backward + times.added_to_backward,
                     weight = times.backward_weight + times.added_to_weight;
            times.forward = shares.shared(times.forward, forward);
            times.backward = shares.shared(times.backward, backward);
            times.backward_input = shares.shared(times.backward_input, {});
            times.backward_weight = shares.shared(times.backward_weight, {});
            times.added_to_backward = shares.shared(whole, backward) - times.backward;
            times.added_to_weight = shares.shared(weight, {}) - times.backward_weight;
        }
    }
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
        const auto of_holder = costs.times.find({task.stage, device});
        const auto pass = std::ranges::find(kPassTimes, task.op, &PassTime::op);
        return of_holder == costs.times.end() || pass == std::end(kPassTimes)
                   ? Ns{0}
                   : of_holder->second[costs.class_of(task.microbatch)].*pass->time;
    };
    const auto message = [&costs](const Task& from, int sender, const Task& to, int receiver) {
        const auto of_holders = costs.messages.find({{from.stage, sender}, {to.stage, receiver}});
        return of_holders == costs.messages.end() ? Ns{0} : of_holders->second[costs.class_of(from.microbatch)].time();
    };
    return {time, message};
}

namespace {

// The classes of the micro-batches of one copy: each stands for as many classes as there are copies.
class ClassesOfCopies {
public:
    ClassesOfCopies(const OrderCosts& all, int copies) {
        std::map<std::vector<int>, int> known;
        for (std::size_t first = 0; first < all.classes.size(); first += static_cast<std::size_t>(copies)) {
            std::vector<int> together;
            for (std::size_t mb = first; mb < std::min(all.classes.size(), first + static_cast<std::size_t>(copies));
                 ++mb)
                together.push_back(all.classes[mb]);
            const auto [found, added] = known.try_emplace(together, static_cast<int>(known.size()));
            if (added)
                together_.push_back(std::move(together));
            classes_.push_back(found->second);
        }
        if (together_.empty())
            together_.push_back({0});
    }

    const std::vector<int>& classes() const { return classes_; }

    // Raises all members of the costs of each class to the largest of the classes that it stands for.
    template <class Cost, class... Member>
    void raise(std::vector<Cost>& costs, const std::vector<Cost>& others, Member... members) const {
        costs.resize(together_.size());
        for (std::size_t at = 0; at < together_.size(); ++at)
            for (const int other : together_[at])
                ((costs[at].*members = std::max(costs[at].*members, others[static_cast<std::size_t>(other)].*members)),
                 ...);
    }

private:
    std::vector<int> classes_;                // by micro-batch of a copy
    std::vector<std::vector<int>> together_;  // by class of these
};

}  // namespace

OrderCosts costs_of_copies(const OrderCosts& all, int copies) {
    using Holder = OrderCosts::Holder;
    using Times = OrderCosts::Times;
    using Message = OrderCosts::Message;
    using Held = OrderCosts::Held;
    const auto of_copy = [&](const Holder& holder) { return Holder{holder.stage, holder.device / copies}; };
    const ClassesOfCopies classes(all, copies);
    OrderCosts one;
    one.classes = classes.classes();
    one.recomputed = all.recomputed;
    for (const auto& [holder, times] : all.times)
        classes.raise(one.times[of_copy(holder)], times, &Times::forward, &Times::backward, &Times::backward_input,
                      &Times::backward_weight, &Times::added_to_backward, &Times::added_to_weight, &Times::recompute);
    for (const auto& [holder, update] : all.updates)
        one.updates[of_copy(holder)] = std::max(one.updates[of_copy(holder)], update);
    for (const auto& [ends, messages] : all.messages)
        if (ends.first.device % copies == ends.second.device % copies)
            classes.raise(one.messages[{of_copy(ends.first), of_copy(ends.second)}], messages, &Message::occupied,
                          &Message::latency, &Message::bytes);
    for (const std::vector<Held>& held : all.held)
        classes.raise(one.held.emplace_back(), held, &Held::after_forward, &Held::after_input, &Held::by_forward,
                      &Held::by_input, &Held::by_backward);
    for (std::size_t first = 0; first < all.memory.size(); first += static_cast<std::size_t>(copies)) {
        std::size_t least = first;  // the copy with the least room
        for (std::size_t copy = first; copy < first + static_cast<std::size_t>(copies); ++copy)
            if (all.memory[copy] - all.always_held[copy] < all.memory[least] - all.always_held[least])
                least = copy;
        one.memory.push_back(all.memory[least]);
        one.always_held.push_back(all.always_held[least]);
    }
    return one;
}

}  // namespace pw

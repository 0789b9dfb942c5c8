#include "schedules/orders/order_model.h"

#include "schedules/plan/shape_index.h"
#include "workloads/bounded.h"
#include "workloads/error.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace pw {

namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max() / 4;

Ns scaled_time(Ns time, double factor) { return factor == 1 ? time : bounded(static_cast<double>(time) * factor); }

MicroBatchLength length_of(const OrderCosts& costs, int microbatch) {
    return costs.lengths.empty() ? MicroBatchLength{}
                                 : costs.lengths[static_cast<std::size_t>(microbatch) % costs.lengths.size()];
}

// The activations of a stage and the tensors that it receives, as large as those of the longest micro-batch.
OrderModel::Held held_by(int stage, const OrderCosts& costs, double longest) {
    const StageBytes& bytes = costs.bytes[static_cast<std::size_t>(stage)];
    const bool recomputes = std::ranges::binary_search(costs.recomputed, stage);
    const Bytes again = recomputes ? bytes.until_input + bytes.until_weight : 0;
    Bytes until_again = recomputes ? bytes.first_until_again : 0;
    Bytes until_input = bytes.first_until_input + (recomputes ? 0 : bytes.until_input);
    Bytes until_weight = bytes.data + bytes.first_until_weight + (recomputes ? 0 : bytes.until_weight);
    Bytes during_forward = recomputes ? 0 : bytes.first_until_again, gradient = 0, kept = bytes.gradient_kept;
    for (const EdgeBytes& edge : costs.edges) {
        if (edge.to == stage)
            (edge.forward_until_weight  ? until_weight
             : edge.forward_until_input ? until_input
             : recomputes               ? until_again
                                        : during_forward) += edge.forward;
        if (edge.from == stage)
            (edge.backward_until_weight ? kept : gradient) += edge.backward;
    }
    const auto most = [&](Bytes size) { return bounded(static_cast<double>(size) * longest); };
    return {.after_forward = {1, most(until_again + until_input + until_weight)},
            .after_input = {1, most(until_weight + (recomputes ? bytes.until_weight : 0) + kept)},
            .by_forward = {0, most(std::max(again, during_forward))},
            .by_input = {0, most(std::max(again, again + gradient + kept - until_again))},
            .by_backward = {0, most(std::max(again, again + gradient - until_again))}};
}

// What a device holds all the time: weights, gradients and states of the optimizer, and the largest workspace.
Bytes fixed_bytes(const std::vector<int>& stages, const OrderCosts& costs) {
    Bytes sum = 0, workspace = 0;
    for (const int stage : stages) {
        const StageBytes& bytes = costs.bytes[stage];
        if (std::ranges::binary_search(costs.recomputed, stage))
            workspace = std::max(workspace, bytes.recompute_workspace);
        const TrainingBytes training = bytes.training.value_or(training_bytes(bytes.weights, OptimizerKind::Sgd));
        sum += bytes.weights + bytes.statistics + training.gradients + training.states;
        for (const Bytes own :
             {bytes.forward_workspace, bytes.backward_workspace, bytes.input_workspace, bytes.weight_workspace})
            workspace = std::max(workspace, own);
    }
    return sum + workspace;
}

}  // namespace

std::int64_t OrderModel::Held::needed(Pass pass, std::size_t limit) const {
    const int kind = pass / 2 % 3;
    return kind == 0       ? after_forward[limit] + by_forward[limit]
           : pass % 2 == 1 ? by_backward[limit]
           : kind == 1     ? by_input[limit]
                           : 0;
}

std::int64_t OrderModel::Held::change(Pass pass, std::size_t limit) const {
    const int kind = pass / 2 % 3;
    return kind == 0       ? after_forward[limit]
           : pass % 2 == 1 ? -after_forward[limit]
           : kind == 1     ? after_input[limit] - after_forward[limit]
                           : -after_input[limit];
}

OrderModel::OrderModel(const Request& request)
    : costs_(*request.costs),
      devices_(request.shape.devices),
      stages_(request.shape.stages),
      microbatches_(request.shape.microbatches) {
    connect(request.shape);
    limit(request);
    room_ = all_room_;
}

void OrderModel::connect(const Shape& shape) {
    const ShapeIndex index(shape);
    const auto pairs = static_cast<std::size_t>(stages_) * static_cast<std::size_t>(microbatches_);
    device_.resize(pairs);
    times_.resize(6 * pairs);
    messages_.resize(3 * pairs);
    inputs_.assign(3 * pairs, 0);
    served_.assign(static_cast<std::size_t>(stages_ * devices_), 0);
    accumulate_ = update_ = std::vector<Ns>(served_.size(), 0);
    for (const auto& [holder, times] : costs_.times) {
        accumulate_[holder.stage * devices_ + holder.device] = times.accumulate;
        update_[holder.stage * devices_ + holder.device] = times.update;
    }
    for (int device = 0; device < devices_; ++device)
        stages_on_.emplace_back(index.stages_of(device).begin(), index.stages_of(device).end());
    std::map<std::tuple<int, int, int>, int> lanes;
    const auto send = [&](int from, int to, bool gradients) {
        const OrderCosts::Holder sender{stage_of(from), device_of(from)}, reader{stage_of(to), device_of(to)};
        Message message{to, -1, 0, 0};
        if (sender.device != reader.device) {
            message.lane =
                lanes.try_emplace({sender.device, reader.device, gradients}, std::ssize(lanes)).first->second;
            message.occupied = costs_.occupations.at({sender, reader});
            message.latency = costs_.messages.at({sender, reader}) - message.occupied;
            if (gradients)
                message.latency -=
                    scaled_time(costs_.times.at(reader).recompute, length_of(costs_, microbatch_of(to)).forward);
        }
        messages_[static_cast<std::size_t>(from)].push_back(message);
        ++inputs_[static_cast<std::size_t>(to)];
    };
    for (int stage = 0; stage < stages_; ++stage)
        for (int mb = 0; mb < microbatches_; ++mb)
            device_[static_cast<std::size_t>(number(stage, mb, 0)) / 3] = shape.server_of(stage, mb);
    for (int stage = 0; stage < stages_; ++stage)
        for (int mb = 0; mb < microbatches_; ++mb) {
            const int forward = number(stage, mb, 0), input = forward + 1, weight = forward + 2;
            ++served_[static_cast<std::size_t>(stage * devices_ + device_of(forward))];
            const OrderCosts::Times& times = costs_.times.at({stage, device_of(forward)});
            const MicroBatchLength length = length_of(costs_, mb);
            Ns* const own = &times_[2 * static_cast<std::size_t>(forward)];
            own[0] = scaled_time(times.forward, length.forward);
            own[2] = scaled_time(times.backward_input, length.backward_input);
            own[4] = scaled_time(times.backward_weight, length.backward_weight);
            own[3] = costs_.lengths.empty() ? times.backward : own[2] + own[4];
            for (const int backward : {2, 3})
                own[backward] += scaled_time(times.recompute, length.forward);
            send(forward, input, false);
            send(input, weight, false);
            for (const int peer : index.after(stage))
                send(forward, number(peer, mb, 0), false);
            for (const int peer : index.before(stage))
                send(input, number(peer, mb, 1), true);
        }
    lanes_ = static_cast<int>(lanes.size());
    std::vector<Ns> work(static_cast<std::size_t>(devices_), 0);
    for (int pass = 0; pass < passes(); ++pass)
        work[device_of(pass)] += time(2 * pass);
    for (const Ns time : work)
        slowest_work_ = std::max(slowest_work_, time / microbatches_);
}

void OrderModel::limit(const Request& request) {
    double longest = 1;
    for (const MicroBatchLength& length : costs_.lengths)
        longest = std::max(longest, length.bytes);
    for (int stage = 0; stage < stages_; ++stage)
        held_.push_back(held_by(stage, costs_, longest));
    for (int device = 0; device < devices_; ++device) {
        const Bytes memory = costs_.memory[static_cast<std::size_t>(device)];
        const bool limited = memory < std::numeric_limits<Bytes>::max();
        const std::int64_t asked = request.options.activations > 0 ? request.options.activations
                                   : limited                       ? kNoLimit
                                                                   : devices_;
        limits_bytes_ = limits_bytes_ || limited;
        add_microbatch(device);
        const Amounts& one = one_.back();
        Amounts& spare = spare_for_passes_.emplace_back();
        for (const int stage : stages_on(device))
            for (std::size_t limit = 0; limit < kLimits; ++limit) {
                const Held& own = held(stage);
                spare[limit] =
                    std::max({spare[limit], own.by_forward[limit], own.by_input[limit], own.by_backward[limit]});
            }
        all_room_.push_back(
            {std::min(kNoLimit, bounded_product(asked, one[0])),
             limited ? std::max(memory - fixed_bytes(stages_on(device), costs_), one[1] + spare[1]) : kNoLimit});
    }
}

// Not all stages of a device need to serve a micro-batch.
void OrderModel::add_microbatch(int device) {
    Amounts &one = one_.emplace_back(), &level = level_.emplace_back();
    for (int mb = 0; mb < microbatches_; ++mb)
        for (std::size_t limit = 0; limit < kLimits; ++limit) {
            std::int64_t after_forward = 0, most = 0;
            for (const int stage : stages_on(device))
                if (device_of(number(stage, mb, 0)) == device) {
                    after_forward += held(stage).after_forward[limit];
                    most += std::max(held(stage).after_forward[limit], held(stage).after_input[limit]);
                }
            one[limit] = std::max(one[limit], after_forward);
            level[limit] = std::max(level[limit], most);
        }
}

bool OrderModel::has_several_stages() const {
    return std::ranges::any_of(stages_on_, [](const std::vector<int>& stages) { return stages.size() > 1; });
}

int OrderModel::levels() const {
    std::int64_t most = 1;
    for (int device = 0; device < devices_; ++device) {
        std::int64_t least = microbatches_;
        for (std::size_t limit = 0; limit < kLimits; ++limit)
            if (const std::int64_t one = one_[device][limit]; one > 0)
                least = std::min(least, (all_room_[device][limit] - spare_for_passes_[device][limit] + one - 1) / one);
        most = std::max(most, least);
    }
    return static_cast<int>(most);
}

void OrderModel::limit_to(int microbatches, const SparedRoom& spared) {
    const bool counts = recomputes() && microbatches < levels();
    for (int device = 0; device < devices_; ++device) {
        for (std::size_t limit = 0; limit < kLimits; ++limit)
            if (all_room_[device][limit] < kNoLimit || (limit == 0 && counts))
                room_[device][limit] = std::min(
                    all_room_[device][limit], microbatches * level_[device][limit] + spare_for_passes_[device][limit]);
        if (spared.bytes.empty())
            continue;
        room_[device] = {
            std::max(std::min(room_[device][0], spared.most[device]), one_[device][0]),
            std::max(room_[device][1] - spared.bytes[device], one_[device][1] + spare_for_passes_[device][1])};
    }
}

void OrderModel::spare(const PassLists& lists, std::vector<Bytes> missing, SparedRoom& spared) const {
    spared.bytes.resize(static_cast<std::size_t>(devices_), 0);
    spared.most.resize(spared.bytes.size(), kNoLimit);
    if (recomputes())
        spare_early_messages(lists, missing, spared);
    for (int device = 0; device < devices_; ++device)
        spared.bytes[device] += missing[device];
}

// A device receives tensors early that another one has made, as many as that one has in flight.
void OrderModel::spare_early_messages(const PassLists& lists, std::vector<Bytes>& missing, SparedRoom& spared) const {
    std::map<std::pair<int, int>, int> in_flight;              // the most by stage and device
    std::vector<int> all(static_cast<std::size_t>(devices_));  // the same of all stages
    for (int device = 0; device < devices_; ++device) {
        std::map<int, int> now;  // by stage
        int sum = 0;
        for (const Pass pass : lists[device])
            if (const int kind = pass / 2 % 3, stage = stage_of(pass / 2); kind < 2) {
                int& most = in_flight[{stage, device}];
                most = std::max(most, now[stage] += kind == 0 ? 1 : -1);
                all[device] = std::max(all[device], sum += kind == 0 ? 1 : -1);
            }
    }
    std::map<std::pair<int, int>, const EdgeBytes*> received;  // by receiver and sender
    for (const EdgeBytes& edge : costs_.edges)
        for (int mb = 0; mb < microbatches_; ++mb)
            received[{device_of(number(edge.to, mb, 0)), device_of(number(edge.from, mb, 0))}] = &edge;
    for (const auto& [ends, edge] : received) {
        const auto [device, sender] = ends;
        const int early = in_flight[{edge->from, sender}] - in_flight[{edge->to, device}];
        if (device == sender || edge->forward == 0 || missing[device] == 0 || early <= 0)
            continue;
        const std::int64_t fewer = std::min<std::int64_t>(early, (missing[device] + edge->forward - 1) / edge->forward);
        missing[device] = std::max<Bytes>(0, missing[device] - fewer * edge->forward);
        spared.most[sender] = std::min<std::int64_t>(spared.most[sender], all[sender] - fewer);
    }
}

Ns OrderModel::closing_time(int stage, int device, int k) const {
    const auto at = static_cast<std::size_t>(stage * devices_ + device);
    return (k > 0 ? accumulate_[at] : 0) + (k + 1 == served_[at] ? update_[at] : 0);
}

PassLists OrderModel::lists_of(const std::vector<Tasks>& order) const {
    PassLists lists;
    for (const Tasks& tasks : order) {
        std::vector<Pass>& list = lists.emplace_back();
        for (const Task& task : tasks) {
            const int forward = number(task.stage, task.microbatch, 0);
            list.push_back(task.op == Op::Forward         ? 2 * forward
                           : task.op == Op::BackwardInput ? 2 * (forward + 1)
                           : task.op == Op::Backward      ? 2 * (forward + 1) + 1
                                                          : 2 * (forward + 2));
        }
    }
    return lists;
}

std::vector<Tasks> OrderModel::order_of(const PassLists& lists) const {
    constexpr Op kSeparate[] = {Op::Forward, Op::BackwardInput, Op::BackwardWeight};
    std::vector<Tasks> order;
    for (const std::vector<Pass>& list : lists) {
        Tasks& tasks = order.emplace_back();
        for (const Pass pass : list)
            tasks.push_back(
                {pass % 2 == 1 ? Op::Backward : kSeparate[pass / 2 % 3], stage_of(pass / 2), microbatch_of(pass / 2)});
    }
    return order;
}

std::vector<Ns> OrderModel::round_trips(int microbatch) const {
    std::vector<Ns> trips(static_cast<std::size_t>(stages_), 0);
    for (int stage = stages_; stage-- > 0;)
        for (const Message& message : messages(number(stage, microbatch, 0))) {
            if (message.reader % 3 != 0)
                continue;
            const int peer = stage_of(message.reader), input = message.reader + 1;
            Ns trip = message.occupied + message.latency + time(2 * message.reader) + trips[peer] + time(2 * input);
            for (const Message& back : messages(input))
                if (back.reader == number(stage, microbatch, 1))
                    trip += back.occupied + back.latency;
            trips[stage] = std::max(trips[stage], trip);
        }
    return trips;
}

OrderTimer::OrderTimer(const OrderModel& model)
    : model_(model),
      end_(static_cast<std::size_t>(model.passes())),
      lane_(static_cast<std::size_t>(model.lanes())),
      waiting_(static_cast<std::size_t>(model.devices())) {}

void OrderTimer::send(int number, Ns end) {
    for (const OrderModel::Message& message : model_.messages(number)) {
        Ns arrival = end;
        if (message.lane >= 0) {
            Ns& lane = lane_[static_cast<std::size_t>(message.lane)];
            lane = std::max(lane, end) + message.occupied;
            arrival = lane + message.latency;
        }
        const auto reader = static_cast<std::size_t>(message.reader);
        if (arrival >= ready_[reader]) {
            ready_[reader] = arrival;
            sender_[reader] = number;
        }
        if (--missing_[reader] == 0)
            if (const int device = model_.device_of(message.reader); waiting_[device] == message.reader)
                devices_.push_back(device);
    }
}

void OrderTimer::run(int device, const std::vector<Pass>& list) {
    waiting_[device] = -1;
    for (std::size_t& next = next_[device]; next < list.size(); ++next) {
        const Pass pass = list[next];
        const int number = pass / 2;
        if (missing_[number] > 0) {
            waiting_[device] = number;
            return;
        }
        const Ns start = std::max(free_at_[device], ready_[number]);
        Ns end = start + model_.time(pass);
        if (pass % 2 == 1 || number % 3 == 2) {
            const int stage = model_.stage_of(number);
            int& done = weights_[stage * model_.devices() + device];
            end += model_.closing_time(stage, device, done);
            ++done;
        }
        if (next == 0)
            begin_[device] = start;
        end_[number] = free_at_[device] = end;
        send(number, end);
    }
}

StepTimes OrderTimer::times(const PassLists& lists) {
    missing_ = model_.inputs();
    ready_.assign(missing_.size(), 0);
    sender_.assign(missing_.size(), -1);
    std::fill(lane_.begin(), lane_.end(), 0);
    free_at_.assign(lists.size(), 0);
    begin_.assign(lists.size(), 0);
    next_.assign(lists.size(), 0);
    weights_.assign(static_cast<std::size_t>(model_.stages() * model_.devices()), 0);
    for (int device = model_.devices(); device-- > 0;) {
        waiting_[device] = -1;
        devices_.push_back(device);
    }
    while (!devices_.empty()) {
        const int device = devices_.back();
        devices_.pop_back();
        run(device, lists[device]);
    }
    StepTimes all{0, 0};
    for (std::size_t device = 0; device < lists.size(); ++device) {
        if (next_[device] < lists[device].size())
            return {};
        all.step = std::max(all.step, free_at_[device]);
        all.span = std::max(all.span, free_at_[device] - begin_[device]);
    }
    return all;
}

bool fits(const OrderModel& model, int device, const std::vector<Pass>& list) {
    OrderModel::Amounts used{};
    const OrderModel::Amounts& room = model.room(device);
    for (const Pass pass : list) {
        const OrderModel::Held& held = model.held(model.stage_of(pass / 2));
        for (std::size_t limit = 0; limit < OrderModel::kLimits; ++limit) {
            if (used[limit] + held.needed(pass, limit) > room[limit])
                return false;
            used[limit] += held.change(pass, limit);
        }
    }
    return true;
}

bool fits(const OrderModel& model, const PassLists& lists) {
    for (int device = 0; device < model.devices(); ++device)
        if (!fits(model, device, lists[device]))
            return false;
    return true;
}

}  // namespace pw

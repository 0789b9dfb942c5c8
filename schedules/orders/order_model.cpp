#include "schedules/orders/order_model.h"

#include "schedules/plan/shape_index.h"
#include "schedules/plan/sum_groups.h"
#include "workloads/bounded.h"
#include "workloads/error.h"
#include "workloads/interruption.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace pw {

namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max() / 4;

OrderModel::Held held_of(const OrderCosts::Held& bytes) {
    return {.after_forward = {1, bytes.after_forward},
            .after_input = {1, bytes.after_input},
            .by_forward = {0, bytes.by_forward},
            .by_input = {0, bytes.by_input},
            .by_backward = {0, bytes.by_backward}};
}

void raise(OrderModel::Amounts& amounts, const OrderModel::Amounts& others) {
    for (std::size_t limit = 0; limit < amounts.size(); ++limit)
        amounts[limit] = std::max(amounts[limit], others[limit]);
}

}  // namespace

std::int64_t OrderModel::Held::needed(OrderPass pass, std::size_t limit) const {
    const int kind = pass.kind();
    return kind == OrderPass::F   ? after_forward[limit] + by_forward[limit]
           : pass.whole()         ? by_backward[limit]
           : kind == OrderPass::I ? by_input[limit]
                                  : 0;
}

std::int64_t OrderModel::Held::change(OrderPass pass, std::size_t limit) const {
    const int kind = pass.kind();
    return kind == OrderPass::F   ? after_forward[limit]
           : pass.whole()         ? -after_forward[limit]
           : kind == OrderPass::I ? after_input[limit] - after_forward[limit]
                                  : -after_input[limit];
}

OrderModel::OrderModel(const Request& request)
    : costs_(*request.costs),
      devices_(request.shape.devices),
      stages_(request.shape.stages),
      microbatches_(request.shape.microbatches),
      classes_(costs_.held.front().size()) {
    connect(request.shape);
    set_updates(request.shape);
    limit(request);
    room_ = all_room_;
}

void OrderModel::connect(const Shape& shape) {
    const ShapeIndex index(shape);
    const auto pairs = static_cast<std::size_t>(stages_) * static_cast<std::size_t>(microbatches_);
    device_.resize(pairs);
    times_.resize(6 * pairs);
    added_.resize(6 * pairs);
    messages_.resize(3 * pairs);
    inputs_.assign(3 * pairs, 0);
    served_.assign(static_cast<std::size_t>(stages_ * devices_), 0);
    for (int device = 0; device < devices_; ++device)
        stages_on_.emplace_back(index.stages_of(device).begin(), index.stages_of(device).end());
    std::map<std::tuple<int, int, int>, int> lanes;
    const auto send = [&](int from, int to, bool gradients) {
        const OrderCosts::Holder sender{stage_of(from), device_of(from)}, reader{stage_of(to), device_of(to)};
        Message message{to, -1, 0, 0};
        if (sender.device != reader.device) {
            message.lane =
                lanes.try_emplace({sender.device, reader.device, gradients}, std::ssize(lanes)).first->second;
            const std::size_t of_class = costs_.class_of(microbatch_of(to));
            const OrderCosts::Message& sent = costs_.messages.at({sender, reader})[of_class];
            message.occupied = sent.occupied;
            message.latency = sent.latency;
            if (gradients)
                message.latency -= costs_.times.at(reader)[of_class].recompute;
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
            set_times(forward, costs_.times.at({stage, device_of(forward)})[costs_.class_of(mb)]);
            send(forward, input, false);
            send(input, weight, false);
            for (const int peer : index.after(stage))
                send(forward, number(peer, mb, 0), false);
            for (const int peer : index.peers_of(Op::SendBackward, stage))
                send(input, number(peer, mb, 1), true);
        }
    lanes_ = static_cast<int>(lanes.size());
    std::vector<Ns> work(static_cast<std::size_t>(devices_), 0);
    for (int pass = 0; pass < passes(); ++pass)
        work[device_of(pass)] += time(OrderPass(pass));
    for (const Ns time : work)
        slowest_work_ = std::max(slowest_work_, time / microbatches_);
}

void OrderModel::set_times(int forward, const OrderCosts::Times& times) {
    const std::size_t at = OrderPass(forward).index();
    times_[at] = times.forward;
    times_[at + 2] = times.backward_input + times.recompute;
    times_[at + 3] = times.backward + times.recompute;
    times_[at + 4] = times.backward_weight;
    added_[at + 3] = times.added_to_backward;
    added_[at + 4] = times.added_to_weight;
}

void OrderModel::set_updates(const Shape& shape) {
    update_.assign(served_.size(), 0);
    std::vector<Ns> longest(static_cast<std::size_t>(devices_), 0);
    between_.assign(longest.size(), 0);
    for (const auto& [holder, update] : costs_.updates) {
        update_[holder.stage * devices_ + holder.device] = update;
        if (needs_sum(shape, holder.stage) || shape.global_norm) {
            updates_follow_ = false;
            continue;
        }
        between_[holder.device] += update;
        longest[holder.device] = std::max(longest[holder.device], update);
    }
    for (std::size_t device = 0; device < longest.size(); ++device)
        between_[device] -= longest[device];
}

void OrderModel::limit(const Request& request) {
    for (const std::vector<OrderCosts::Held>& of_classes : costs_.held)
        for (const OrderCosts::Held& bytes : of_classes)
            held_.push_back(held_of(bytes));
    for (int stage = 0; stage < stages_; ++stage)
        for (int mb = 0; mb < microbatches_; ++mb)
            held_at_.push_back(static_cast<std::size_t>(stage) * classes_ + costs_.class_of(mb));
    for (int device = 0; device < devices_; ++device) {
        const Bytes memory = costs_.memory[static_cast<std::size_t>(device)];
        const bool limited = memory < std::numeric_limits<Bytes>::max();
        const std::int64_t asked = request.options.activations > 0 ? request.options.activations
                                   : limited                       ? kNoLimit
                                                                   : devices_;
        limits_bytes_ = limits_bytes_ || limited;
        add_microbatch(device);
        const Amounts &one = one_.back(), &spare = spare_for_passes_.back();
        all_room_.push_back(
            {std::min(kNoLimit, bounded_product(asked, one[0])),
             limited ? std::max(memory - costs_.always_held[static_cast<std::size_t>(device)], one[1] + spare[1])
                     : kNoLimit});
    }
}

// Not all stages of a device need to serve a micro-batch.
OrderModel::Amounts OrderModel::forwards_of(int device, int microbatch) const {
    Amounts sum{};
    for (const int stage : stages_on(device))
        if (const int forward = number(stage, microbatch, 0); device_of(forward) == device)
            for (std::size_t limit = 0; limit < kLimits; ++limit)
                sum[limit] += held(forward).after_forward[limit];
    return sum;
}

OrderModel::Amounts OrderModel::whole(int device, int first, int last) const {
    if (has_equal_microbatches())
        return one_[static_cast<std::size_t>(device)];
    Amounts most{};
    for (int mb = first; mb <= last; ++mb)
        raise(most, whole_[static_cast<std::size_t>(device)][static_cast<std::size_t>(mb)]);
    return most;
}

void OrderModel::add_microbatch(int device) {
    Amounts &one = one_.emplace_back(), &level = level_.emplace_back(), &spare = spare_for_passes_.emplace_back();
    whole_.resize(has_equal_microbatches() ? 0 : whole_.size() + 1);
    for (int mb = 0; mb < microbatches_; ++mb) {
        const Amounts forwards = forwards_of(device, mb);
        raise(one, forwards);
        if (!has_equal_microbatches())
            whole_.back().push_back(forwards);
        Amounts most{};
        for (const int stage : stages_on(device))
            if (const int forward = number(stage, mb, 0); device_of(forward) == device) {
                const Held& own = held(forward);
                for (const Amounts* const needed : {&own.by_forward, &own.by_input, &own.by_backward})
                    raise(spare, *needed);
                for (std::size_t limit = 0; limit < kLimits; ++limit)
                    most[limit] += std::max(own.after_forward[limit], own.after_input[limit]);
            }
        raise(level, most);
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
        for (const OrderPass pass : lists[device])
            if (const int kind = pass.kind(), stage = stage_of(pass.number()); kind < 2) {
                int& most = in_flight[{stage, device}];
                most = std::max(most, now[stage] += kind == OrderPass::F ? 1 : -1);
                all[device] = std::max(all[device], sum += kind == OrderPass::F ? 1 : -1);
            }
    }
    struct Received {
        int from, to;  // stages
        Bytes bytes;   // the most of a micro-batch
    };
    std::map<std::pair<int, int>, Received> received;  // by receiver and sender
    for (const auto& [ends, messages] : costs_.messages) {
        const auto& [from, to] = ends;
        if (from.stage > to.stage || !exchange(from, to))
            continue;
        Bytes most = 0;
        for (const OrderCosts::Message& message : messages)
            most = std::max(most, message.bytes);
        received[{to.device, from.device}] = {from.stage, to.stage, most};
    }
    for (const auto& [ends, tensor] : received) {
        const auto [device, sender] = ends;
        const int early = in_flight[{tensor.from, sender}] - in_flight[{tensor.to, device}];
        if (tensor.bytes == 0 || missing[device] == 0 || early <= 0)
            continue;
        const std::int64_t fewer = std::min<std::int64_t>(early, (missing[device] + tensor.bytes - 1) / tensor.bytes);
        missing[device] = std::max<Bytes>(0, missing[device] - fewer * tensor.bytes);
        spared.most[sender] = std::min<std::int64_t>(spared.most[sender], all[sender] - fewer);
    }
}

bool OrderModel::exchange(const OrderCosts::Holder& one, const OrderCosts::Holder& other) const {
    for (int mb = 0; mb < microbatches_; ++mb)
        if (device_of(number(one.stage, mb, 0)) == one.device && device_of(number(other.stage, mb, 0)) == other.device)
            return true;
    return false;
}

PassLists OrderModel::lists_of(const std::vector<Tasks>& order) const {
    PassLists lists;
    for (const Tasks& tasks : order) {
        std::vector<OrderPass>& list = lists.emplace_back();
        for (const Task& task : tasks) {
            const int forward = number(task.stage, task.microbatch, 0);
            list.push_back(task.op == Op::Forward         ? OrderPass(forward)
                           : task.op == Op::BackwardInput ? OrderPass(forward + 1)
                           : task.op == Op::Backward      ? OrderPass(forward + 1, true)
                                                          : OrderPass(forward + 2));
        }
    }
    return lists;
}

std::vector<Tasks> OrderModel::order_of(const PassLists& lists) const {
    constexpr Op kSeparate[] = {Op::Forward, Op::BackwardInput, Op::BackwardWeight};
    std::vector<Tasks> order;
    for (const std::vector<OrderPass>& list : lists) {
        Tasks& tasks = order.emplace_back();
        for (const OrderPass pass : list)
            tasks.push_back({pass.whole() ? Op::Backward : kSeparate[pass.kind()], stage_of(pass.number()),
                             microbatch_of(pass.number())});
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
            Ns trip = message.time() + time(OrderPass(message.reader)) + trips[peer] + least_input(input);
            for (const Message& back : messages(input))
                if (back.reader == number(stage, microbatch, 1))
                    trip += back.time();
            trips[stage] = std::max(trips[stage], trip);
        }
    return trips;
}

OrderTimer::OrderTimer(const OrderModel& model)
    : model_(model),
      end_(static_cast<std::size_t>(model.passes())),
      update_(end_.size()),
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

void OrderTimer::run(int device, const std::vector<OrderPass>& list) {
    waiting_[device] = -1;
    for (std::size_t& next = next_[device]; next < list.size(); ++next) {
        const OrderPass pass = list[next];
        const int number = pass.number();
        if (missing_[number] > 0) {
            waiting_[device] = number;
            return;
        }
        const Ns start = std::max(free_at_[device], ready_[number]);
        Ns end = start + model_.time(pass), update = 0;
        if (pass.whole() || pass.kind() == OrderPass::W) {
            const int stage = model_.stage_of(number);
            int& done = weights_[stage * model_.devices() + device];
            end += done > 0 ? model_.added(pass) : 0;
            update = model_.update_after(stage, device, done);
            ++done;
        }
        if (next == 0)
            begin_[device] = start;
        end_[number] = end;
        update_[number] = update;
        sequence_.push_back(number);
        free_at_[device] = end + update;
        send(number, end);
    }
}

StepTimes OrderTimer::times(const PassLists& lists) {
    Interruption::point();
    missing_ = model_.inputs();
    sequence_.clear();
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
        if (!lists[device].empty())
            all.span = std::max(all.span, end_[lists[device].back().number()] - begin_[device]);
    }
    return all;
}

bool fits(const OrderModel& model, int device, const std::vector<OrderPass>& list) {
    OrderModel::Amounts used{};
    const OrderModel::Amounts& room = model.room(device);
    for (const OrderPass pass : list) {
        const OrderModel::Held& held = model.held(pass.number());
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

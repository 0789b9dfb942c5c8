#include "sim/event_queue.h"
#include "schedules/plan/traffic.h"

#include "workloads/bounded.h"
#include "workloads/error.h"
#include "workloads/interruption.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pw {

namespace {

constexpr double kLeastLeft = 0.1;  // share of a device for tasks that compute, however many messages are under way

}  // namespace

EventQueue::EventQueue(const Plan& plan, const PlanGraph& graph, const TaskKinds& kinds, const TransferMode& mode)
    : plan_(plan), graph_(graph), kinds_(kinds), mode_(mode), lanes_(graph, mode), readers_(graph.readers()) {}

void EventQueue::run(const Costs& costs, const std::vector<Ns>& durations, const std::vector<Ns>& latencies,
                     const std::vector<Ns>& busy, const std::vector<char>& by_rendezvous) {
    lanes_.set_by_rendezvous(by_rendezvous);
    costs_ = &costs;
    durations_ = &durations;
    latencies_ = &latencies;
    busy_ = &busy;
    begin();
    for (int device = 0; device < plan_.shape.devices; ++device)
        ready_.push_back(device);
    for (CopyLane& lane : copies_)
        start_copies(lane, 0);
    settle(0);
    issue_calls(0);
    share_when_due(0);
    RareInterruption interruption(1024);
    while (!queue_.empty()) {
        interruption.point();
        const Event event = queue_.top();
        queue_.pop();
        handle(event);
        settle(event.time);
        issue_calls(event.time);
        share_when_due(event.time);
    }
    explain_deadlock();
}

void EventQueue::begin() {
    place_on_hosts();
    progress_.assign(plan_.order.size(), {});
    waits_.clear();
    for (int node = 0; node < graph_.size(); ++node)
        waits_.push_back(static_cast<int>(graph_.inputs(node).size()));
    start_.assign(waits_.size(), 0);
    end_.assign(waits_.size(), -1);
    next_.assign(plan_.order.size(), 0);
    exchanging_ = movers_ = next_;
    seq_ = 0;
    queue_ = {};
    ready_.clear();
    lanes_.reset();
    copies_.assign(2 * plan_.order.size(), {});
    for (int node = 0; node < graph_.size(); ++node)
        if (is_copy(graph_.task(node).op))
            lane_of_copy(node).nodes.push_back(node);
    flows_.clear();
    lay_routes();
}

void EventQueue::lay_routes() {
    const Routes& routes = costs_->cluster->routes;
    std::vector<double> capacities = routes.capacities();
    unit_ = capacities.empty() ? 1 : capacities.front();
    for (double& capacity : capacities)
        capacity /= unit_;
    shares_ = FairShares(std::move(capacities));
    lay_sums();
    demands_.assign(kinds_.all().size(), {});
    if (routes.capacities().empty())
        return;
    const Traffic traffic(plan_.shape, graph_.index(), *costs_);
    for (std::size_t number = 0; number < demands_.size(); ++number) {
        const TaskKinds::Kind& kind = kinds_.all()[number];
        if (!is_send(kind.op))
            continue;
        const double bandwidth = bandwidth_for(static_cast<double>(traffic.bytes(graph_.task(kind.first))),
                                               costs_->cluster->link_of(kind.device, kind.receiver));
        demands_[number] = {.takes = routes.takes(kind.device, kind.receiver),
                            .most = std::min(bandwidth, routes.most(kind.device, kind.receiver)) / unit_};
    }
}

void EventQueue::place_on_hosts() {
    host_of_.clear();
    for (int device = 0; device < std::ssize(plan_.order); ++device)
        host_of_.push_back(costs_->cluster->host_of(device));
    devices_on_.clear();
    for (std::size_t device = 0; device < plan_.order.size(); ++device) {
        devices_on_.resize(std::max(devices_on_.size(), static_cast<std::size_t>(host_of_[device]) + 1));
        devices_on_[host_of_[device]].push_back(static_cast<int>(device));
    }
    dispatchers_.assign(costs_->cluster->dispatch_by_host && costs_->dispatch > 0 ? devices_on_.size() : 0, {});
    call_requested_.assign(plan_.order.size(), false);
    hosts_to_call_.clear();
}

void EventQueue::handle(const Event& event) {
    const int node = event.node;
    switch (event.what) {
        case What::ComputeEnds: {
            const int device = graph_.device_of(node);
            if (progress_[device].end != event.seq)
                return;  // its rate has changed
            if (sum_of_[node] >= 0 && !progress_[device].sums) {
                join_sum(node, event.time);  // U has updated its part
                return;
            }
            progress_[device] = {};
            finish(node, event.time);
            ready_.push_back(device);
            change_rates(device, event.time);
            break;
        }
        case What::LinkFree:
            leave(node, event.time);
            break;
        case What::FlowEnds:
            end_flow(event.seq, event.time);
            break;
        case What::StepEnds:
            end_step(node, event.time);
            break;
        case What::BucketFull:
            if (--sums_[node].to_fill == 0)
                begin_sum(node, event.time);
            break;
        case What::JoinedSumEnds:
            release(node, true, event.time);
            break;
        case What::Arrives:
            lanes_.arrive(node);
            break;
        case What::CallEnds:
            hosts_to_call_.push_back(node);
            break;
        case What::CopyEnds:
            end_copy(node, event.time);
            break;
    }
}

// Works at one moment until nothing moves: starts the sends that the lanes release, delivers what has arrived, and
// advances the devices that are ready. A loop, because any number of tasks may follow from each other.
void EventQueue::settle(Ns now) {
    for (;;) {
        for (const int send : std::exchange(lanes_.starting, {}))
            start_send(send, now);
        for (const int recv : std::exchange(lanes_.received, {}))
            finish(recv, now);
        if (!lanes_.starting.empty() || !lanes_.received.empty())
            continue;
        if (ready_.empty())
            return;
        advance(std::exchange(ready_, {}), now);
    }
}

void EventQueue::start_send(int send, Ns now) {
    const int recv = lanes_.partner(send);
    start_[send] = start_[recv] = now;
    count_movers_of(send, 1, now);
    if (const Demand& demand = demands_[kinds_.of(send)]; !demand.takes.empty() && alone_of(send) > 0) {
        flows_.push_back(
            {.demand = demand, .send = send, .way = {static_cast<double>(alone_of(send)), static_cast<double>(now)}});
        return share_links(now);
    }
    const Ns link_free = now + alone_of(send);
    push(link_free, What::LinkFree, send);
    push(link_free + latency_of(send), What::Arrives, recv);
}

void EventQueue::leave(int send, Ns now) {
    count_movers_of(send, -1, now);
    finish(send, now);
    lanes_.leave(send);
    ready_.push_back(graph_.device_of(send));  // its list may wait for that
}

EventQueue::CopyLane& EventQueue::lane_of_copy(int node) {
    const auto device = static_cast<std::size_t>(graph_.device_of(node));
    return copies_[2 * device + static_cast<std::size_t>(mode_.lane_of_copy(graph_.task(node).op))];
}

// A copy to the host starts when its inputs are there, a copy back when its list has reached it.
void EventQueue::start_copies(CopyLane& lane, Ns now) {
    if (lane.busy || lane.head == lane.nodes.size())
        return;
    const int node = lane.nodes[lane.head];
    const bool is_reached =
        leaves_device(graph_.task(node).op) || graph_.position_of(node) < next_[graph_.device_of(node)];
    if (waits_[node] > 0 || !is_reached)
        return;
    lane.busy = true;
    start_[node] = now;
    push(now + alone_of(node), What::CopyEnds, node);
}

void EventQueue::end_copy(int node, Ns now) {
    CopyLane& lane = lane_of_copy(node);
    lane.busy = false;
    ++lane.head;
    finish(node, now);
    start_copies(lane, now);
    ready_.push_back(graph_.device_of(node));
}

// Does nothing when the flow's rate has changed since that end was foreseen.
void EventQueue::end_flow(std::int64_t seq, Ns now) {
    const auto flow = std::find_if(flows_.begin(), flows_.end(), [&](const Flow& one) { return one.end == seq; });
    if (flow == flows_.end())
        return;
    const Flow ended = std::move(*flow);
    flows_.erase(flow);
    if (ended.sum >= 0) {
        share_is_due_ = true;
        return end_flow_of_sum(ended, now);
    }
    share_links(now);
    push(now + latency_of(ended.send), What::Arrives, lanes_.partner(ended.send));
    leave(ended.send, now);
}

// After a flow has begun or ended: gives every flow its rate.
void EventQueue::share_links(Ns now) {
    share_is_due_ = false;
    std::vector<Demand*> demands;
    for (Flow& flow : flows_)
        demands.push_back(&flow.demand);
    for (const std::size_t number : shares_.share(demands))
        set_rate(flows_[number], flows_[number].demand.rate / flows_[number].demand.most, now);
}

// Flows of a sum begin and end together: it is enough to set new rates once per moment.
void EventQueue::share_when_due(Ns now) {
    if (share_is_due_ && (queue_.empty() || queue_.top().time > now))
        share_links(now);
}

void EventQueue::set_rate(Flow& flow, double rate, Ns now) {
    if (flow.way.rate == rate)
        return;
    const auto moment = static_cast<double>(now);
    flow.way.go_at(rate, moment);
    flow.end = seq_;
    push(now + std::max<Ns>(0, nearest_integer(flow.way.time_left() + (flow.way.since - moment))), What::FlowEnds,
         flow.send);
}

void EventQueue::finish(int node, Ns time) {
    end_[node] = time;
    if (!fills_.empty() && fills_[node] >= 0)
        sums_[fills_[node]].filled = time;
    if (const int device = graph_.device_of(node); mode_.blocks() && is_transfer(graph_.task(node).op) &&
                                                   graph_.position_of(node) < next_[device] &&
                                                   --exchanging_[device] == 0)
        ready_.push_back(device);
    release(node, false, time);
    const Task& task = graph_.task(node);
    const bool sums = task.op == Op::Forward && !costs_->joined_sums.empty();
    if (const Ns delay = sums ? costs_->joined_sums[task.stage] : 0; delay > 0)
        push(time + delay, What::JoinedSumEnds, node);
    else
        release(node, true, time);
}

// Gives the readers of a node their input: the readers that wait for a sum of joined stages, or the rest.
void EventQueue::release(int node, bool waiting_for_sum, Ns now) {
    const bool is_forward = graph_.task(node).op == Op::Forward;
    for (int reader : readers_[node]) {
        const Op op = graph_.task(reader).op;
        if ((is_forward && is_in(op, kWaitsForJoined)) != waiting_for_sum || --waits_[reader] > 0)
            continue;
        if (is_copy(op))
            start_copies(lane_of_copy(reader), now);
        else if (!is_transfer(op))
            ready_.push_back(graph_.device_of(reader));
    }
}

void EventQueue::advance(const std::vector<int>& devices, Ns now) {
    for (const int device : devices)
        advance(device, now);
}

// Posts the transfers that the device's list has reached and starts its next task when it can.
void EventQueue::advance(int device, Ns now) {
    const int length = static_cast<int>(plan_.order[device].size());
    while (progress_[device].node < 0 && next_[device] < length) {
        const int node = graph_.node(device, next_[device]);
        if (is_transfer(graph_.task(node).op)) {
            if (!lanes_.may_post(node))
                return;
            ++next_[device];
            exchanging_[device] += mode_.blocks() && end_[node] < 0 ? 1 : 0;
            lanes_.post(node);
            continue;
        }
        if (is_copy(graph_.task(node).op)) {
            if (leaves_device(graph_.task(node).op) && end_[node] < 0)
                return;
            ++next_[device];
            start_copies(lane_of_copy(node), now);
            continue;
        }
        if (waits_[node] > 0 || exchanging_[device] > 0)
            return;
        if (needs_call(node))
            return ask_for_call(device, now);
        start_task(device, now);
    }
}

// Starts the task that the device's list has reached.
void EventQueue::start_task(int device, Ns now) {
    const int node = graph_.node(device, next_[device]++);
    start_[node] = now;
    if (!fills_.empty() && fills_[node] >= 0) {
        const Ns dispatch = std::min(kinds_.dispatch_of(kinds_.of(node), *costs_), alone_of(node));
        push(now + dispatch + sum_of_work(sums_[fills_[node]].work).first_full(alone_of(node) - dispatch),
             What::BucketFull, fills_[node]);
    }
    progress_[device] = {.node = node, .since = now, .end = seq_};
    if (sum_of_[node] >= 0 && graph_.task(node).op == Op::SumGradients)
        join_sum(node, now);
    else
        push(now + alone_of(node) - after_own(node), What::ComputeEnds, node);
    change_rates(device, now);
}

// The tasks of a pair that overlap are a single launch, with the call of the first task.
bool EventQueue::needs_call(int node) const { return !dispatchers_.empty() && !kinds_.is_second(kinds_.of(node)); }

void EventQueue::ask_for_call(int device, Ns now) {
    if (std::exchange(call_requested_[device], true))
        return;
    dispatchers_[host_of_[device]].requests.emplace(now, device);
    hosts_to_call_.push_back(host_of_[device]);
}

// Does nothing until all requests of a moment are known.
void EventQueue::issue_calls(Ns now) {
    if (hosts_to_call_.empty() || (!queue_.empty() && queue_.top().time == now))
        return;
    std::sort(hosts_to_call_.begin(), hosts_to_call_.end());
    for (const int host : std::exchange(hosts_to_call_, {})) {
        Dispatcher& dispatcher = dispatchers_[host];
        if (dispatcher.free > now || dispatcher.requests.empty())
            continue;
        const int device = dispatcher.requests.begin()->second;
        dispatcher.requests.erase(dispatcher.requests.begin());
        call_requested_[device] = false;
        dispatcher.free = now + costs_->dispatch;
        push(dispatcher.free, What::CallEnds, host);
        start_task(device, now);
    }
}

// Changes the rates of the remaining devices of a host after a task has begun or ended on a device.
void EventQueue::change_rates(int changed, Ns now) {
    const std::vector<int>& devices = devices_on_[host_of_[changed]];
    if (busy_->empty() || devices.size() < 2) {
        if (costs_->mover_share > 0)
            set_pace(changed, 0, now);
        return;
    }
    const double crowd = crowd_around(changed);
    for (const int device : devices)
        set_pace(device, crowd, now);
}

// For a computing device: the number of other computing devices of its host, divided by the number at which `busy` was
// measured.
double EventQueue::crowd_around(int device) const {
    const std::vector<int>& devices = devices_on_[host_of_[device]];
    if (busy_->empty() || devices.size() < 2)
        return 0;
    const auto computing =
        std::count_if(devices.begin(), devices.end(), [&](int each) { return progress_[each].node >= 0; });
    const auto others = static_cast<double>(devices.size() - 1);
    const double measured = costs_->neighbours > 0 ? costs_->neighbours : others;
    return std::min(1.0, static_cast<double>(computing - 1) / measured);
}

void EventQueue::set_pace(int device, double crowd, Ns now) {
    Progress& progress = progress_[device];
    if (progress.node < 0 || progress.sums)
        return;
    const Ns after = after_own(progress.node);
    const auto alone = static_cast<double>(alone_of(progress.node) - after);
    const auto busy = busy_->empty() ? alone : static_cast<double>((*busy_)[kinds_.of(progress.node)] - after);
    const double left = 1 - costs_->mover_share * movers_[device];
    const double time = (alone + (busy - alone) * crowd) / std::max(left, kLeastLeft);
    progress.left -= progress.rate * static_cast<double>(now - progress.since);
    progress.since = now;
    progress.rate = time > 0 ? 1 / time : 0;
    progress.end = seq_;
    push(now + std::llround(std::max(0.0, progress.left) * time), What::ComputeEnds, progress.node);
}

void EventQueue::count_movers(int device, int change, Ns now) {
    if (costs_->mover_share == 0)
        return;
    movers_[device] += change;
    set_pace(device, crowd_around(device), now);
}

void EventQueue::count_movers_of(int send, int change, Ns now) {
    if (alone_of(send) > 0)
        for (const int end : {send, lanes_.partner(send)})
            count_movers(graph_.device_of(end), change, now);
}

void EventQueue::explain_deadlock() const {
    std::string heads;
    for (int device = 0; device < plan_.shape.devices; ++device)
        if (next_[device] < static_cast<int>(plan_.order[device].size()))
            heads += fmt::format("{}device {} waits at step {} for the inputs of {}", heads.empty() ? "" : "; ", device,
                                 next_[device], print(plan_.order[device][next_[device]]));
    if (!heads.empty())
        fail_with(ExitCode::Infeasible, "plan '{}' deadlocks: {}", plan_.schedule, heads);
}

}  // namespace pw

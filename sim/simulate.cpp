#include "sim/simulate.h"

#include "schedules/versions.h"
#include "workloads/error.h"

#include <cmath>
#include <map>
#include <queue>
#include <tuple>

namespace pw {

namespace {

enum class What : std::uint8_t { ComputeEnds, LinkFree, Arrives };

struct Event {
    Ns time;
    std::int64_t seq;  // ties break by insertion order, so a run repeats exactly
    What what;
    int node;
    auto operator<=>(const Event&) const = default;
};

// A queue of transfers that keeps its order at one end of a communicator.
struct Lane {
    std::vector<int> nodes;  // in list order
    std::size_t head = 0;
    bool busy = false;  // its head has started
    bool done() const { return head == nodes.size(); }
};

class Simulation {
public:
    Simulation(const Plan& plan, const Costs& costs, const TransferModel& transfers)
        : plan_(plan), costs_(costs), model_(transfers), graph_(plan), versions_(versions_of(plan)) {
        const auto size = static_cast<std::size_t>(graph_.size());
        waits_.resize(size);
        readers_.resize(size);
        start_.assign(size, 0);
        end_.assign(size, -1);
        posted_.assign(size, false);
        arrived_.assign(size, false);
        lane_of_.assign(size, -1);
        partner_.assign(size, -1);
        next_.assign(plan.order.size(), 0);
        busy_.assign(plan.order.size(), false);
        for (int node = 0; node < graph_.size(); ++node)
            prepare(node);
        mark_accumulation();
    }

    void run() {
        for (int device = 0; device < plan_.shape.devices; ++device)
            advance(device, 0);
        for (int lane = 0; lane < static_cast<int>(lanes_.size()); ++lane)
            serve(lane, 0);
        while (!queue_.empty()) {
            const Event event = queue_.top();
            queue_.pop();
            handle(event);
        }
        explain_deadlock();
    }

    Trace trace() const;

private:
    void prepare(int node) {
        const Task& task = graph_.task(node);
        waits_[node] = static_cast<int>(graph_.inputs(node).size());
        for (int input : graph_.inputs(node))
            readers_[input].push_back(node);
        if (!is_transfer(task.op))
            return;
        if (is_recv(task.op)) {
            partner_[node] = graph_.inputs(node).front();
            partner_[partner_[node]] = node;
            posted_[node] = model_.early_receive;
        }
        const int lane = lane_number(node, task);
        lane_of_[node] = lane;
        lanes_[lane].nodes.push_back(node);
    }

    // `edge`: one lane per directed device pair, direction and end; `direction`: one per
    // device and kind of traffic; `one`: a single one per device.
    int lane_number(int node, const Task& task) {
        const int device = graph_.device_of(node);
        const bool backward = task.op == Op::SendBackward || task.op == Op::RecvBackward;
        std::tuple<int, int, int, bool> key{device, -1, 0, false};
        if (model_.communicator == TransferModel::Communicator::Direction)
            key = {device, -1, 0, backward};
        if (model_.communicator == TransferModel::Communicator::Edge)
            key = {device, graph_.holder(task.peer, task.microbatch), is_send(task.op) ? 1 : 2, backward};
        const auto [found, fresh] = lane_numbers_.try_emplace(key, static_cast<int>(lanes_.size()));
        if (fresh)
            lanes_.emplace_back();
        return found->second;
    }

    // All gradients of a mini-batch but a stage's first are added to what is there.
    void mark_accumulation() {
        adds_gradients_.assign(static_cast<std::size_t>(graph_.size()), false);
        for (int device = 0; device < plan_.shape.devices; ++device) {
            std::vector<bool> begun(static_cast<std::size_t>(plan_.shape.stages), false);
            for (int position = 0; position < static_cast<int>(plan_.order[device].size()); ++position) {
                const Task& task = plan_.order[device][position];
                if (task.op == Op::Update)
                    begun[task.stage] = false;
                if (task.op != Op::Backward && task.op != Op::BackwardWeight)
                    continue;
                adds_gradients_[graph_.node(device, position)] = begun[task.stage];
                begun[task.stage] = true;
            }
        }
    }

    void push(Ns time, What what, int node) { queue_.push({time, seq_++, what, node}); }

    void handle(const Event& event) {
        const int node = event.node;
        switch (event.what) {
            case What::ComputeEnds:
                busy_[graph_.device_of(node)] = false;
                finish(node, event.time);
                advance(graph_.device_of(node), event.time);
                break;
            case What::LinkFree:
                finish(node, event.time);
                leave_lane(node, event.time);
                break;
            case What::Arrives:
                arrived_[node] = true;
                serve(lane_of_[node], event.time);
                break;
        }
    }

    void finish(int node, Ns time) {
        end_[node] = time;
        for (int reader : readers_[node])
            if (--waits_[reader] == 0 && !is_transfer(graph_.task(reader).op))
                advance(graph_.device_of(reader), time);
    }

    // Posts the transfers that the device's list has reached and starts its next task when it can.
    void advance(int device, Ns now) {
        const int length = static_cast<int>(plan_.order[device].size());
        while (!busy_[device] && next_[device] < length) {
            const int node = graph_.node(device, next_[device]);
            const Task& task = graph_.task(node);
            if (is_transfer(task.op)) {
                posted_[node] = true;
                ++next_[device];
                serve(lane_of_[node], now);
                continue;
            }
            if (waits_[node] > 0)
                return;
            busy_[device] = true;
            ++next_[device];
            start_[node] = now;
            push(now + duration(node, device), What::ComputeEnds, node);
        }
    }

    Ns duration(int node, int device) const {
        const Task& task = graph_.task(node);
        const StageCost& cost = costs_.stage[task.stage];
        Ns time = 0;
        switch (task.op) {
            case Op::Forward:
                time = cost.forward;
                break;
            case Op::Backward:
                time = cost.backward;
                break;
            case Op::BackwardInput:
                time = cost.backward_input;
                break;
            case Op::BackwardWeight:
                time = cost.backward_weight;
                break;
            case Op::Recompute:
                time = cost.recompute;
                break;
            case Op::Update:
                time = cost.update;
                break;
            case Op::SumGradients:
                time = cost.sum_gradients;
                break;
            default:
                break;
        }
        if (adds_gradients_[node])
            time += cost.accumulate;
        if (!costs_.speed.empty() && costs_.speed[device] != 1)
            time = std::llround(static_cast<double>(time) / costs_.speed[device]);
        return time + costs_.dispatch;
    }

    Ns occupation(int node) const {
        return std::llround(static_cast<double>(bytes_moved(graph_.task(node), costs_.edges)) / model_.link.bandwidth *
                            1e9);
    }

    bool at_head(int node) const {
        const Lane& lane = lanes_[lane_of_[node]];
        return !lane.done() && lane.nodes[lane.head] == node;
    }

    void leave_lane(int node, Ns now) {
        Lane& lane = lanes_[lane_of_[node]];
        ++lane.head;
        lane.busy = false;
        serve(lane_of_[node], now);
    }

    // Starts or completes the head of a lane as far as the protocol allows.
    void serve(int number, Ns now) {
        Lane& lane = lanes_[number];
        if (lane.done() || lane.busy)
            return;
        const int node = lane.nodes[lane.head];
        if (is_send(graph_.task(node).op))
            start_send(node, now);
        else if (arrived_[node] && posted_[node])
            receive(node, now);
        else if (model_.rendezvous)
            start_send(partner_[node], now);
    }

    void start_send(int send, Ns now) {
        const int recv = partner_[send];
        Lane& lane = lanes_[lane_of_[send]];
        if (!posted_[send] || !at_head(send) || lane.busy)
            return;
        if (model_.rendezvous && (!posted_[recv] || !at_head(recv)))
            return;
        lane.busy = true;
        start_[send] = start_[recv] = now;
        const Ns link_free = now + occupation(send);
        push(link_free, What::LinkFree, send);
        push(link_free + model_.link.latency, What::Arrives, recv);
    }

    void receive(int recv, Ns now) {
        finish(recv, now);
        leave_lane(recv, now);
    }

    void explain_deadlock() const {
        std::string heads;
        for (int device = 0; device < plan_.shape.devices; ++device)
            if (next_[device] < static_cast<int>(plan_.order[device].size()))
                heads += fmt::format("{}device {} waits at step {} for the inputs of {}", heads.empty() ? "" : "; ",
                                     device, next_[device], print(plan_.order[device][next_[device]]));
        if (!heads.empty())
            fail_with(ExitCode::Infeasible, "plan '{}' deadlocks: {}", plan_.schedule, heads);
    }

    const Plan& plan_;
    const Costs& costs_;
    const TransferModel& model_;
    PlanGraph graph_;
    VersionTable versions_;
    std::vector<int> waits_;
    std::vector<std::vector<int>> readers_;
    std::vector<Ns> start_, end_;
    std::vector<bool> posted_, arrived_, busy_, adds_gradients_;
    std::vector<int> lane_of_, partner_, next_;
    std::map<std::tuple<int, int, int, bool>, int> lane_numbers_;
    std::vector<Lane> lanes_;
    std::priority_queue<Event, std::vector<Event>, std::greater<>> queue_;
    std::int64_t seq_ = 0;
};

Trace Simulation::trace() const {
    Trace trace;
    trace.label = "predicted";
    trace.plan_hash = hash_of(plan_);
    trace.schedule = plan_.schedule;
    trace.devices = plan_.shape.devices;
    trace.stages = plan_.shape.stages;
    trace.micro_batches = plan_.shape.microbatches;
    trace.asynchronous = plan_.asynchronous;
    const auto memory = memory_of(plan_, buffers_of(plan_, costs_, versions_, model_.early_receive));
    for (int device = 0; device < plan_.shape.devices; ++device) {
        trace.stages_of.push_back(plan_.shape.stages_of(device));
        int position = 0;
        Ns reached = 0;  // memory follows the list: a position's buffers live from its task's start
        for (const Task& task : plan_.order[device]) {
            const int node = graph_.node(device, position);
            trace.events.push_back({0, device, 0, task, start_[node], end_[node], bytes_moved(task, costs_.edges),
                                    version_of(task, versions_, plan_)});
            if (!is_transfer(task.op))
                reached = start_[node];
            const MemoryUse& use = memory[device][position];
            if (position == 0 || use != trace.memory.back().use)
                trace.memory.push_back({0, device, reached, use});
            ++position;
        }
    }
    return trace;
}

}  // namespace

Trace simulate(const Plan& plan, const Costs& costs, const TransferModel& transfers) {
    Simulation simulation(plan, costs, transfers);
    simulation.run();
    return simulation.trace();
}

}  // namespace pw

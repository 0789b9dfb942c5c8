#include "schedules/passes.h"
#include "workloads/error.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace pw {

namespace {

void check_complete(const Plan& plan, const PlanGraph& graph) {
    for (int stage = 0; stage < plan.shape.stages; ++stage)
        for (int mb = 0; mb < plan.shape.microbatches; ++mb) {
            const auto has = [&](Op op) {
                const int node = graph.find({op, stage, mb});
                return node >= 0 && graph.task(node).op == op;
            };
            if (!has(Op::Forward))
                fail("plan '{}': no device runs {}", plan.schedule, print({Op::Forward, stage, mb}));
            const bool whole = has(Op::Backward), input = has(Op::BackwardInput), weight = has(Op::BackwardWeight);
            if (whole && (input || weight))
                fail("plan '{}': {} stands beside {}; B is I and W in one", plan.schedule,
                     print({Op::Backward, stage, mb}),
                     print({input ? Op::BackwardInput : Op::BackwardWeight, stage, mb}));
            if (!whole && !(input && weight))
                fail("plan '{}': no device runs {}", plan.schedule,
                     print({!input && !weight ? Op::Backward : (input ? Op::BackwardWeight : Op::BackwardInput), stage,
                            mb}));
        }
}

Task other_end(const Task& transfer) {
    constexpr Op kOther[] = {Op::RecvForward, Op::SendForward, Op::RecvBackward, Op::SendBackward};
    const int which = static_cast<int>(transfer.op) - static_cast<int>(Op::SendForward);
    return {kOther[which], transfer.peer, transfer.microbatch, transfer.slice, transfer.stage};
}

void check_transfers(const Plan& plan, const PlanGraph& graph) {
    for (int node = 0; node < graph.size(); ++node) {
        const Task& task = graph.task(node);
        if (!is_transfer(task.op))
            continue;
        const bool downstream = task.op == Op::SendForward || task.op == Op::RecvBackward;
        const std::vector<int> peers = downstream ? plan.shape.after(task.stage) : plan.shape.before(task.stage);
        const auto where = fmt::format("plan '{}': device {} step {}: {}", plan.schedule, graph.device_of(node),
                                       graph.position_of(node), print(task));
        if (std::find(peers.begin(), peers.end(), task.peer) == peers.end())
            fail("{}: no tensor flows between stages {} and {}", where, task.stage, task.peer);
        const int other = graph.find(other_end(task));
        if (other < 0)
            fail("{} has no {} at the other end", where, print(other_end(task)));
        if (graph.device_of(other) == graph.device_of(node))
            fail("{}: both stages are on device {}", where, graph.device_of(node));
    }
}

void check_local_order(const Plan& plan, const PlanGraph& graph) {
    for (int node = 0; node < graph.size(); ++node)
        for (int input : graph.inputs(node))
            if (graph.device_of(input) == graph.device_of(node) && input >= node)
                fail("plan '{}': device {} waits forever at step {}: {} needs {}, which no device runs before it",
                     plan.schedule, graph.device_of(node), graph.position_of(node), print(graph.task(node)),
                     print(graph.task(input)));
}

// What must happen before what when a transfer takes both ends at once: a SEND and its RECV are one
// event. Compute keeps list order, a transfer is posted when its device has reached it, and lanes
// (one per directed device pair and direction) keep their order on both ends.
class RendezvousOrder {
public:
    RendezvousOrder(const PlanGraph& graph, const Plan& plan) : graph_(graph), before_(graph.size()) {
        for (std::size_t device = 0; device < plan.order.size(); ++device)
            add_device(static_cast<int>(device), static_cast<int>(plan.order[device].size()));
        for (int node = 0; node < graph.size(); ++node)
            for (int input : graph.inputs(node))
                add(event(input), event(node));
    }

    // Nodes that wait for each other in a circle; empty when there is none.
    std::vector<int> cycle() const {
        std::vector<int> waits(before_.size(), 0);
        std::vector<std::vector<int>> after(before_.size());
        for (std::size_t node = 0; node < before_.size(); ++node)
            for (int earlier : before_[node]) {
                after[earlier].push_back(static_cast<int>(node));
                ++waits[node];
            }
        std::vector<int> ready;
        for (std::size_t node = 0; node < before_.size(); ++node)
            if (waits[node] == 0)
                ready.push_back(static_cast<int>(node));
        for (std::size_t next = 0; next < ready.size(); ++next)
            for (int later : after[ready[next]])
                if (--waits[later] == 0)
                    ready.push_back(later);
        return ready.size() == before_.size() ? std::vector<int>{} : find_cycle(waits);
    }

private:
    // A RECV happens with its SEND.
    int event(int node) const { return is_recv(graph_.task(node).op) ? graph_.inputs(node).front() : node; }
    void add(int earlier, int later) {
        if (earlier != later)
            before_[later].push_back(earlier);
    }

    void add_device(int device, int length) {
        int compute = -1;
        std::map<std::tuple<int, Op>, int> lane;  // (other device, which end) -> last transfer
        for (int position = 0; position < length; ++position) {
            const int node = graph_.node(device, position);
            const Task& task = graph_.task(node);
            if (compute >= 0)
                add(compute, event(node));
            if (!is_transfer(task.op)) {
                compute = node;
                continue;
            }
            const int other = graph_.device_of(graph_.find(other_end(task)));
            const auto [last, fresh] = lane.try_emplace({other, task.op}, node);
            if (!fresh)
                add(event(last->second), event(node));
            last->second = node;
        }
    }

    std::vector<int> find_cycle(const std::vector<int>& waits) const {
        std::size_t start = 0;
        while (waits[start] == 0)
            ++start;
        std::vector<int> path{static_cast<int>(start)};
        for (;;) {
            const auto& earlier = before_[path.back()];
            const int next = *std::find_if(earlier.begin(), earlier.end(), [&](int node) { return waits[node] > 0; });
            const auto seen = std::find(path.begin(), path.end(), next);
            if (seen != path.end())
                return {seen, path.end()};
            path.push_back(next);
        }
    }

    const PlanGraph& graph_;
    std::vector<std::vector<int>> before_;  // by node; a RECV's row stays empty
};

void check_deadlock(const Plan& plan, const PlanGraph& graph) {
    const std::vector<int> cycle = RendezvousOrder(graph, plan).cycle();
    if (cycle.empty())
        return;
    std::string waits;
    for (int node : cycle)
        waits += fmt::format("{}device {} step {}: {}", waits.empty() ? "" : ", which waits for ",
                             graph.device_of(node), graph.position_of(node), print(graph.task(node)));
    fail_with(ExitCode::Infeasible, "plan '{}' deadlocks: {}, which waits for the first", plan.schedule, waits);
}

}  // namespace

void check(const Plan& plan) {
    const PlanGraph graph(plan);
    check_complete(plan, graph);
    check_transfers(plan, graph);
    check_local_order(plan, graph);
    check_deadlock(plan, graph);
}

}  // namespace pw

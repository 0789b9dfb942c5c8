#include "schedules/passes.h"
#include "schedules/plan_graph.h"
#include "schedules/sum_groups.h"
#include "workloads/error.h"

#include <algorithm>
#include <map>
#include <utility>

namespace pw {

namespace {

// A plan without any backward is a forward-only one.
bool has_backward(const Plan& plan) {
    return std::any_of(plan.order.begin(), plan.order.end(), [](const std::vector<Task>& order) {
        return std::any_of(order.begin(), order.end(),
                           [](const Task& task) { return is_compute(task.op) && task.op != Op::Forward; });
    });
}

void check_complete(const Plan& plan, const PlanGraph& graph) {
    const bool trains = has_backward(plan);
    for (int stage = 0; stage < plan.shape.stages; ++stage)
        for (int mb = 0; mb < plan.shape.microbatches; ++mb) {
            const auto has = [&](Op op) {
                const int node = graph.find({op, stage, mb});
                return node >= 0 && graph.task(node).op == op;
            };
            if (!has(Op::Forward))
                fail("plan '{}': no device runs {}", plan.schedule, print({Op::Forward, stage, mb}));
            if (!trains)
                continue;
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

bool is_sum(Op op) { return op == Op::SumGradients; }
bool is_update(Op op) { return op == Op::Update; }

// Returns, by mini-batch, the last position in the device's list of such a task of the stage, or -1 for none.
std::vector<int> last_positions(const Plan& plan, int device, int stage, bool (*is_such)(Op)) {
    std::vector<int> last(static_cast<std::size_t>(plan.shape.updates()), -1);
    const std::vector<Task>& order = plan.order[device];
    for (int position = 0; position < static_cast<int>(order.size()); ++position)
        if (const Task& task = order[position]; task.stage == stage && is_such(task.op))
            last[plan.shape.mini_batch_of(task.microbatch)] = position;
    return last;
}

// A holder runs S or U once per mini-batch of a stage, after its last gradient of it.
void check_closing(const Plan& plan, int device, int stage, Op op, const PlaceName& place) {
    const std::vector<Task>& order = plan.order[device];
    const std::vector<int> closing = last_positions(plan, device, stage, op == Op::Update ? is_update : is_sum);
    const std::vector<int> gradient = last_positions(plan, device, stage, makes_weight_gradient);
    for (int mini_batch = 0; mini_batch < plan.shape.updates(); ++mini_batch) {
        const Task wanted{op, stage, plan.shape.last_of(mini_batch)};
        const int at = closing[mini_batch];
        if (at < 0)
            fail("plan '{}': no task of device {} runs {}", plan.schedule, device, print(wanted));
        if (order[at] != wanted)
            fail("plan '{}': {}: {} should be {}", plan.schedule, place(device, at), print(order[at]), print(wanted));
        if (gradient[mini_batch] > at)
            fail("plan '{}': {}: {} comes before {}, which it includes", plan.schedule, place(device, at),
                 print(order[at]), print(order[gradient[mini_batch]]));
    }
}

// Every holder of a stage sums its gradients with the others' and those of tied stages, and updates it.
void check_updates(const Plan& plan, const PlaceName& place) {
    if (!has_backward(plan))
        return;
    for (int device = 0; device < plan.shape.devices; ++device)
        for (const int stage : plan.shape.stages_of(device)) {
            if (needs_sum(plan.shape, stage))
                check_closing(plan, device, stage, Op::SumGradients, place);
            check_closing(plan, device, stage, Op::Update, place);
        }
}

void check_transfers(const Plan& plan, const PlanGraph& graph, const PlaceName& place) {
    for (int node = 0; node < graph.size(); ++node) {
        const Task& task = graph.task(node);
        if (!is_transfer(task.op))
            continue;
        const bool downstream = edge_of(task).from == task.stage;
        const std::span<const int> peers =
            downstream ? graph.index().after(task.stage) : graph.index().before(task.stage);
        const auto where = [&] {
            return fmt::format("plan '{}': {}: {}", plan.schedule,
                               place(graph.device_of(node), graph.position_of(node)), print(task));
        };
        if (std::find(peers.begin(), peers.end(), task.peer) == peers.end())
            fail("{}: no tensor flows between stages {} and {}", where(), task.stage, task.peer);
        const int other = graph.find(other_end(task));
        if (other < 0)
            fail("{} has no {} at the other end", where(), print(other_end(task)));
        if (graph.device_of(other) == graph.device_of(node))
            fail("{}: both stages are on device {}", where(), graph.device_of(node));
    }
}

// Checks that a micro-batch stays on one device of a stage, since what F saves stays there.
void check_holders(const Plan& plan, const PlanGraph& graph, const PlaceName& place) {
    for (int node = 0; node < graph.size(); ++node) {
        const Task& task = graph.task(node);
        const int device = graph.device_of(node);
        if (task.op == Op::Update || task.op == Op::SumGradients)
            continue;
        if (const int holder = graph.holder(task.stage, task.microbatch); holder != device)
            fail("plan '{}': {}: {} belongs on device {}, which runs {}", plan.schedule,
                 place(device, graph.position_of(node)), print(task), holder,
                 print({Op::Forward, task.stage, task.microbatch}));
    }
}

void check_local_order(const Plan& plan, const PlanGraph& graph, const PlaceName& named) {
    for (int node = 0; node < graph.size(); ++node)
        for (int input : graph.inputs(node))
            if (graph.device_of(input) == graph.device_of(node) && input >= node) {
                const int device = graph.device_of(node), step = graph.position_of(node);
                const std::string place = named ? named(device, step) + " waits forever"
                                                : fmt::format("device {} waits forever at step {}", device, step);
                fail("plan '{}': {}: {} needs {}, which no device runs before it", plan.schedule, place,
                     print(graph.task(node)), print(graph.task(input)));
            }
}

void check_deadlock(const Plan& plan, const PlanGraph& graph, const TransferMode& mode, const PlaceName& place) {
    std::string waits;
    for (const int node : deadlock_of(plan, graph, mode))
        waits +=
            fmt::format("\n    {}: {}", place(graph.device_of(node), graph.position_of(node)), print(graph.task(node)));
    if (!waits.empty())
        fail_with(
            ExitCode::Infeasible,
            "plan '{}' deadlocks ({}): each task waits for the one below, the last for the first{}\n  help: "
            "`pipewright validate PLAN.csv` tells which transfer.communicator and transfer.receive are free of it",
            plan.schedule, print(mode), waits);
}

}  // namespace

std::vector<int> deadlock_of(const Plan& plan, const PlanGraph& graph, TransferMode mode) {
    Walk walk(plan, graph, mode);
    walk.go_on();
    return walk.finished() ? std::vector<int>{} : walk.circle();
}

void check(const Plan& plan, TransferMode mode, const PlaceName& named) {
    const PlaceName place =
        named ? named : [](int device, int position) { return fmt::format("device {} step {}", device, position); };
    const PlanGraph graph(plan);
    check_complete(plan, graph);
    check_holders(plan, graph, place);
    check_transfers(plan, graph, place);
    check_local_order(plan, graph, named);
    check_updates(plan, place);
    check_deadlock(plan, graph, mode, place);
}

}  // namespace pw

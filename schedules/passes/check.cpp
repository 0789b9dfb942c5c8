#include "schedules/passes/passes.h"
#include "schedules/passes/waiting.h"
#include "schedules/plan/plan_graph.h"
#include "schedules/plan/sum_groups.h"
#include "workloads/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pw {

namespace {

PlaceName place_name(const PlaceName& named) {
    return named ? named : [](int device, int position) { return fmt::format("device {} step {}", device, position); };
}

// A plan without any backward is a plan of forwards only.
bool has_backward(const Plan& plan) {
    return std::any_of(plan.order.begin(), plan.order.end(), [](const std::vector<Task>& order) {
        return std::any_of(order.begin(), order.end(), [](const Task& task) { return is_backward(task.op); });
    });
}

void check_complete(const Plan& plan, const PlanGraph& graph) {
    const bool trains = has_backward(plan);
    for (int stage = 0; stage < plan.shape.stages; ++stage) {
        const auto nodes_of = [&](Op op) { return graph.nodes(op, stage); };
        const std::span<const int> forwards = nodes_of(Op::Forward), wholes = nodes_of(Op::Backward),
                                   inputs = nodes_of(Op::BackwardInput), weights = nodes_of(Op::BackwardWeight);
        for (int mb = 0; mb < plan.shape.microbatches; ++mb) {
            const auto has = [&](std::span<const int> nodes) { return !nodes.empty() && nodes[mb] >= 0; };
            if (!has(forwards))
                fail("plan '{}': no device runs {}", plan.schedule, print(plan.shape.task(Op::Forward, stage, mb)));
            if (!trains)
                continue;
            const bool whole = has(wholes), input = has(inputs), weight = has(weights);
            if (plan.shape.runs_forwards_only(stage)) {
                if (whole || input || weight)
                    fail("plan '{}': micro-batch {} has a backward on stage {}, which runs forwards only",
                         plan.schedule, number_of(plan.shape.task(Op::Forward, stage, mb)), stage);
                continue;
            }
            if (whole && (input || weight))
                fail("plan '{}': both {} and {} are listed; B is I and W in one", plan.schedule,
                     print(plan.shape.task(Op::Backward, stage, mb)),
                     print(plan.shape.task(input ? Op::BackwardInput : Op::BackwardWeight, stage, mb)));
            if (!whole && !(input && weight))
                fail("plan '{}': no device runs {}", plan.schedule,
                     print(plan.shape.task(
                         !input && !weight ? Op::Backward : (input ? Op::BackwardWeight : Op::BackwardInput), stage,
                         mb)));
        }
    }
}

// The last positions of a stage's tasks of a mini-batch in a device's list, or -1.
struct LastPositions {
    int gradient = -1, sum = -1, update = -1;
};

// Returns the last positions by stage of the device, then by mini-batch.
std::vector<LastPositions> last_positions(const Plan& plan, const ShapeIndex& index, int device) {
    const std::span<const int> stages = index.stages_of(device);
    const auto updates = static_cast<std::size_t>(plan.shape.updates());
    std::vector<LastPositions> last(stages.size() * updates);
    const std::vector<Task>& order = plan.order[device];
    for (int position = 0; position < static_cast<int>(order.size()); ++position) {
        const Task& task = order[position];
        const bool gradient = makes_weight_gradient(task.op), sum = task.op == Op::SumGradients;
        if (!gradient && !sum && task.op != Op::Update)
            continue;
        const auto row = std::lower_bound(stages.begin(), stages.end(), task.stage) - stages.begin();
        LastPositions& of_stage =
            last[static_cast<std::size_t>(row) * updates + plan.shape.mini_batch_of(task.microbatch)];
        (gradient ? of_stage.gradient : sum ? of_stage.sum : of_stage.update) = position;
    }
    return last;
}

// Checks that a holder runs `wanted`, an S or U, once per mini-batch of a stage, after the stage's last gradient of it.
void check_closing(const Plan& plan, int device, const Task& wanted, int at, int gradient, const PlaceName& place) {
    const std::vector<Task>& order = plan.order[device];
    if (at < 0)
        fail(
            "plan '{}': no task of device {} runs {}\n  help: it is the {} of stage {} after micro-batch {}: add it to "
            "the device's tasks",
            plan.schedule, device, print(wanted), wanted.op == Op::Update ? "update" : "sum of gradients", wanted.stage,
            wanted.whole());
    if (order[at] != wanted)
        fail("plan '{}': {}: {} should be {}", plan.schedule, place(device, at), print(order[at]), print(wanted));
    if (gradient > at)
        fail("plan '{}': {}: {} comes before {}, which it includes", plan.schedule, place(device, at), print(order[at]),
             print(order[gradient]));
}

// Checks that every holder of a stage sums its gradients with the gradients of the remaining holders and of tied
// stages, and updates the stage.
void check_updates(const Plan& plan, const ShapeIndex& index, const PlaceName& place) {
    if (!has_backward(plan))
        return;
    for (int device = 0; device < plan.shape.devices; ++device) {
        const std::vector<LastPositions> last = last_positions(plan, index, device);
        auto of_stage = last.begin();
        for (const int stage : index.stages_of(device)) {
            const auto check_all = [&](Op op, int LastPositions::*at) {
                for (int mini_batch = 0; mini_batch < plan.shape.updates(); ++mini_batch)
                    check_closing(plan, device, plan.shape.task(op, stage, plan.shape.last_of(mini_batch)),
                                  of_stage[mini_batch].*at, of_stage[mini_batch].gradient, place);
            };
            if (needs_sum(plan.shape, stage) && !plan.shape.runs_forwards_only(stage))
                check_all(Op::SumGradients, &LastPositions::sum);
            if (!plan.shape.runs_forwards_only(stage))
                check_all(Op::Update, &LastPositions::update);
            of_stage += plan.shape.updates();
        }
    }
}

void check_transfers(const Plan& plan, const PlanGraph& graph, const PlaceName& place) {
    for (int node = 0; node < graph.size(); ++node) {
        const Task& task = graph.task(node);
        if (!is_transfer(task.op))
            continue;
        const auto where = [&] {
            return fmt::format("plan '{}': {}: {}", plan.schedule,
                               place(graph.device_of(node), graph.position_of(node)), print(task));
        };
        if (graph.index().edge(edge_of(task).from, edge_of(task).to) < 0)
            fail("{}: no tensor flows between stages {} and {}", where(), task.stage, task.peer);
        const int other = is_recv(task.op) ? graph.inputs(node).front() : graph.find(other_end(task));
        if (other < 0)
            fail("{} has no {} at the other end", where(), print(other_end(task)));
        if (graph.device_of(other) == graph.device_of(node))
            fail("{}: both stages are on device {}", where(), graph.device_of(node));
    }
}

// Checks that what leaves a device comes back. A backward waits for a RELOAD only if there is one, and U for a LOAD.
void check_copies(const Plan& plan, const PlanGraph& graph, const PlaceName& place) {
    std::map<std::pair<int, int>, int> stored;  // device and stage -> its STORE
    const auto refuse = [&](int node, Op missing, const char* before) {
        const Task& task = graph.task(node);
        fail("plan '{}': {}: {} has no {}\n  help: add it before the {}, or remove both", plan.schedule,
             place(graph.device_of(node), graph.position_of(node)), print(task),
             print(Task{missing, task.stage, task.microbatch, task.slices}), before);
    };
    for (int node = 0; node < graph.size(); ++node) {
        const Task& task = graph.task(node);
        const std::pair key{graph.device_of(node), task.stage};
        if (task.op == Op::Offload && graph.find({Op::Reload, task.stage, task.microbatch, task.slices}) < 0)
            refuse(node, Op::Reload, "backward");
        if (task.op == Op::Store && !stored.try_emplace(key, node).second)
            refuse(node, Op::Load, "update");
        if (task.op == Op::Load && stored.erase(key) == 0)
            refuse(node, Op::Store, "update");
        if (const auto found = stored.find(key); task.op == Op::Update && found != stored.end())
            refuse(found->second, Op::Load, "update");
    }
    if (!stored.empty())
        refuse(stored.begin()->second, Op::Load, "update");
}

// Checks that each micro-batch runs on the device that serves it, since what F saves is there.
void check_servers(const Plan& plan, const PlanGraph& graph, const PlaceName& place) {
    for (int node = 0; node < graph.size(); ++node) {
        const Task& task = graph.task(node);
        if (runs_once_per_update(task.op))
            continue;
        const int device = graph.device_of(node), server = plan.shape.server_of(task.stage, task.microbatch);
        if (server != device)
            fail("plan '{}': {}: {} belongs on device {}, which serves micro-batch {} on stage {}", plan.schedule,
                 place(device, graph.position_of(node)), print(task), server, number_of(task), task.stage);
    }
}

// Checks that the two tasks of a pair are neighbours that compute and do not need each other.
void check_pairs(const Plan& plan, const PlanGraph& graph, const PlaceName& place) {
    for (int node = 0; node < graph.size(); ++node) {
        const Task& task = graph.task(node);
        if (!task.with_next)
            continue;
        const int next = graph.paired_with(node);
        const auto refuse = [&](const std::string& fact) {
            fail(
                "plan '{}': {}: {} {}\n  help: a pair is two neighbouring tasks F, B, I or W that do not need each "
                "other",
                plan.schedule, place(graph.device_of(node), graph.position_of(node)), print(task), fact);
        };
        if (next < 0)
            refuse("overlaps the next task, but is the last one");
        const Task& other = graph.task(next);
        const auto can_pair = [](Op op) { return is_compute(op) && op != Op::Recompute; };
        if (!can_pair(task.op) || !can_pair(other.op) || other.with_next)
            refuse(fmt::format("cannot overlap {}", print(other)));
        const std::span<const int> inputs = graph.inputs(next);
        if (std::find(inputs.begin(), inputs.end(), node) != inputs.end())
            refuse(fmt::format("overlaps {}, which needs it", print(other)));
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

// Returns the nodes in an order in which they can run. If the plan deadlocks, returns fewer than all. OneSlot has no
// such order.
std::vector<int> order_of(const PlanGraph& graph, const TransferMode& mode, const std::vector<char>& by_rendezvous) {
    return mode.protocol == TransferMode::Protocol::OneSlot ? std::vector<int>{}
                                                            : Waiting(graph, mode, by_rendezvous).order();
}

// Returns the other modes in which the same transfers could run.
std::vector<TransferMode> other_modes(const TransferMode& mode) {
    std::vector<TransferMode> modes;
    for (const auto protocol : {mode.protocol, TransferMode::Protocol::Eager})
        for (const auto exchange : {mode.exchange, TransferMode::Exchange::Overlapped})
            for (const auto& communicator : kChoices<TransferMode::Communicator>)
                for (const auto& receive : kChoices<TransferMode::Receive>) {
                    TransferMode& other = modes.emplace_back(mode);
                    other.protocol = protocol;
                    other.exchange = exchange;
                    other.communicator = communicator.value;
                    other.receive = receive.value;
                }
    return modes;
}

// A setting of transfers with its value: "receive: early".
struct ModeChange {
    Setting setting;
    std::string text;
};

// Returns the settings that turn `mode` into `other`.
std::vector<ModeChange> changes_to(const TransferMode& other, const TransferMode& mode) {
    std::vector<ModeChange> changes;
    const auto add = [&](Setting setting, std::string_view name, auto value, auto before) {
        if (value != before)
            changes.push_back({setting, fmt::format("{}: {}", name, name_of(value))});
    };
    add(Setting::TransferLanes, "communicator", other.communicator, mode.communicator);
    add(Setting::TransferReceive, "receive", other.receive, mode.receive);
    add(Setting::TransferExchange, "exchange", other.exchange, mode.exchange);
    add(Setting::TransferProtocol, "protocol", other.protocol, mode.protocol);
    return changes;
}

// Returns the fewest changes with which the plan completes, or nothing.
std::vector<ModeChange> fewest_changes(const Plan& plan, const PlanGraph& graph, const TransferMode& mode) {
    std::vector<ModeChange> fewest;
    for (const TransferMode& other : other_modes(mode))
        if (const std::vector<ModeChange> changes = changes_to(other, mode);
            !changes.empty() && (fewest.empty() || changes.size() < fewest.size()) &&
            deadlock_of(plan, graph, other).empty())
            fewest = changes;
    return fewest;
}

// Returns a line per task of the cycle. A transfer that is not in the user's file is named by the task that makes its
// tensor.
std::string lines_of(const PlanGraph& graph, const std::vector<int>& cycle, const PlaceName& place) {
    const auto place_of = [&](int node) { return place(graph.device_of(node), graph.position_of(node)); };
    std::string lines;
    int named = -1;
    for (int node : cycle) {
        if (is_send(graph.task(node).op) && place_of(node).empty())
            node = graph.inputs(node).front();
        if (const std::string at = place_of(node); !at.empty() && node != std::exchange(named, node))
            lines += fmt::format("\n    {}: {}", at, print(graph.task(node)));
    }
    return lines;
}

}  // namespace

std::vector<int> deadlock_of(const Plan& plan, const PlanGraph& graph, const TransferMode& mode,
                             const std::vector<char>& by_rendezvous) {
    if (std::ssize(order_of(graph, mode, by_rendezvous)) == graph.size())
        return {};
    Walk walk(plan, graph, mode, by_rendezvous);
    walk.run();
    return walk.finished() ? std::vector<int>{} : walk.cycle();
}

void refuse_deadlock(const Plan& plan, const PlanGraph& graph, const TransferMode& mode,
                     const std::vector<char>& by_rendezvous, const PlaceName& named) {
    const std::vector<int> cycle = deadlock_of(plan, graph, mode, by_rendezvous);
    if (cycle.empty())
        return;
    const std::vector<ModeChange> changes = fewest_changes(plan, graph, mode);
    std::vector<Setting> settings;
    std::string help = "it completes with";
    for (const ModeChange& change : changes) {
        help += fmt::format("{} {}", settings.empty() ? "" : " and", change.text);
        settings.push_back(change.setting);
    }
    throw Error(ExitCode::Infeasible,
                fmt::format("plan '{}' deadlocks ({}): each task waits for the one below, the last for the first{}\n"
                            "  help: {}",
                            plan.schedule, changes.empty() ? "in all lanes, under all protocols" : print(mode),
                            lines_of(graph, cycle, place_name(named)),
                            changes.empty() ? "change the order of the tasks" : help),
                settings);
}

std::shared_ptr<const Proof> check(const Plan& plan, TransferMode mode, const PlaceName& named) {
    const PlaceName place = place_name(named);
    PlanGraph graph(plan);
    check_complete(plan, graph);
    check_servers(plan, graph, place);
    check_transfers(plan, graph, place);
    check_copies(plan, graph, place);
    check_pairs(plan, graph, place);
    check_local_order(plan, graph, named);
    check_updates(plan, graph.index(), place);
    std::vector<int> order = order_of(graph, mode, {});
    if (std::ssize(order) != graph.size()) {
        refuse_deadlock(plan, graph, mode, {}, named);
        order.clear();
    }
    return std::make_shared<const Proof>(Proof{std::move(graph), mode, std::move(order)});
}

}  // namespace pw

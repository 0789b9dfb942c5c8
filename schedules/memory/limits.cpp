#include "schedules/memory/limits.h"

#include "schedules/memory/buffers.h"
#include "schedules/plan/durations.h"
#include "schedules/plan/plan_graph.h"
#include "schedules/plan/sum_groups.h"
#include "workloads/error.h"
#include "workloads/machine_memory.h"

#include <algorithm>
#include <array>

namespace pw {

namespace {

// Bytes per task and transfer of everything that grows with a plan: its proof and its numbers; the second with a trace.
// No measurement from 8 to 1024 stages, with every schedule and all kinds of buffers, was higher.
constexpr double kPerTask = 250, kPerTracedTask = 400;

double years(double nanoseconds) { return nanoseconds / (365.25 * 24 * 3600 * 1e9); }

std::string text_of(double bytes) {
    constexpr double kTiB = 0x1p40;
    return bytes < kTiB ? print_bytes(static_cast<Bytes>(bytes)) : fmt::format("{:.4g} TiB", bytes / kTiB);
}

// Returns a lower bound of the tasks of a plan of the shape: F, I and W or B and R, with two transfers in each
// direction of an edge, and S and U once per holder and mini-batch.
double tasks_of(const Shape& shape) {
    const double edges = shape.edges ? static_cast<double>(shape.edges->size()) : shape.stages - 1.0;
    double holders = shape.stages;
    for (const std::vector<int>& devices : shape.placement)
        holders += static_cast<double>(devices.size());
    return shape.microbatches * (3.0 * shape.stages + 4 * edges) + 2 * holders * shape.updates();
}

// Measured bytes per input of a task at a barrier: in the graph, in the waiting relation, and in its order.
constexpr double kPerBarrierInput = 25;

// Returns a lower bound of the inputs of the S and U at barriers: each waits for the inputs of all.
double inputs_of_barriers(const Shape& shape) {
    double all = 0, tied = 0, own = 0;
    for (int stage = 0; stage < shape.stages; ++stage) {
        const double holders = shape.placement.empty() ? 1 : static_cast<double>(shape.placement[stage].size());
        all += holders;
        (is_tied(shape, stage) ? tied : own) += is_tied(shape, stage) ? holders : holders * holders;
    }
    return shape.updates() * (own + tied * tied + (shape.global_norm ? 2 * all * all : 0));
}

// A share of a plan's time: the time of all tasks with one operation, or the latency of all transfers.
struct Share {
    double time = 0;
    Ns longest = 0;
    int node = -1;  // the node that takes the longest
    // Adds `each` for every task of the kind. Returns the share so far.
    double add(Ns each, const TaskKinds::Kind& kind) {
        const double more = static_cast<double>(each) * kind.count;
        time += more;
        if (node < 0 || each > longest) {
            longest = each;
            node = kind.first;
        }
        return more;
    }
};

Setting larger_of(const Shape& shape) {
    return shape.stages > shape.microbatches ? Setting::Stages : Setting::MicroBatches;
}

struct Blame {
    Setting setting;
    const char* what;
    const char* help;
};

Blame blame_for(Op op) {
    switch (op) {
        case Op::Forward:
            return {Setting::ForwardTime, "forward passes", "check the unit of their time"};
        case Op::Backward:
        case Op::BackwardInput:
            return {Setting::BackwardInputTime, "backward passes", "check the unit of their time"};
        case Op::BackwardWeight:
            return {Setting::BackwardWeightTime, "backward passes", "check the unit of their time"};
        case Op::Recompute:
            return {Setting::Recompute, "recomputed forward passes", "check the unit of their time"};
        case Op::Update:
            return {Setting::MemoryBandwidth, "updates", "raise the bandwidth of memory"};
        case Op::SumGradients:
            return {Setting::LinkBandwidth, "sums of gradients", "raise the link's bandwidth, as in 10 GB/s"};
        case Op::Offload:
        case Op::Reload:
        case Op::Store:
        case Op::Load:
            return {Setting::HostLink, "copies to and from the host", "raise its bandwidth, as in 25 GB/s"};
        case Op::SendForward:
        case Op::RecvForward:
        case Op::SendBackward:
        case Op::RecvBackward:
            break;
    }
    return {Setting::LinkBandwidth, "transfers", "raise the link's bandwidth, as in 10 GB/s"};
}

[[noreturn]] void refuse_share(const Share& share, double total, Blame blame, const PlanGraph& graph,
                               const Costs& costs) {
    const int device = graph.device_of(share.node);
    if (is_compute(graph.task(share.node).op) && costs.cluster->speed_of(device) < 1) {
        blame.setting = {Setting::DeviceSpeed, device};
        blame.help = "raise the speed of the device; 1 is the speed of the costs";
    }
    fail_about(
        {blame.setting, Setting::MicroBatches},
        "the plan may take {:.4g} years, but times are limited to {:.0f} years: {} take {:.0f} % of it, {} is the "
        "longest, {}\n  help: {}, or plan fewer micro-batches",
        years(total), years(static_cast<double>(kLongestPlan)), blame.what, 100 * share.time / total,
        print(graph.task(share.node)), print_time(share.longest), blame.help);
}

}  // namespace

int microbatches_of_plan(int micro_batches, int steps, int slices) {
    const std::int64_t all = std::int64_t{micro_batches} * steps * slices;
    if (all > kMostTasks && slices > 1)
        fail_about({Setting::Slices},
                   "{} micro-batches of {} slices are {} slices, but a plan has at most {} tasks\n  help: cut "
                   "micro-batches into fewer slices",
                   micro_batches, slices, all, kMostTasks);
    if (all > kMostTasks)
        fail_about({Setting::Steps},
                   "an asynchronous plan has the micro-batches of all steps: {} steps of {} are {}, but a plan has at "
                   "most {} tasks\n  help: plan fewer steps: 100 suffice for the step time",
                   steps, micro_batches, all, kMostTasks);
    return static_cast<int>(all);
}

void refuse_large_table(double bytes, const Shape& shape) {
    const Bytes limit = memory_for_plans();
    if (bytes > static_cast<double>(limit))
        fail_about({larger_of(shape)},
                   "a plan of {} stages and {} micro-batches on {} devices takes {} of memory to compute; half of what "
                   "this process may have is {}\n  help: plan fewer stages, micro-batches or devices, or use a machine "
                   "with more memory",
                   shape.stages, shape.microbatches, shape.devices, text_of(bytes), print_bytes(limit));
}

void refuse_large(const Shape& shape) {
    if (const double tasks = tasks_of(shape); tasks > static_cast<double>(kMostTasks))
        fail_about({larger_of(shape)},
                   "a plan of {} stages and {} micro-batches has {:.4g} tasks and transfers; at most {} are "
                   "supported\n  help: plan fewer stages or micro-batches; for an asynchronous schedule, fewer steps",
                   shape.stages, shape.microbatches, tasks, kMostTasks);
    const double inputs_of_all = inputs_of_barriers(shape);
    if (inputs_of_all > kMostInputs - 4.0 * kMostTasks)
        fail_about({Setting::Stages},
                   "the sums and updates of a plan of {} stages on {} devices wait for {:.4g} gradients; at most "
                   "{:.4g} are supported\n  help: plan fewer stages or devices that share parameters or a norm",
                   shape.stages, shape.devices, inputs_of_all, kMostInputs);
    refuse_large_table(kPerTask * tasks_of(shape) + kPerBarrierInput * inputs_of_all, shape);
}

void refuse_large_trace(const PlanGraph& graph, const Shape& shape) {
    refuse_large_table(kPerTracedTask * graph.size(), shape);
}

void refuse_long(const PlanGraph& graph, const TaskKinds& kinds, const std::vector<Ns>& durations,
                 const std::vector<Ns>& busy, const Costs& costs) {
    std::array<Share, kOps> shares{};
    Share latency;
    double total = 0;
    for (std::size_t number = 0; number < durations.size(); ++number) {
        const TaskKinds::Kind& kind = kinds.all()[number];
        const Ns time = busy.empty() ? durations[number] : std::max(durations[number], busy[number]);
        if (is_send(kind.op))
            total += latency.add(costs.cluster->link_of(kind.device, kind.receiver).latency, kind);
        total += shares[static_cast<int>(is_send(kind.op) ? Op::SendForward : kind.op)].add(time, kind);
    }
    if (total <= static_cast<double>(kLongestPlan))
        return;
    const auto most =
        std::max_element(shares.begin(), shares.end(), [](const Share& a, const Share& b) { return a.time < b.time; });
    if (latency.time > most->time)
        refuse_share(latency, total, {Setting::LinkLatency, "latencies", "lower the link's latency"}, graph, costs);
    refuse_share(*most, total, blame_for(static_cast<Op>(most - shares.begin())), graph, costs);
}

void refuse_heavy(double all, const Buffer& largest) {
    if (all <= static_cast<double>(kLargestPlan))
        return;
    const bool weights = largest.kind <= MemoryKind::Optimizer;
    fail_about({weights ? Setting::Weights : Setting::Activations, Setting::MicroBatches},
               "the buffers of the plan add up to {}, but bytes are limited to {}; the largest holds {} of stage {}, "
               "{}\n  help: check the units of sizes, or plan fewer micro-batches",
               text_of(all), text_of(static_cast<double>(kLargestPlan)), name_of(largest.kind), largest.stage,
               print_bytes(largest.bytes));
}

}  // namespace pw

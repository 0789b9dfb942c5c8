#include "exec/engine/planning.h"

#include "exec/engine/guards.h"
#include "exec/engine/ranks_of_run.h"
#include "schedules/plan/contention.h"
#include "schedules/plan/durations.h"
#include "schedules/plan/traffic.h"

#include <algorithm>
#include <limits>

namespace pw {

namespace {

// By node, empty if no durations of tasks have been measured.
std::vector<Ns> predicted_durations(const Job& job, const PlanGraph& graph) {
    const bool known = is_emulated(job.setup) || !job.setup.cluster.profile.empty();
    return known && !job.costs.stage.empty() ? durations_of(job.plan, graph, job.costs, job.versions)
                                             : std::vector<Ns>{};
}

struct Route {
    int send, from, to;  // a SEND and its two devices
};

std::vector<Route> routes_of(const PlanGraph& graph) {
    std::vector<Route> all;
    for (int node = 0; node < graph.size(); ++node)
        if (is_recv(graph.task(node).op)) {
            const int send = graph.inputs(node).front();
            all.push_back({send, graph.device_of(send), graph.device_of(node)});
        }
    return all;
}

LinkTimes link_times(const RunPlan& plan, const Costs& costs, const TransferMode& mode) {
    const Cluster& cluster = *costs.cluster;
    const bool shared = may_share_links(plan.graph, mode, costs);
    LinkTimes times;
    times.occupation.assign(plan.moved.size(), 0);
    times.latency.assign(plan.moved.size(), 0);
    std::vector<Demand> demands(plan.moved.size());
    for (const auto& [send, from, to] : routes_of(plan.graph)) {
        const Link& link = cluster.link_of(from, to);
        const double most = cluster.routes.most(from, to);
        times.occupation[send] = occupation_of(plan.moved[send], link, most);
        times.latency[send] = link.latency;
        const double bandwidth = bandwidth_for(static_cast<double>(plan.moved[send]), link);
        demands[send] = {.takes = cluster.routes.takes(from, to), .most = std::min(bandwidth, most)};
    }
    if (shared)
        times.shared = {cluster.routes.capacities(), std::move(demands)};
    return times;
}

}  // namespace

Ns times_generous(Ns time) {
    constexpr Ns kGenerous = 10;
    return time > std::numeric_limits<Ns>::max() / kGenerous ? time : kGenerous * time;
}

void plan_memory(RunPlan& plan, const Costs& costs, bool guarded) {
    const Job& job = plan.job;
    const Shape& shape = job.plan.shape;
    plan.edges = costs.edges;
    const Traffic traffic(shape, plan.graph.index(), costs);
    plan.moved = traffic.bytes(plan.graph);
    std::vector<int> parts;
    for (int stage = 0; stage < shape.stages; ++stage)
        parts.push_back(plan.gradient_parts(stage));
    plan.buffers = buffers_of(job.plan, costs, job.versions, job.setup.transfer.early_receive(), parts);
    plan.packing = guarded ? Guards::pack(plan.buffers, shape.devices) : pack(plan.buffers, shape.devices);
    refuse_over_memory(plan.packing.arena, job.setup);
    plan.tensors = EdgeBuffers(plan.edges.size(), shape.microbatches);
}

Mailbox::Options plan_messages(const RunPlan& plan, const Costs& costs, bool copies, RankCarrier* carrier) {
    Mailbox::Options options;
    options.mode = plan.job.mode;
    options.mode.sent_copies = copies;
    if (carrier != nullptr) {  // in its queues one end waits for the other: both keep the order that the proof assumes
        options.mode.protocol = TransferMode::Protocol::Rendezvous;
        options.mode.eager_limit = 0;
    }
    options.by_rendezvous = sends_by_rendezvous(options.mode, plan.moved);
    options.monitor = plan.monitor.get();
    if (plan.map.size() > 1)
        options.across = {
            &plan.ranks, plan.map,
            carrier != nullptr ? std::vector<int>() : message_tags(plan.graph, plan.map, *plan.barriers, plan.ranks),
            landing_positions(plan), carrier};
    options.link = link_times(plan, costs, options.mode);
    return options;
}

ProgressMonitor::Limits plan_limits(const RunPlan& plan, const LinkTimes& link) {
    const Ns timeout = plan.job.setup.run.timeout;
    const std::vector<Ns> predicted = predicted_durations(plan.job, plan.graph);
    ProgressMonitor::Limits limits;
    Ns all = 0;
    for (int node = 0; node < plan.graph.size(); ++node) {
        const Ns task = predicted.empty() ? timeout : predicted[node];
        limits.task.push_back(std::max(timeout, times_generous(task)));
        all += link.occupation[node] + link.latency[node] + (predicted.empty() ? 0 : predicted[node]);
    }
    limits.idle = timeout;
    limits.no_work = std::max(predicted.empty() ? times_generous(timeout) : timeout, times_generous(all));
    return limits;
}

}  // namespace pw

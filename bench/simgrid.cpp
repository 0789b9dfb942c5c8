// The engine against SimGrid (Debian's libsimgrid-dev) at equal modelling, on one core: one actor per device goes
// through the plan's list, one per lane sends what is ready in turn, receives are posted early. SimGrid's CM02 without
// cross-traffic and with TCP-gamma out of the way gives a message bytes / bandwidth on its link and the latency, as
// here. Compares when every task ends (the largest distance, in parts of the step), and measures: SimGrid's run alone,
// and of the engine the plan with its proof, the first evaluation and one more. Nanoseconds per task that computes,
// medians of five (SimGrid: of three); and how often the engine goes into SimGrid's time: whole (plan and first), first
// and again.
//
// With a number, it draws PLANS small plans on two or three hosts instead, whose messages share the ways out of hosts
// and into them, max-min: each a link of SimGrid's, without latency. With the word network, pairs also have links of
// their own, and messages also share buses and the ways out of and into groups of hosts.
//
//     bench_simgrid [PLANS [network]]
#include "schedules/orders/schedule.h"
#include "schedules/passes/passes.h"
#include "sim/simulate.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <simgrid/s4u.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace pw {
namespace {

namespace sg = simgrid::s4u;

struct Case {
    std::string schedule;
    int devices, micro_batches;
    Ns latency, occupation;
};

constexpr Bytes kBytesPerNs = 25;  // 25 GB/s

double now() {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

Shape shape_of(const Case& one) {
    const Schedule& schedule = schedule_named(one.schedule);
    Shape shape;
    shape.devices = one.devices;
    shape.stages = one.devices * schedule.chunks;
    shape.microbatches = one.micro_batches;
    return shape;
}

// Forwards and backwards of stages differ, so that devices wait.
Costs costs_of(const Case& one, const Shape& shape) {
    Costs costs;
    ClusterEdit(costs)->link = {.latency = one.latency, .bandwidth = kBytesPerNs * 1e9};
    for (int stage = 0; stage < shape.stages; ++stage) {
        const Ns unit = 1'000'000 + 10'007 * (stage * 7 % 11);
        costs.stage.push_back(
            {.forward = unit, .backward = 2 * unit + 1, .backward_input = unit + 3, .backward_weight = unit - 2});
        costs.bytes.push_back({});
        if (stage > 0)
            costs.edges.push_back({stage - 1, stage, one.occupation * kBytesPerNs, one.occupation * kBytesPerNs});
    }
    return costs;
}

Ns time_of(const Task& task, const StageCost& cost) {
    Ns StageCost::*const part = facts_of(task.op).cost;
    return part == nullptr ? 0 : cost.*part;
}

// The results of the child process that runs SimGrid.
struct SimgridTimes {
    double run_ns = 0;
    double ends[1];  // by task that computes, device after device
};

// A lane sends in the order in which its messages get ready, and the next when the link is free.
struct SendingLane {
    sg::Mailbox* mailbox = nullptr;
    sg::Host* out = nullptr;
    sg::SemaphorePtr ready;
    std::vector<Bytes> messages;
    bool shares = false;  // whether it shares capacities on its way
};

Bytes bytes_of(const Task& send, const Costs& costs) {
    for (const EdgeBytes& edge : costs.edges)
        if (edge.from == edge_of(send).from && edge.to == edge_of(send).to)
            return !carries_gradients(send.op) ? edge.forward : edge.backward;
    return 0;
}

// SimGrid counts in seconds and merges events nearer than 1e-9 of them: here its second is a nanosecond.
void run_simgrid(const Plan& plan, const Costs& costs, SimgridTimes& simgrid) {
    int count = 2;
    std::string name = "bench_simgrid", quiet = "--log=root.thresh:warning";
    char* values[] = {name.data(), quiet.data(), nullptr};
    sg::Engine engine(&count, values);
    for (const char* setting :
         {"network/model:CM02", "network/crosstraffic:0", "network/TCP-gamma:1e30", "network/latency-factor:1",
          "network/bandwidth-factor:1", "network/weight-S:0", "maxmin/precision:1e-9"})
        sg::Engine::set_config(setting);
    sg::NetZone* zone = sg::create_full_zone("cluster");
    std::vector<sg::Host*> hosts;
    for (int device = 0; device < plan.shape.devices; ++device)
        hosts.push_back(zone->create_host(fmt::format("device{}", device), 1.0));
    const auto device_of = [&](int stage) { return plan.shape.devices_of(stage).front(); };
    std::map<std::tuple<int, int, bool>, SendingLane> lanes;  // from, to, gradients
    const auto lane_of = [&](const Task& send) -> SendingLane& {
        return lanes[{device_of(send.stage), device_of(send.peer), carries_gradients(send.op)}];
    };
    std::vector<std::size_t> first_end;
    std::size_t computing = 0;
    for (const std::vector<Task>& order : plan.order) {
        first_end.push_back(computing);
        for (const Task& task : order) {
            computing += is_transfer(task.op) ? 0 : 1;
            if (is_send(task.op))
                lane_of(task).messages.push_back(bytes_of(task, costs));
        }
    }
    const Routes& routes = costs.cluster->routes;
    std::vector<sg::LinkInRoute> capacities;
    for (std::size_t number = 0; number < routes.capacities().size(); ++number)
        capacities.emplace_back(
            zone->create_link(fmt::format("capacity{}", number), routes.capacities()[number] / 1e9)->seal());
    for (auto& [ends, lane] : lanes) {
        const auto& [from, to, gradients] = ends;
        const std::string lane_name = fmt::format("{}-{}-{}", from, to, gradients);
        const Link& own = costs.cluster->link_of(from, to);
        const std::vector<int> takes = routes.takes(from, to);
        lane.shares = !takes.empty() || !costs.cluster->own_links.empty();
        lane.mailbox = sg::Mailbox::by_name(lane_name);
        lane.out = zone->create_host("out" + lane_name, 1.0);
        lane.ready = sg::Semaphore::create(0);
        const sg::Link* link = zone->create_link("link" + lane_name, own.bandwidth / 1e9)
                                   ->set_latency(static_cast<double>(own.latency))
                                   ->seal();
        std::vector<sg::LinkInRoute> route = {sg::LinkInRoute(link)};
        for (const int number : takes)
            route.push_back(capacities[static_cast<std::size_t>(number)]);
        zone->add_route(lane.out->get_netpoint(), hosts[static_cast<std::size_t>(to)]->get_netpoint(), nullptr, nullptr,
                        route, false);
    }
    zone->seal();
    static int token = 0;
    for (auto& [ends, lane] : lanes)
        sg::Actor::create("lane", lane.out, [&lane] {
            for (const Bytes bytes : lane.messages) {
                lane.ready->acquire();
                if (lane.shares) {
                    lane.mailbox->put(&token, static_cast<std::uint64_t>(bytes));  // until it has left
                    continue;
                }
                lane.mailbox->put_init(&token, static_cast<std::uint64_t>(bytes))->detach();
                sg::this_actor::sleep_for(static_cast<double>(bytes / kBytesPerNs));
            }
        });
    for (int device = 0; device < plan.shape.devices; ++device)
        sg::Actor::create("device", hosts[static_cast<std::size_t>(device)], [&, device] {
            for (auto& [ends, lane] : lanes)
                if (std::get<1>(ends) == device)
                    lane.mailbox->set_receiver(sg::Actor::self());
            std::map<std::tuple<bool, int, int>, sg::CommPtr> coming;  // gradients, stage, micro-batch
            std::vector<int*> tokens(plan.order[static_cast<std::size_t>(device)].size());
            std::size_t at = first_end[static_cast<std::size_t>(device)], received = 0;
            for (const Task& task : plan.order[static_cast<std::size_t>(device)]) {
                if (is_send(task.op)) {
                    lane_of(task).ready->release();
                } else if (is_recv(task.op)) {
                    const bool gradients = carries_gradients(task.op);
                    const Task send = other_end(task);
                    coming[{gradients, task.stage, task.microbatch}] =
                        lane_of(send).mailbox->get_async<int>(&tokens[received++]);
                } else {
                    const bool forward = task.op == Op::Forward;
                    if (const auto found = coming.find({!forward, task.stage, task.microbatch});
                        (forward || makes_input_gradient(task.op)) && found != coming.end()) {
                        found->second->wait();
                        coming.erase(found);
                    }
                    if (const Ns time = time_of(task, costs.stage[static_cast<std::size_t>(task.stage)]); time > 0)
                        sg::this_actor::execute(static_cast<double>(time));
                    simgrid.ends[at++] = sg::Engine::get_clock();
                }
            }
        });
    const double since = now();
    engine.run();
    simgrid.run_ns = now() - since;
}

// SimGrid has one engine per process.
SimgridTimes* run_in_child(const Plan& plan, const Costs& costs, std::size_t computing) {
    void* shared = mmap(nullptr, sizeof(SimgridTimes) + computing * sizeof(double), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    auto* simgrid = static_cast<SimgridTimes*>(shared);
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        run_simgrid(plan, costs, *simgrid);
        std::fflush(stdout);
        _exit(0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) < 0 || status != 0) {
        fmt::print("SimGrid failed\n");
        std::exit(1);
    }
    return simgrid;
}

// The ends of the tasks that compute, device after device.
std::vector<double> ends_of(const Trace& trace) {
    std::vector<double> ends;
    for (const TraceEvent& event : trace.events)
        if (!is_transfer(event.task.op))
            ends.push_back(static_cast<double>(event.end));
    return ends;
}

// In parts of the step.
double distance(const SimgridTimes& simgrid, const std::vector<double>& ends) {
    double worst = 0, last = 0;
    for (std::size_t at = 0; at < ends.size(); ++at) {
        worst = std::max(worst, std::abs(simgrid.ends[at] - ends[at]));
        last = std::max(last, ends[at]);
    }
    return worst / last;
}

void measure(const Case& one) {
    const Shape shape = shape_of(one);
    const Costs costs = costs_of(one, shape);
    std::vector<double> plans, firsts, agains, theirs;
    std::size_t computing = 0;
    double worst = 0;
    for (int repeat = 0; repeat < 5; ++repeat) {
        double since = now();
        const auto lap = [&](std::vector<double>& laps) {
            laps.push_back(now() - since);
            since = now();
        };
        const ProvenPlan proven = proven_plan(schedule_named(one.schedule), shape);
        lap(plans);
        Simulator simulator(std::make_shared<const Plan>(proven.plan), proven.proof,
                            std::make_shared<const VersionTable>(versions_of(proven.plan)), {.sent_copies = false});
        (void)simulator.step_time(costs);
        lap(firsts);
        (void)simulator.step_time(costs);
        lap(agains);
        if (repeat >= 3)
            continue;
        const std::vector<double> ends = ends_of(simulator.trace(costs));
        computing = ends.size();
        const SimgridTimes* simgrid = run_in_child(proven.plan, costs, computing);
        theirs.push_back(simgrid->run_ns);
        worst = std::max(worst, distance(*simgrid, ends));
    }
    const auto each = [&](const std::vector<double>& times) { return median(times) / static_cast<double>(computing); };
    const double whole = median(plans) + median(firsts);
    fmt::print("{:<16}{:>4}{:>6}{:>9}{:>9}{:>8}{:>9.0f}{:>7.0f}{:>7.0f}{:>7.2f}{:>8.0f}{:>8.0f}{:>8.0f}{:>9.1e}\n",
               one.schedule, one.devices, one.micro_batches, one.latency, one.occupation, computing, each(theirs),
               each(plans), each(firsts), each(agains), median(theirs) / whole, median(theirs) / median(firsts),
               median(theirs) / median(agains), worst);
    std::fflush(stdout);
}

// Tasks of a second or so: the engine counts in whole nanoseconds, and roundings of one flow can grow in the next.
constexpr Ns kScale = 1000;

using Pick = std::function<int(int least, int most)>;

// Links of pairs from an eighth to twice the common one, up to two buses of as much, and a switch above some hosts.
void add_network(const Pick& pick, int devices, Costs& costs) {
    const auto bandwidth = [&] { return costs.cluster->link.bandwidth * pick(1, 16) / 8; };
    for (int count = pick(0, 3); count > 0; --count)
        if (const int from = pick(0, devices - 1), to = pick(0, devices - 1); from != to)
            ClusterEdit(costs)->own_links[{from, to}] = {0, bandwidth()};
    const auto some = [&](const auto& belongs) {
        std::vector<int> chosen;
        for (int device = 0; device < devices; ++device)
            if (belongs(device))
                chosen.push_back(device);
        return chosen;
    };
    for (int count = pick(0, 2); count > 0; --count)
        ClusterEdit(costs)->shared.push_back(
            {Capacity::Of::Touching, some([&](int) { return pick(0, 1) != 0; }), bandwidth()});
    const int first = pick(0, 2), last = pick(first, 2);
    const std::vector<int> below =
        some([&](int device) { return first <= costs.cluster->host[device] && costs.cluster->host[device] <= last; });
    for (const Capacity::Of of : {Capacity::Of::Leaving, Capacity::Of::Entering})
        ClusterEdit(costs)->shared.push_back({of, below, bandwidth()});
}

// Returns how far apart the two are for a random plan, and adds to `slower` by how much sharing prolongs the step.
double shared_distance(std::mt19937& random, bool network, double& slower) {
    const Pick pick = [&](int least, int most) {
        return least + static_cast<int>(random() % static_cast<unsigned>(most - least + 1));
    };
    const char* const schedules[] = {"gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2", "interleaved", "zb-v", "zb1p"};
    Case one{schedules[pick(0, 7)], pick(2, 6), 0, pick(0, 1) * 5'000, 0};
    one.micro_batches = one.devices * pick(1, 3);  // as interleaved schedules require
    const Shape shape = shape_of(one);
    Costs costs = costs_of(one, shape);
    for (StageCost& stage : costs.stage)
        for (Ns* time : {&stage.forward, &stage.backward, &stage.backward_input, &stage.backward_weight})
            *time = pick(100'000, 2'000'000) * kScale;
    for (EdgeBytes& edge : costs.edges)
        edge.forward = edge.backward = kBytesPerNs * pick(1'000, 1'500'000) * kScale;
    for (int device = 0; device < shape.devices; ++device)
        ClusterEdit(costs)->host.push_back(pick(0, 2));
    const ProvenPlan proven = proven_plan(schedule_named(one.schedule), shape);
    Simulator simulator(std::make_shared<const Plan>(proven.plan), proven.proof,
                        std::make_shared<const VersionTable>(versions_of(proven.plan)), {.sent_copies = false});
    ClusterEdit(costs)->between_hosts = Link{0, 1e18};
    const auto without = static_cast<double>(simulator.step_time(costs));  // anything shared
    ClusterEdit(costs)->between_hosts->bandwidth = costs.cluster->link.bandwidth;
    if (network) {
        add_network(pick, shape.devices, costs);
        ClusterEdit(costs)->link.latency = 0;  // SimGrid's flows of unlike latencies have unlike shares
    }
    slower += static_cast<double>(simulator.step_time(costs)) / without - 1;
    const std::vector<double> ends = ends_of(simulator.trace(costs));
    return distance(*run_in_child(proven.plan, costs, ends.size()), ends);
}

void compare_shared(int plans, bool network) {
    std::mt19937 random(2026);
    std::vector<double> apart;
    double slower = 0;
    for (int plan = 0; plan < plans; ++plan)
        apart.push_back(shared_distance(random, network, slower));
    fmt::print(
        "{} plans on hosts{}: median {:.1e} of the step apart, at most {:.1e}; {} makes a step {:.0f} % longer on "
        "average\n",
        plans, network ? " with a network" : "", median(apart), *std::max_element(apart.begin(), apart.end()),
        network ? "the network" : "sharing", 100 * slower / plans);
}

}  // namespace
}  // namespace pw

int main(int count, char** values) {
    if (count > 1) {
        pw::compare_shared(std::atoi(values[1]), count > 2);
        return 0;
    }
    fmt::print("{:<16}{:>4}{:>6}{:>9}{:>9}{:>8}{:>9}{:>7}{:>7}{:>7}{:>8}{:>8}{:>8}{:>9}\n", "schedule", "p", "m",
               "latency", "occupied", "tasks", "SimGrid", "plan", "first", "again", "/whole", "/first", "/again",
               "apart");
    for (const char* schedule :
         {"gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2", "interleaved-1f1b", "breadth-first", "zb-v", "zb1p"})
        for (const pw::Ns latency : {0, 5'000, 3'000'000})
            for (const pw::Ns occupation : {100, 400'000, 2'500'000})
                pw::measure({schedule, 8, 32, latency, occupation});
    for (const char* schedule : {"1f1b", "gpipe", "zb-h1"})
        pw::measure({schedule, 16, 512, 5'000, 400'000});
    return 0;
}

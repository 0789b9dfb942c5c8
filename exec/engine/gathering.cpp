#include "exec/engine/gathering.h"

#include "exec/engine/ranks_of_run.h"
#include "exec/system/threads.h"
#include "workloads/process.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace pw {

namespace {

void set_back(Ns by, std::vector<TraceEvent>& events, std::vector<MemorySample>& memory) {
    for (TraceEvent& event : events) {
        event.start -= by;
        event.end -= by;
    }
    for (MemorySample& sample : memory)
        sample.time -= by;
}

std::string note_on(const RankReport& report, Ns clock_error) {
    std::map<std::string, std::vector<int>> by_host;
    for (std::size_t rank = 0; rank < report.hosts.size(); ++rank)
        by_host[report.hosts[rank]].push_back(static_cast<int>(rank));
    std::vector<std::string> hosts;
    for (const auto& [host, ranks] : by_host)
        hosts.push_back(fmt::format("{}: {}", host, fmt::join(ranks, ", ")));
    return fmt::format(
        "{} ranks on {} host{} ({}), {}; {}", report.hosts.size(), by_host.size(), by_host.size() == 1 ? "" : "s",
        fmt::join(hosts, "; "), report.version,
        clock_error == 0 ? "they read one clock" : "their clocks agree within " + print_time(clock_error));
}

}  // namespace

Gathering::Gathering(const RunPlan& plan, Devices& work)
    : plan_(plan), work_(work), own_(plan.devices_of_rank(plan.map.own())) {
    for (int node = 0; plan.map.size() > 1 && node < plan.graph.size(); ++node)
        if (is_recv(plan.graph.task(node).op) &&
            plan.map.rank_of(plan.graph.device_of(plan.graph.inputs(node).front())) !=
                plan.map.rank_of(plan.graph.device_of(node)))
            between_ranks_.push_back(node);
}

void Gathering::exchange_addresses() {
    Message own;
    write_text(own, clock_name());
    work_.write_addresses(own);
    const std::vector<Message> messages = all_gather(plan_.ranks, own);
    std::string clock_of_first;
    for (int rank = 0; rank < plan_.map.size(); ++rank) {
        MessageReader reader(messages[rank]);
        if (const std::string clock = reader.read_text(); rank == 0)
            clock_of_first = clock;
        else if (clock != clock_of_first)
            other_clocks_.push_back(rank);
        if (rank != plan_.map.own())
            work_.read_addresses(rank, reader);
    }
    clocks_.take(measure_clocks(plan_.ranks, other_clocks_));
}

bool Gathering::step(StepRecord& step, bool stops) {
    Message own;
    write(own, stops);
    write(own, clocks_.are_old());
    work_.write_step(own);
    const std::vector<Message> steps = all_gather(plan_.ranks, own);
    bool clocks_are_old = false;
    for (int rank = 0; rank < plan_.map.size(); ++rank) {
        MessageReader reader(steps[rank]);
        stops = reader.read<bool>() || stops;
        const bool are_old = reader.read<bool>();
        clocks_are_old = clocks_are_old || (rank == 0 && are_old);
        if (rank != plan_.map.own())
            work_.read_step(rank, reader);
    }
    if (clocks_are_old)
        clocks_.take(measure_clocks(plan_.ranks, other_clocks_));
    Message events;  // empty on rank 0, which has its own
    for (const int device : own_)
        if (plan_.map.own() != 0) {
            write_all(events, step.events[device]);
            write_all(events, step.memory[device]);
        }
    const std::vector<Message> messages = gather(plan_.ranks, events);
    if (plan_.map.own() != 0)
        return stops;
    for (int rank = 1; rank < plan_.map.size(); ++rank) {
        MessageReader reader(messages[rank]);
        for (const int device : plan_.devices_of_rank(rank)) {
            step.events[device] = reader.read_all<TraceEvent>();
            step.memory[device] = reader.read_all<MemorySample>();
            set_back(clocks_.ahead(rank), step.events[device], step.memory[device]);
        }
    }
    join_messages(step);
    return stops;
}

// A message between ranks begins with its SEND, and does not arrive earlier than it begins.
void Gathering::join_messages(StepRecord& step) {
    const PlanGraph& graph = plan_.graph;
    const auto event_of = [&](int node) -> TraceEvent& {
        return step
            .events[static_cast<std::size_t>(graph.device_of(node))][static_cast<std::size_t>(graph.position_of(node))];
    };
    const auto for_each_message = [&](auto&& act) {
        for (const int node : between_ranks_) {
            const int send = graph.inputs(node).front();
            act(plan_.map.rank_of(graph.device_of(send)), plan_.map.rank_of(graph.device_of(node)), event_of(send),
                event_of(node));
        }
    };
    std::vector<Transit> transits;
    for_each_message([&](int from, int to, const TraceEvent& sent, const TraceEvent& arrives) {
        transits.push_back({from, to, arrives.end - sent.start});
    });
    const std::vector<Ns> corrections = clocks_.correct(transits);
    for (int rank = 1; rank < plan_.map.size(); ++rank)
        for (const int device : plan_.devices_of_rank(rank))
            set_back(corrections[static_cast<std::size_t>(rank)], step.events[device], step.memory[device]);
    for_each_message([](int, int, const TraceEvent& sent, TraceEvent& arrives) {
        arrives.start = sent.start;
        arrives.end = std::max(arrives.end, arrives.start);
    });
}

void Gathering::result(RunResult& result) const {
    if (!plan_.on_ranks)
        return;
    Message own;
    for (const int device : own_)
        write(own, result.peak[device]);
    write_all(own, result.disturbance.cpu_share);
    write(own, result.resident_growth.value_or(0));
    write(own, result.gpus.size());
    for (const GpuUse& gpu : result.gpus) {
        write(own, gpu.gpu);
        write_all(own, gpu.devices);
        write(own, gpu.used);
        write(own, gpu.grown);
    }
    write_text(own, host_name());
    for (const DevicePlace& place : result.places) {
        write_all(own, place.cores);
        write(own, place.numa_node);
    }
    const std::vector<Message> messages = gather(plan_.ranks, own);
    if (plan_.map.own() != 0)
        return;
    std::vector<std::string> hosts;
    result.disturbance.cpu_share.clear();
    result.places.clear();
    result.gpus.clear();
    const bool has_growth = result.resident_growth.has_value();
    if (has_growth)
        result.resident_growth = 0;
    for (int rank = 0; rank < plan_.map.size(); ++rank) {
        MessageReader reader(messages[rank]);
        for (const int device : plan_.devices_of_rank(rank))
            result.peak[device] = reader.read<MemoryUse>();
        std::ranges::copy(reader.read_all<double>(), std::back_inserter(result.disturbance.cpu_share));
        if (const auto growth = reader.read<Bytes>(); has_growth)
            *result.resident_growth += growth;
        for (auto gpus = reader.read<std::size_t>(); gpus > 0; --gpus) {
            GpuUse use{rank, reader.read<int>(), reader.read_all<int>()};
            use.used = reader.read<Bytes>();
            use.grown = reader.read<Bytes>();
            result.gpus.push_back(std::move(use));
        }
        hosts.push_back(reader.read_text());
        while (!reader.at_end()) {
            std::vector<int> cores = reader.read_all<int>();
            result.places.push_back({rank, hosts.back(), std::move(cores), reader.read<int>()});
        }
    }
    result.clock_error = clocks_.error();
    result.ranks = RankReport{std::move(hosts), plan_.ranks.version()};
    result.notes.push_back(note_on(*result.ranks, *result.clock_error));
}

}  // namespace pw

#include "exec/engine/ranks_of_run.h"

#include "exec/backends.h"
#include "exec/ranks/local_ranks.h"
#include "workloads/error.h"
#include "workloads/process.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace pw {

namespace {

// The first line in which two effective configs differ. Paths are ignored, since they may differ between hosts.
std::string first_difference(const std::string& one, const std::string& other) {
    const auto line_of = [](std::string_view& text) {
        const std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(text.size(), line.size() + 1));
        return line;
    };
    for (std::string_view a = one, b = other; !a.empty() || !b.empty();) {
        const std::string_view from_a = line_of(a), from_b = line_of(b);
        if (from_a != from_b && from_a.find('/') == std::string_view::npos)
            return fmt::format("'{}' and '{}'", from_a, from_b);
    }
    return {};
}

}  // namespace

void check_number(const Setup& setup, int devices, const Ranks& ranks) {
    if (ranks.size() > devices)
        setup.fail_at("cluster.devices", fmt::format("{} ranks were started for {} devices", ranks.size(), devices),
                      fmt::format("start at most {}: mpirun -n {}", devices, devices));
}

void check_ranks(const Job& job, Ranks& ranks) {
    check_number(job.setup, job.plan.shape.devices, ranks);
    Message own;
    const std::string own_hash = hash_of(job.plan);
    write_text(own, own_hash);
    write_text(own, job.setup.yaml);
    const std::vector<Message> messages = all_gather(ranks, own);
    for (int rank = 0; rank < ranks.size(); ++rank) {
        MessageReader reader(messages[static_cast<std::size_t>(rank)]);
        const std::string hash = reader.read_text();
        const std::string difference = first_difference(job.setup.yaml, reader.read_text());
        if (hash != own_hash || !difference.empty())
            fail_with(ExitCode::BadInput,
                      "rank {} has another plan or config than rank {}{}{}\n  help: give every rank the same files and "
                      "arguments",
                      rank, ranks.rank(), difference.empty() ? "" : ": ", difference);
    }
}

std::shared_ptr<Ranks> ranks_of_process(bool launched) {
    if (!launched)
        return std::make_shared<LocalRanks>();
    return {std::shared_ptr<void>(), &join_ranks()};  // they exist until the process ends
}

CorePlan cores_of_rank(const Setup& setup, int devices, Ranks& ranks) {
    const int threads = setup.run.threads_per_device;
    if (ranks.size() == 1)
        return plan_cores(devices, threads, numa_nodes(setup, devices));
    const std::vector<UsableCore> usable = usable_cores();
    const RankMap map(devices, ranks);
    const auto devices_on = [&](int rank) { return static_cast<std::size_t>(map.devices_of(rank)); };
    Message message;
    write_text(message, host_name());
    for (const UsableCore& core : usable)
        write(message, core.number);
    const std::vector<Message> messages = all_gather(ranks, message);
    std::size_t before = 0, together = 0;  // devices of ranks that may use the same cores
    for (int rank = 0; rank < map.size(); ++rank)
        if (messages[static_cast<std::size_t>(rank)] == message) {
            before += rank < map.own() ? devices_on(rank) : 0;
            together += devices_on(rank);
        }
    CorePlan cores = plan_cores(usable, static_cast<int>(together), threads, {});
    cores.cores = {cores.cores.begin() + static_cast<std::ptrdiff_t>(before),
                   cores.cores.begin() + static_cast<std::ptrdiff_t>(before + devices_on(map.own()))};
    return cores;
}

CorePlan cores_of_first_host(const Setup& setup, int devices, Ranks& ranks) {
    const CorePlan own = cores_of_rank(setup, devices, ranks);
    Message message;
    write_text(message, host_name());
    write(message, own.shared);
    for (const std::vector<int>& cores : own.cores)
        write_all(message, cores);
    CorePlan all;
    for (const Message& of_rank : gather(ranks, message)) {
        MessageReader reader(of_rank);
        if (reader.read_text() != host_name())
            continue;
        all.shared |= reader.read<bool>();
        while (!reader.at_end())
            all.cores.push_back(reader.read_all<int>());
    }
    return all;
}

std::vector<DevicePlace> places_of(const RunPlan& plan, const CorePlan& cores) {
    const std::vector<UsableCore> usable = usable_cores();
    std::vector<DevicePlace> places;
    for (const std::vector<int>& own : cores.cores) {
        const auto first = std::ranges::find_if(
            usable, [&](const UsableCore& core) { return !own.empty() && core.number == own.front(); });
        places.push_back({plan.map.own(), host_name(), own, first == usable.end() ? -1 : first->node});
    }
    return places;
}

std::vector<int> message_tags(const PlanGraph& graph, const RankMap& map, const Barriers& barriers,
                              const Ranks& ranks) {
    std::vector<int> tags(static_cast<std::size_t>(graph.size()), -1);
    std::map<std::pair<int, int>, int> next;
    for (int node = 0; node < graph.size(); ++node) {
        if (!is_recv(graph.task(node).op))
            continue;
        const int send = graph.inputs(node).front();
        const int from = map.rank_of(graph.device_of(send)), to = map.rank_of(graph.device_of(node));
        if (from == to)
            continue;
        const int tag = next.try_emplace({from, to}, barriers.first_free_tag()).first->second++;
        if (tag > ranks.largest_tag())
            fail_with(ExitCode::Infeasible,
                      "ranks {} and {} exchange more messages in a step than {} can tell apart ({})\n  help: run fewer "
                      "micro-batches",
                      from, to, ranks.version(), ranks.largest_tag());
        tags[send] = tags[node] = tag;
    }
    return tags;
}

std::vector<int> landing_positions(const RunPlan& plan) {
    std::map<std::tuple<bool, int, int>, int> first;  // by (forward, edge, micro-batch)
    for (const Buffer& buffer : plan.buffers)
        if (buffer.use == BufferUse::LandingForward || buffer.use == BufferUse::LandingBackward)
            first[{buffer.use == BufferUse::LandingForward, buffer.edge, buffer.microbatch}] = buffer.first;
    std::vector<int> positions(static_cast<std::size_t>(plan.graph.size()), 0);
    for (int node = 0; node < plan.graph.size(); ++node)
        if (const Task& task = plan.graph.task(node); is_recv(task.op))
            if (const auto found = first.find({!carries_gradients(task.op), plan.edge_of(task), task.microbatch});
                found != first.end())
                positions[node] = found->second;
    return positions;
}

}  // namespace pw

#include "job/trace_config.h"

#include "job/build.h"
#include "job/config/blocks.h"
#include "job/plan.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace pw {

namespace {

// Returns the name of the host that has all of these devices, or of the first and the last of several hosts.
std::string host_of(const std::vector<DeviceConfig>& devices, int first, int end) {
    const std::string& one = devices[static_cast<std::size_t>(first)].host;
    const std::string& last = devices[static_cast<std::size_t>(end - 1)].host;
    return one == last ? one : one + " to " + last;
}

// Returns the hosts by device of the plan. Empty if the config names none.
std::vector<std::string> hosts_of(const Setup& setup, int devices) {
    const std::vector<DeviceConfig>& ranks = setup.parallel.ranks->devices;
    const std::vector<DeviceConfig>& all = ranks.empty() ? setup.cluster.devices : ranks;
    std::vector<std::string> hosts;
    for (int device = 0; device < devices; ++device) {
        const int first = ranks.empty() ? device : setup.parallel.first_rank_of(device);
        const int end = ranks.empty() ? device + 1 : setup.parallel.first_rank_of(device + 1);
        if (first >= end || end > std::ssize(all))
            return {};
        hosts.push_back(host_of(all, first, end));
    }
    const bool named = std::any_of(hosts.begin(), hosts.end(), [](const std::string& host) { return !host.empty(); });
    return named ? hosts : std::vector<std::string>{};
}

}  // namespace

void add_config(Trace& trace, const Job& job) {
    const Setup& setup = job.setup;
    trace.config = setup.yaml;
    if (job.costs.cluster->dispatch_by_host) {
        Setup known = setup;
        known.cluster.dispatch = job.costs.dispatch;
        known.cluster.rank_table.clear();
        trace.config = print_setup(known);
    }
    trace.hosts = hosts_of(setup, trace.devices);
    trace.micro_batches = setup.pipeline.micro_batches;
    trace.micro_batch_size = setup.pipeline.micro_batch_size;
    trace.replicas = setup.parallel.degrees.data;
    trace.mini_batch = setup.pipeline.mini_batch;
}

TraceRules trace_rules(const Trace& trace) {
    const Yaml root = Yaml::parse(std::make_shared<Source>("the config in the trace", trace.config));
    Config config;
    std::vector<StageClaim> claims;
    KeyReading reading{"", claims};
    read_block(transfer_block(), root["transfer"], config, reading);
    config.workload.model = root["workload"]["model"].text();
    config.run.backend = root["run"]["backend"].choice(config.run.backend);
    config.run.transport = root["run"]["transport"].choice(config.run.transport);
    TraceRules rules{executed_mode(config), root["training"]["clip_norm"].number(0, 0, 1e30) > 0};
    if (const Yaml lengths = root["pipeline"]["micro_batch_lengths"]; lengths.present())
        rules.costs.lengths = read_lengths(lengths, reading);
    const Yaml cluster = root["cluster"];
    config.cluster.dispatcher = cluster["dispatcher"].choice(config.cluster.dispatcher);
    if (config.cluster.dispatcher == ClusterConfig::Dispatcher::PerHost) {
        read_devices(cluster, config.cluster, reading);
        ClusterFacts facts;
        if (std::ssize(config.cluster.devices) >= trace.devices)
            place_on_hosts(facts, config.cluster);
        rules.costs.cluster = std::make_shared<const Cluster>(std::move(facts));
        rules.costs.dispatch = read_time(cluster["dispatch"], 0);
    }
    root.source().throw_if_mistaken();
    const bool copies = config.run.transport == RunConfig::Transport::Link ||
                        config.run.transport == RunConfig::Transport::Mpi ||
                        config.run.backend == RunConfig::Backend::Cuda || is_uniform(config);
    rules.mode.sent_copies = copies || !rules.mode.early_receive();
    return rules;
}

}  // namespace pw

#include "job/trace_config.h"

#include "job/build.h"
#include "job/config/blocks.h"
#include "job/plan.h"

#include <memory>
#include <utility>
#include <vector>

namespace pw {

void add_config(Trace& trace, const Job& job) {
    const Setup& setup = job.setup;
    trace.config = setup.yaml;
    if (job.costs.cluster->dispatch_by_host) {
        Setup known = setup;
        known.cluster.dispatch = job.costs.dispatch;
        known.cluster.rank_table.clear();
        trace.config = print_setup(known);
    }
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

#include "job/job.h"

#include "job/build.h"
#include "job/config/blocks.h"
#include "job/plan.h"
#include "job/plan_checks.h"
#include "job/rules.h"
#include "job/settings.h"
#include "schedules/memory/buffers.h"
#include "schedules/passes/passes.h"
#include "schedules/plan/traffic.h"
#include "workloads/costs/slices.h"
#include "workloads/size_text.h"

#include <algorithm>
#include <utility>

namespace pw {

namespace {

// Adds the plan and its costs. `known` is the plan if it was made before.
void add_plan(Job& job, const StageLinks& links, const CostsOfShape& costs, Notices& notices,
              const ProvenPlan* known = nullptr) {
    ProvenPlan proven = known ? *known : proven_plan(job.config, links, job.config.training.steps, costs, &notices);
    job = with_plan(std::move(job), std::move(proven));
    job.costs = costs(job.plan.shape);
}

// If the plan would deadlock under rendezvous, but messages up to a limit leave at once, the sizes of the messages
// decide. Throws Error (Infeasible) with the cycle if the plan does not complete.
void check_messages(const Job& job, Notices& notices) {
    if (job.deadlock.empty())
        return;
    const PlanGraph& graph = job.proof->graph;
    refuse_deadlock(job.plan, graph, job.mode,
                    sends_by_rendezvous(job.mode, Traffic(job.plan.shape, graph.index(), job.costs).bytes(graph)));
    notices.push_back(
        fmt::format("plan {} needs messages that leave before their receives are posted ({}): where messages wait, as "
                    "large ones do over "
                    "MPI and NCCL, it hangs; `pipewright validate` of the file lists the lanes in which it completes",
                    job.plan.schedule, print(job.mode)));
}

// Adds a note about the largest stage whose gradients would be more than kMostBuckets buckets.
void note_larger_buckets(const Costs& costs, Notices& notices) {
    const StageSum* largest = nullptr;
    for (const StageSum& sum : costs.stage_sums)
        if (sum.buckets == kMostBuckets && sum.bytes > kMostBuckets * costs.sum_bucket && !sum.rounds.empty() &&
            (largest == nullptr || sum.bytes > largest->bytes))
            largest = &sum;
    if (largest != nullptr)
        notices.push_back(fmt::format(
            "transfer.sum_bucket: a stage has at most {} buckets; those of stage {}, which has {} of "
            "gradients, are of {} instead of {}",
            kMostBuckets, largest - costs.stage_sums.data(), print_bytes(largest->bytes),
            print_bytes((largest->bytes + kMostBuckets - 1) / kMostBuckets), print_bytes(costs.sum_bucket)));
}

// Returns how many stages the device of the last stage runs for the first micro-batch.
int stages_per_device(const Shape& shape) {
    const int device = shape.server_of(shape.stages - 1, 0);
    int count = 0;
    for (int stage = 0; stage < shape.stages; ++stage)
        count += shape.server_of(stage, 0) == device ? 1 : 0;
    return count;
}

Job uniform_job(Config config, Notices& notices) {
    Job job;
    job.config = std::move(config);
    job.mode = executed_mode(job.config);
    check_rules(job.config, nullptr);
    check_slices(job.config, nullptr);
    check_profile_exists(job.config);
    const auto costs_of_shape = [&](const Shape& shape) {
        Costs costs = uniform_costs(job.config, stages_per_device(shape));
        costs.cluster = cluster_of(job.config, {});
        add_settings(costs, job.config);
        cut_in_slices(costs, shape.slices);
        return costs;
    };
    add_plan(job, {}, costs_of_shape, notices);
    check_messages(job, notices);
    return job;
}

Job layered_job(Config config, Model model, Profile profile, CostSource source, Notices& notices,
                const ProvenPlan* known = nullptr) {
    Job job;
    job.config = std::move(config);
    job.source = source;
    job.profile = std::move(profile);
    job.mode = executed_mode(job.config);
    check_normalise(job.config, model);
    check_rules(job.config, &model);
    check_slices(job.config, &model);
    job.split = make_split(job.config, model, job.profile);
    const auto costs_of_shape = [&](const Shape& shape) {
        return complete_costs(costs_of(model, job.split, job.profile, sizes_of(job.config.pipeline)), job.config,
                              cluster_of(job.config, job.profile), model.layers, job.split, shape);
    };
    add_plan(job, links_of(model.layers, job.split), costs_of_shape, notices, known);
    note_larger_buckets(job.costs, notices);
    check_messages(job, notices);
    job.model = std::make_shared<const Model>(std::move(model));
    return job;
}

// Returns the precision that a profile was measured in, or nothing if it is not known.
std::optional<Precision> precision_of(const Profile& profile) {
    const bool has_several = profile.backend == name_of(RunConfig::Backend::Cuda);
    return profile.precision || has_several ? profile.precision : Precision::Fp32;
}

}  // namespace

Job make_job(Config config, Notices& notices) { return make_job(std::move(config), nullptr, notices); }

Job make_job(Config config, const ProvenPlan* known, Notices& notices) {
    return at_its_place(config, [&] {
        if (!cost_source_of(config).has_layers)
            return uniform_job(config, notices);
        Model model = build_model(config);
        Profile profile = profile_of(config, model);
        return layered_job(config, std::move(model), std::move(profile), cost_source_of(config).source, notices, known);
    });
}

Job make_job(Config config, Profile measured, Notices& notices) {
    return at_its_place(config, [&] {
        return layered_job(config, build_model(config), in_cluster(std::move(measured), config), CostSource::Measured,
                           notices);
    });
}

Job make_job(Config config, Model model, Notices& notices) {
    return at_its_place(config, [&] {
        mark_recomputed(config, model);
        Profile profile = profile_of(config, model);
        return layered_job(config, std::move(model), std::move(profile), cost_source_of(config).source, notices);
    });
}

Job make_job(Config config, const Schedule& schedule, Notices& notices) {
    config.pipeline.schedule = schedule.name;
    config.pipeline.own_schedule = &schedule;
    return make_job(std::move(config), notices);
}

Job with_plan(Job job, ProvenPlan proven) {
    job.plan = std::move(proven.plan);
    job.proof = std::move(proven.proof);
    job.deadlock = std::move(proven.deadlock);
    job.versions = versions_of(job.plan);
    return job;
}

int anneal_steps_of(const Job& job) {
    if (job.plan.weights != WeightPolicy::Latest || !divides_rates(job.plan.prediction))
        return 0;
    const bool corrects = schedule_of(job.config).prediction == Prediction::PipeMare;
    return job.config.training.anneal_steps.value_or(corrects ? job.config.training.steps / 4 : 0);
}

int steps_of(const Job& job) { return job.plan.asynchronous ? 1 : job.config.training.steps; }

bool has_precision(const Config& config, const Profile& profile) {
    const bool may_differ = config.run.backend == RunConfig::Backend::Cuda || config.cluster.kind;
    if (!cost_source_of(config).has_kernels || !may_differ)
        return true;  // other backends have one precision; times that the user wrote are for any
    return config.training.precision == precision_of(profile);
}

void check_precision(const Config& config, const Profile& profile) {
    if (has_precision(config, profile))
        return;
    const std::optional<Precision> known = precision_of(profile);
    const std::string_view asked = name_of(config.training.precision);
    config.fail_at(
        "training.precision",
        !is_measured(profile)
            ? fmt::format("analytic costs are those of fp32, not of {}", asked)
            : fmt::format("the profile {}, but the config runs in {}",
                          known ? fmt::format("was measured in {}", name_of(*known)) : "does not say its precision",
                          asked),
        "measure one in this precision (`pipewright profile CONFIG -o PROFILE.yaml`) and name it in cluster.profile, "
        "or name the kind of the devices in cluster.device");
}

void refuse_over_memory(const std::vector<Bytes>& reserved, const Config& config) {
    const std::vector<DeviceConfig>& devices = config.cluster.devices;
    for (std::size_t device = 0; device < std::min(devices.size(), reserved.size()); ++device)
        if (const Bytes needed = reserved[device], has = devices[device].memory; needed > has)
            fail_with(ExitCode::Infeasible,
                      "device {} does not have the memory: {} needed ({} bytes), {} available ({} bytes)\n  help: "
                      "use smaller or fewer micro-batches, another split or schedule, or raise cluster.memory",
                      device, print_bytes_as(needed, has), needed, print_bytes_as(has, has), has);
}

void refuse_over_memory(const Job& job) {
    const std::vector<Bytes> reserved =
        at_its_place(job.config, [&] { return reserved_of(job.plan, job.costs, job.versions, job.config.transfer); });
    refuse_over_memory(reserved, job.config);
}

void add_config(Trace& trace, const Job& job) {
    const Config& config = job.config;
    trace.config = config.yaml;
    if (job.costs.cluster->dispatch_by_host) {
        Config known = config;
        known.cluster.dispatch = job.costs.dispatch;
        known.cluster.rank_table.clear();
        trace.config = print_config(known);
    }
    trace.micro_batches = config.pipeline.micro_batches;
    trace.micro_batch_size = config.pipeline.micro_batch_size;
    trace.replicas = config.parallel.degrees.data;
    trace.mini_batch = config.pipeline.mini_batch;
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

#include "job/job.h"

#include "job/build.h"
#include "job/offload.h"
#include "job/plan.h"
#include "job/plan_checks.h"
#include "job/rules.h"
#include "job/settings.h"
#include "job/slices.h"
#include "schedules/memory/buffers.h"
#include "schedules/passes/passes.h"
#include "schedules/plan/traffic.h"
#include "workloads/size_text.h"

#include <algorithm>
#include <utility>

namespace pw {

namespace {

// Adds the plan and its costs. `known` is the plan if it was made before.
void add_plan(Job& job, const StageLinks& links, const CostsOfShape& costs, Notices& notices,
              const ProvenPlan* known = nullptr) {
    ProvenPlan proven = known ? *known : proven_plan(job.setup, links, job.setup.training.steps, costs, &notices);
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

bool recomputes_by_place(const Setup& setup) {
    return setup.workload.transformer && setup.parallel.degrees.recomputed.depend_on_places();
}

// Returns how many stages the device of the last stage runs for the first micro-batch.
int stages_per_device(const Shape& shape) {
    const int device = shape.server_of(shape.stages - 1, 0);
    int count = 0;
    for (int stage = 0; stage < shape.stages; ++stage)
        count += shape.server_of(stage, 0) == device ? 1 : 0;
    return count;
}

Job uniform_job(Setup setup, Notices& notices) {
    Job job;
    job.setup = std::move(setup);
    job.mode = executed_mode(job.setup);
    check_rules(job.setup, nullptr);
    check_slices(job.setup, nullptr);
    check_profile_exists(job.setup);
    check_offload(job.setup, {});
    const auto costs_of_shape = [&](const Shape& shape) {
        Costs costs = uniform_costs(job.setup, stages_per_device(shape), shape.edges);
        sum_on_the_way(costs, shape);
        costs.cluster = cluster_of(job.setup, {});
        add_settings(costs, job.setup);
        cut_in_slices(costs, slice_ends_of(job.setup, shape.slices, 0));
        offload_stages(costs, job.setup);
        offload_in_part(costs, job.setup);
        return costs;
    };
    StageLinks links;
    links.forwards_only = forwards_only_of_uniform(job.setup);
    links.has_frozen = !job.setup.workload.uniform.frozen.empty();
    add_plan(job, links, costs_of_shape, notices);
    check_messages(job, notices);
    return job;
}

Job layered_job(Setup setup, Model model, Profile profile, CostSource source, Notices& notices,
                const ProvenPlan* known = nullptr) {
    Job job;
    job.setup = std::move(setup);
    job.source = source;
    job.profile = std::move(profile);
    job.mode = executed_mode(job.setup);
    check_normalise(job.setup, model);
    check_rules(job.setup, &model);
    check_slices(job.setup, &model);
    job.split = make_split(job.setup, model, job.profile);
    if (recomputes_by_place(job.setup)) {
        job.setup.parallel.stage_of = job.split.stage_of;
        model = build_model(job.setup);
        job.profile = profile_of(job.setup, model);
    }
    check_offload(job.setup, job.profile);
    mark_offloaded(job.setup, job.split, model);
    const auto costs_of_shape = [&](const Shape& shape) {
        return complete_costs(costs_of(model, job.split, job.profile, sizes_of(job.setup.pipeline)), job.setup,
                              cluster_of(job.setup, job.profile), model.layers, job.split, shape);
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

Job make_job(Setup setup, Notices& notices) { return make_job(std::move(setup), nullptr, notices); }

Job make_job(Setup setup, const ProvenPlan* known, Notices& notices) {
    return at_its_place(setup, [&] {
        if (!cost_source_of(setup).has_layers)
            return uniform_job(setup, notices);
        Model model = build_model(setup);
        Profile profile = profile_of(setup, model);
        return layered_job(setup, std::move(model), std::move(profile), cost_source_of(setup).source, notices, known);
    });
}

Job make_job(Setup setup, Profile measured, Notices& notices) {
    return at_its_place(setup, [&] {
        return layered_job(setup, build_model(setup), in_cluster(std::move(measured), setup), CostSource::Measured,
                           notices);
    });
}

Job make_job(Setup setup, Model model, Notices& notices) {
    return at_its_place(setup, [&] {
        mark_layers(setup, model);
        Profile profile = profile_of(setup, model);
        return layered_job(setup, std::move(model), std::move(profile), cost_source_of(setup).source, notices);
    });
}

Job make_job(Setup setup, const Schedule& schedule, Notices& notices) {
    setup.pipeline.schedule = schedule.name;
    setup.pipeline.own_schedule = {std::shared_ptr<void>(), &schedule};
    return make_job(std::move(setup), notices);
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
    const bool corrects = schedule_of(job.setup).prediction == Prediction::PipeMare;
    return job.setup.training.anneal_steps.value_or(corrects ? job.setup.training.steps / 4 : 0);
}

int steps_of(const Job& job) { return job.plan.asynchronous ? 1 : job.setup.training.steps; }

bool has_precision(const Setup& setup, const Profile& profile) {
    const bool may_differ = setup.run.backend == RunConfig::Backend::Cuda || setup.cluster.kind;
    if (!cost_source_of(setup).has_kernels || !may_differ)
        return true;  // other backends have one precision; times that the user wrote are for any
    return setup.training.precision == precision_of(profile);
}

void check_precision(const Setup& setup, const Profile& profile) {
    if (has_precision(setup, profile))
        return;
    const std::optional<Precision> known = precision_of(profile);
    const std::string_view asked = name_of(setup.training.precision);
    setup.fail_at(
        "training.precision",
        !is_measured(profile)
            ? fmt::format("analytic costs are those of fp32, not of {}", asked)
            : fmt::format("the profile {}, but the config runs in {}",
                          known ? fmt::format("was measured in {}", name_of(*known)) : "does not say its precision",
                          asked),
        "measure one in this precision (`pipewright profile CONFIG -o PROFILE.yaml`) and name it in cluster.profile, "
        "or name the kind of the devices in cluster.device");
}

void refuse_over_memory(const std::vector<Bytes>& reserved, const Setup& setup) {
    const std::vector<DeviceConfig>& devices = setup.cluster.devices;
    for (std::size_t device = 0; device < std::min(devices.size(), reserved.size()); ++device)
        if (const Bytes needed = reserved[device], has = devices[device].memory; needed > has)
            fail_with(ExitCode::Infeasible,
                      "device {} does not have the memory: {} needed ({} bytes), {} available ({} bytes)\n  help: "
                      "use smaller or fewer micro-batches, another split or schedule, or raise cluster.memory",
                      device, print_bytes_as(needed, has), needed, print_bytes_as(has, has), has);
}

void refuse_over_memory(const Job& job) {
    const std::vector<Bytes> reserved =
        at_its_place(job.setup, [&] { return reserved_of(job.plan, job.costs, job.versions, job.setup.transfer); });
    refuse_over_memory(reserved, job.setup);
}

}  // namespace pw

// Refuses plans that runs cannot execute yet, before anything is set up.
#include "exec/runnable.h"

#include "exec/training/parameter_files.h"
#include "job/settings.h"
#include "schedules/plan/plan_graph.h"
#include "schedules/plan/sum_groups.h"
#include "workloads/error.h"
#include "workloads/machine_memory.h"
#include "workloads/models/layer_graph.h"

#include <algorithm>
#include <limits>

namespace pw {

// Devices sum gradients in each other's memory, at its full speed.
void check_link(const Setup& setup, const Shape& shape) {
    if (setup.run.transport != RunConfig::Transport::Link)
        return;
    for (const SumGroup& group : sum_groups(shape))
        if (group.devices.size() > 1)
            setup.fail_at("run.transport",
                          fmt::format("the gradients of stage {} are summed by {} devices, which is not emulated",
                                      group.stages.front(), group.devices.size()),
                          "write transport: threads, or take a plan without replicas and shared parameters");
}

void check_kernels(const Setup& setup) {
    using Backend = RunConfig::Backend;
    const Backend backend = setup.run.backend;
    if (setup.training.precision != Precision::Fp32 && (backend == Backend::Cpu || backend == Backend::Reference))
        setup.fail_at("training.precision",
                      fmt::format("devices of {} compute in fp32, not in {}", name_of(backend),
                                  name_of(setup.training.precision)),
                      "simulate it, set run.backend: cuda or emulated, or write fp32");
    if (!bytes_of(setup.training.precision).has_kernels)
        setup.fail_at(
            "training.precision",
            fmt::format("devices of {} have no kernels in {}", name_of(backend), name_of(setup.training.precision)),
            "simulate it, or write bf16");
    if (const TrainingConfig& training = setup.training; !is_emulated(setup)) {
        if (!facts_of(training.optimizer).has_kernels)
            setup.fail_at(
                "training.optimizer",
                fmt::format("devices of {} have no kernels of {}", name_of(backend), name_of(training.optimizer)),
                "simulate it, set run.backend: emulated, or write optimizer: adamw");
        if (training.types.any())
            setup.fail_at(
                key_of_types(setup),
                fmt::format("devices of {} keep gradients and states in the layout of the weights", name_of(backend)),
                "simulate it, set run.backend: emulated, or remove the key");
    }
}

namespace {

// Holders exchange the new weights of their parts in the barrier of S, the sum of gradients. A task between S and
// their U, the update, could wait for a device that waits in this barrier.
void check_updates_follow_sums(const Job& job) {
    const PlanGraph graph(job.plan);
    const auto is_shared_out = [&](int stage) { return job.plan.shape.devices_of(stage).size() > 1; };
    for (const Barrier& barrier : barriers_of(graph, job.plan.shape)) {
        if (graph.task(barrier.first.front()).op != Op::SumGradients ||
            std::ranges::none_of(barrier.stages, is_shared_out))
            continue;
        for (const int node : barrier.nodes) {
            int after = node + 1;
            while (after < graph.size() && copies_states(graph.task(after).op))
                ++after;
            const bool ends = after == graph.size() || graph.device_of(after) != graph.device_of(node);
            const Task& next = graph.task(ends ? node : after);
            if (!ends && is_closing(next.op) && std::ranges::find(barrier.stages, next.stage) != barrier.stages.end())
                continue;
            job.setup.fail_at(key_of_zero(job.setup),
                              fmt::format("on device {} the update of stage {} does not follow its sum {} at once",
                                          graph.device_of(node), graph.task(node).stage, print(graph.task(node))),
                              "simulate it, set run.backend: emulated, or remove the key");
        }
    }
}

void check_shards(const Job& job) {
    if (job.setup.training.zero > 1)
        job.setup.fail_at("training.zero", "replicas keep all weights and gradients of their stages here",
                          "simulate it, set run.backend: emulated, or write zero: 1");
    if (job.setup.run.backend == RunConfig::Backend::Cuda)
        job.setup.fail_at(key_of_zero(job.setup), "devices of cuda store the optimizer's states of the whole stage",
                          "simulate it, choose another run.backend, or remove the key");
    if (!job.plan.shape.global_norm)
        check_updates_follow_sums(job);
}

void check_corrections(const Job& job) {
    if (job.setup.run.backend == RunConfig::Backend::Cuda && job.plan.prediction == Prediction::PipeMare)
        job.setup.fail_at(
            "pipeline.prediction",
            fmt::format("devices of cuda do not correct weights as {} does", name_of(job.plan.prediction)),
            "simulate it, choose another run.backend, or write none");
}

bool has_backwards(const Plan& plan) {
    return std::ranges::any_of(plan.order, [](const std::vector<Task>& order) {
        return std::ranges::any_of(order, [](const Task& task) { return is_in(task.op, kMakesInputGradients); });
    });
}

// Holders average the statistics of batch norm where they sum gradients, and a stage that runs forwards only has no
// sum. Attention of a slice reads inputs of earlier slices, which are kept for its backward.
void check_frozen(const Job& job) {
    const Shape& shape = job.plan.shape;
    for (std::size_t number = 0; number < job.split.stage_of.size(); ++number) {
        const Layer& layer = job.model->layers[number];
        const int stage = job.split.stage_of[number];
        if (layer.kind == LayerKind::BatchNorm && shape.runs_forwards_only(stage) &&
            shape.devices_of(stage).size() > 1 && has_backwards(job.plan))
            job.setup.fail_at("workload.frozen",
                              fmt::format("layer '{}' of stage {}, which runs forwards only on {} devices, averages "
                                          "statistics, and these devices do not meet",
                                          layer.name, stage, shape.devices_of(stage).size()),
                              "simulate it, give the stage one device, or set run.backend: emulated");
        if (shape.slices > 1 && is_attention(layer.kind) && !has_backward(layer))
            job.setup.fail_at("workload.frozen",
                              fmt::format("layer '{}' has no backward, and forwards without backwards run whole "
                                          "micro-batches",
                                          layer.name),
                              "simulate it, set run.backend: emulated, or write pipeline.slices: 1");
    }
}

// If messages go through MPI, NCCL or another device's memory, a message may wait for its receive, whatever the
// config says. Only emulated devices follow the protocol of the config.
void check_rendezvous(const Job& job) {
    if (job.deadlock.empty() || is_emulated(job.setup))
        return;
    fail_with(ExitCode::Infeasible,
              "{}\n  help: a run may keep a message until its receive is posted, whatever transfer.protocol says: take "
              "lanes in which the plan is free under rendezvous (`pipewright validate {}` lists them), or set "
              "run.backend: emulated",
              job.deadlock, job.setup.pipeline.schedule);
}

}  // namespace

void check_whole_trace(const Job& job) {
    double tasks = 0;
    for (const std::vector<Task>& order : job.plan.order)
        tasks += static_cast<double>(order.size());
    const double events = tasks * steps_of(job);
    const Bytes limit = memory_for_plans();
    if (events <= std::numeric_limits<int>::max() && events * 2 * sizeof(TraceEvent) <= static_cast<double>(limit))
        return;
    job.setup.fail_at("training.steps",
                      fmt::format("{} steps of {:.0f} tasks make a trace of {:.4g} GiB, and half of what this process "
                                  "may have is {}",
                                  steps_of(job), tasks, events * 2 * sizeof(TraceEvent) / 0x1p30, print_bytes(limit)),
                      "run fewer training.steps (--steps), or leave --trace out");
}

void check_runnable(const Job& job) {
    check_rendezvous(job);
    check_corrections(job);
    if (!job.plan.shape.joined.empty())
        job.setup.fail_at(
            "pipeline.schedule",
            fmt::format("schedule {} divides layers among devices, and runs compute whole layers", job.plan.schedule),
            "simulate it, or choose another schedule, such as 1f1b");
    if (job.setup.mover_share > 0 && job.setup.run.backend != RunConfig::Backend::Cuda)
        job.setup.fail_at("transfer.multiprocessors",
                          fmt::format("messages of {} devices use no multiprocessors", name_of(job.setup.run.backend)),
                          "simulate it, set run.backend: cuda, or remove the key");
    if (is_emulated(job.setup))
        return;
    if (!job.setup.pipeline.micro_batch_lengths.empty())
        job.setup.fail_at(
            "pipeline.micro_batch_lengths",
            fmt::format("devices of {} run micro-batches of equal length", name_of(job.setup.run.backend)),
            "simulate it, set run.backend: emulated, or remove the key");
    if (job.plan.shape.slices > 1 && job.setup.run.backend == RunConfig::Backend::Cuda)
        job.setup.fail_at("pipeline.slices", "devices of cuda run whole micro-batches",
                          "simulate it, choose another run.backend, or write slices: 1");
    if (job.plan.shape.slices > 1 && !has_backwards(job.plan))
        job.setup.fail_at("pipeline.slices", "forwards without backwards run whole micro-batches",
                          "simulate it, set run.backend: emulated, or write slices: 1");
    if (job.plan.shape.slices > 1 &&
        (!job.setup.pipeline.slice_tokens.empty() || job.setup.pipeline.slice_lengths != SliceLengths::Even))
        job.setup.fail_at(job.setup.pipeline.slice_tokens.empty() ? "pipeline.slice_lengths" : "pipeline.slices",
                          fmt::format("devices of {} run slices of equal length", name_of(job.setup.run.backend)),
                          "simulate it, set run.backend: emulated, or write a number of slices");
    if (job.setup.cluster.dispatcher != ClusterConfig::Dispatcher::PerDevice)
        job.setup.fail_at("cluster.dispatcher",
                          fmt::format("every device of {} has its own dispatcher", name_of(job.setup.run.backend)),
                          "simulate it, set run.backend: emulated, or remove the key");
    if (!cost_source_of(job.setup).has_layers)
        job.setup.fail_at("workload.model", "a uniform workload has no layers to run",
                          "set run.backend: emulated, or name a model: `pipewright list models`");
    if (!cost_source_of(job.setup).has_kernels)
        job.setup.fail_at("workload.model", "a model from a file has times and sizes, and nothing to run",
                          "set run.backend: emulated, or name a model: `pipewright list models`");
    if (job.setup.sums != SumAlgorithm::Ring)
        job.setup.fail_at("transfer.sums",
                          fmt::format("devices that compute sum part by part, not by {}", name_of(job.setup.sums)),
                          "simulate it, set run.backend: emulated, or write sums: ring");
    if (job.setup.sum_bucket > 0 && job.setup.run.backend == RunConfig::Backend::Cuda)
        job.setup.fail_at("transfer.sum_bucket",
                          "devices of cuda sum all gradients of a stage when the last of them is ready",
                          "simulate it, choose another run.backend, or remove the key");
    check_kernels(job.setup);
    check_frozen(job);
    if (job.setup.training.zero > 0)
        check_shards(job);
    check_initial(job.setup, *job.model);
    check_link(job.setup, job.plan.shape);
}

}  // namespace pw

// The sequential oracle of a plan: a single device, one task at a time.
#include "exec/oracle.h"
#include "exec/runnable.h"
#include "job/launched_ranks.h"
#include "schedules/plan/plan_graph.h"
#include "schedules/plan/sum_groups.h"

#include <algorithm>

namespace pw {

namespace {

// A stage's backward tasks in the order of its list: the order in which it adds up its gradients.
std::vector<Task> backwards_of(const Plan& plan, int stage) {
    std::vector<Task> tasks;
    for (const std::vector<Task>& list : plan.order)
        for (const Task& task : list)
            if (task.stage == stage && is_backward(task.op))
                tasks.push_back(task);
    return tasks;
}

// The micro-batches of a stage's I or W. A B counts as both.
std::vector<int> microbatches_of(const std::vector<Task>& backwards, Op part) {
    std::vector<int> order;
    for (const Task& task : backwards)
        if (does(task.op, part))
            order.push_back(task.microbatch);
    return order;
}

// The micro-batches of the last stage's I, in the order in which it adds up gradients.
std::vector<int> sums_of(const Plan& plan) {
    return microbatches_of(backwards_of(plan, plan.shape.stages - 1), Op::BackwardInput);
}

// Batch norm computes its weight gradients in I, other layers in W. If all stages have the same order of both, the
// split does not change any sum. Stages that run forwards only have no sums. The last stage always has sums.
bool stages_agree(const Plan& plan) {
    const std::vector<int> last = sums_of(plan);
    for (int stage = 0; stage < plan.shape.stages; ++stage) {
        if (plan.shape.runs_forwards_only(stage))
            continue;
        const std::vector<Task> backwards = backwards_of(plan, stage);
        if (microbatches_of(backwards, Op::BackwardInput) != last ||
            microbatches_of(backwards, Op::BackwardWeight) != last)
            return false;
    }
    return true;
}

// All layers in a single stage, which sums the gradients of a tensor's readers in the groups of `split`.
StageSplit one_stage(const StageSplit& split) {
    StageSplit whole;
    whole.layers.emplace_back();
    for (std::size_t layer = 0; layer < split.stage_of.size(); ++layer) {
        whole.layers[0].push_back(static_cast<int>(layer));
        whole.stage_of.push_back(0);
        whole.reader_groups.push_back(split.group_of(static_cast<int>(layer)));
    }
    return whole;
}

// A single stage: each backward follows its forward, or the forwards of all slices of its micro-batch, in the order
// of `sums`, which is empty for a plan that only evaluates.
std::vector<Task> whole_model_order(const Shape& shape, const std::vector<int>& sums) {
    std::vector<Task> order;
    if (sums.empty())
        for (int mb = 0; mb < shape.microbatches; ++mb)
            order.push_back(shape.task(Op::Forward, 0, mb));
    std::vector<char> begun(static_cast<std::size_t>(shape.whole_of(shape.microbatches)), 0);
    for (const int mb : sums) {
        const int whole = shape.whole_of(mb);
        for (int slice = 0; begun[whole] == 0 && slice < shape.slices; ++slice)
            order.push_back(shape.task(Op::Forward, 0, whole * shape.slices + slice));
        begun[whole] = 1;
        order.push_back(shape.task(Op::Backward, 0, mb));
    }
    if (!sums.empty())
        order.push_back(shape.task(Op::Update, 0, shape.microbatches - 1));
    return order;
}

bool has_replicas(const Shape& shape) {
    for (int stage = 0; stage < shape.stages; ++stage)
        if (shape.devices_of(stage).size() > 1)
            return true;
    return false;
}

// [stage][micro-batch]: the holder of the stage that serves it.
std::vector<std::vector<int>> holders_of(const Plan& plan) {
    const PlanGraph graph(plan);
    std::vector<std::vector<int>> all;
    for (int stage = 0; stage < plan.shape.stages; ++stage) {
        const std::vector<int> devices = plan.shape.devices_of(stage);
        std::vector<int>& numbers = all.emplace_back();
        for (int mb = 0; mb < plan.shape.microbatches; ++mb)
            numbers.push_back(
                static_cast<int>(std::find(devices.begin(), devices.end(), graph.holder(stage, mb)) - devices.begin()));
    }
    return all;
}

// All stages on one device, mini-batch by mini-batch. Each stage runs its own backward tasks in its order.
std::vector<Task> staged_order(const Plan& plan) {
    const Shape& shape = plan.shape;
    std::vector<std::vector<Task>> backwards;
    for (int stage = 0; stage < shape.stages; ++stage)
        backwards.push_back(backwards_of(plan, stage));
    std::vector<Task> order;
    for (int mini_batch = 0; mini_batch < shape.updates(); ++mini_batch) {
        const int first = shape.first_of(mini_batch), last = shape.last_of(mini_batch);
        for (int mb = first; mb <= last; ++mb)
            for (int stage = 0; stage < shape.stages; ++stage)
                order.push_back(shape.task(Op::Forward, stage, mb));
        for (int stage = shape.stages - 1; stage >= 0; --stage)
            for (const Task& task : backwards[stage])
                if (task.microbatch >= first && task.microbatch <= last)
                    order.push_back(task);
        for (int stage = 0; stage < shape.stages; ++stage)
            if (!backwards[stage].empty() && needs_sum(shape, stage))
                order.push_back(shape.task(Op::SumGradients, stage, last));
        for (int stage = 0; stage < shape.stages; ++stage)
            if (!backwards[stage].empty())
                order.push_back(shape.task(Op::Update, stage, last));
    }
    return order;
}

}  // namespace

Job oracle_of(const Job& job) {
    check_runnable(job);
    Job oracle = job;
    for (DeviceConfig& device : oracle.setup.cluster.devices)  // of a cluster that the oracle does not run on
        device.memory = kUnlimited;
    if (runs_on_ranks(oracle.setup.run))
        oracle.setup.run.transport = RunConfig::Transport::Threads;
    oracle.plan.shape.devices = 1;
    oracle.plan.shape.placement.clear();
    oracle.plan.shape.serving.clear();
    const bool depends_on_stages = is_emulated(job.setup);  // its tags do
    const bool shares_stages = has_replicas(job.plan.shape);
    if (!depends_on_stages && !shares_stages && job.plan.weights == WeightPolicy::Flush && stages_agree(job.plan)) {
        oracle.split = one_stage(job.split);
        oracle.plan.shape.stages = 1;
        oracle.plan.shape.edges.reset();
        oracle.plan.shape.ties.clear();
        oracle.plan.shape.forwards_only.clear();
        oracle.plan.order = {whole_model_order(oracle.plan.shape, sums_of(job.plan))};
        oracle.versions = versions_of(oracle.plan);
        return oracle;
    }
    oracle.plan.order = {staged_order(job.plan)};
    if (shares_stages)
        oracle.plan.gradient_parts = holders_of(job.plan);
    oracle.versions = versions_in_order_of(oracle.plan, job.versions);
    return oracle;
}

}  // namespace pw

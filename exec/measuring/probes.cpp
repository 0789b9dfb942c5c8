#include "exec/measuring/probes.h"

#include "exec/measuring/turns.h"
#include "job/plan.h"
#include "schedules/memory/buffers.h"
#include "schedules/orders/holding.h"
#include "schedules/passes/passes.h"
#include "schedules/plan/durations.h"
#include "workloads/costs/micro_batch_sizes.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>

namespace pw {

namespace {

constexpr int kMostAtOnce = 8;
constexpr int kMostMicroBatches = 16;
constexpr int kTried = 4;                      // numbers of micro-batches to try, per device
constexpr int kStepsAlone = 2;                 // per turn (the first step is left out)
constexpr int kFewestNear = 2, kMostNear = 3;  // steps per turn

// The operations that the plan runs on each stage.
class Operations {
public:
    explicit Operations(const Plan& plan) : has_(static_cast<std::size_t>(plan.shape.stages)) {
        for (const std::vector<Task>& order : plan.order)
            for (const Task& task : order)
                has_[task.stage][static_cast<std::size_t>(task.op)] = true;
    }

    bool any(Op op, int stage) const { return has_[stage][static_cast<std::size_t>(op)]; }
    // Returns the pass that follows a forward: B, or I if W is separate. If the plan has both in a stage, the
    // micro-batches alternate.
    std::optional<Op> backward_of(int stage, int microbatch) const {
        const bool whole = any(Op::Backward, stage), parts = any(Op::BackwardInput, stage);
        if (whole && !(parts && microbatch % 2 == 1))
            return Op::Backward;
        return parts ? std::optional(Op::BackwardInput) : std::nullopt;
    }
    std::vector<int> recomputed() const {
        std::vector<int> stages;
        for (int stage = 0; stage < static_cast<int>(has_.size()); ++stage)
            if (any(Op::Recompute, stage))
                stages.push_back(stage);
        return stages;
    }

private:
    std::vector<std::array<bool, kOps>> has_;  // [stage]
};

void add_backward(const Operations& operations, const Holding& own, int stage, int microbatch, Tasks& order) {
    if (!own.serves(stage, microbatch))
        return;
    if (const std::optional<Op> op = operations.backward_of(stage, microbatch))
        order.push_back({*op, stage, microbatch});
}

void add_weights(const Operations& operations, const Holding& own, int microbatch, Tasks& order) {
    for (const int stage : own.stages)
        if (own.serves(stage, microbatch) && operations.backward_of(stage, microbatch) == Op::BackwardInput &&
            operations.any(Op::BackwardWeight, stage))
            order.push_back({Op::BackwardWeight, stage, microbatch});
}

// No task waits for W. The devices of the first stage run it at once, while the devices of the later stages wait for
// the next micro-batch. The later stages run it later, while the devices of the first stage wait for the gradient of
// the next micro-batch.
Tasks one_by_one(const Holding& own, const Operations& operations) {
    const bool first = own.stages.front() == 0;
    Tasks order;
    int before = -1;
    for (const int mb : own.microbatches) {
        for (const int stage : own.stages)
            if (own.serves(stage, mb))
                order.push_back({Op::Forward, stage, mb});
        for (auto stage = own.stages.rbegin(); stage != own.stages.rend(); ++stage) {
            if (!first && before >= 0 && *stage == own.stages.front())
                add_weights(operations, own, before, order);
            add_backward(operations, own, *stage, mb, order);
        }
        if (first)
            add_weights(operations, own, mb, order);
        before = mb;
    }
    if (!first)
        add_weights(operations, own, before, order);
    return order;
}

// Groups of micro-batches, in sequence: stage after stage runs all forwards of a group, then all backwards.
// Each W comes after them, as in schedules that split the backward.
Tasks group_by_group(const Holding& own, const Operations& operations, int group) {
    Tasks order;
    const auto count = static_cast<int>(own.microbatches.size());
    for (int first = 0; first < count; first += group) {
        const std::vector<int> microbatches(own.microbatches.begin() + first,
                                            own.microbatches.begin() + std::min(first + group, count));
        for (const int stage : own.stages)
            for (const int mb : microbatches)
                if (own.serves(stage, mb))
                    order.push_back({Op::Forward, stage, mb});
        for (auto stage = own.stages.rbegin(); stage != own.stages.rend(); ++stage)
            for (const int mb : microbatches)
                add_backward(operations, own, *stage, mb, order);
        for (const int mb : microbatches)
            add_weights(operations, own, mb, order);
    }
    return order;
}

// Returns the largest number of micro-batches whose activations a device holds at once.
int most_at_once(const Plan& plan) {
    int most = 1;
    for (const std::vector<Task>& order : plan.order) {
        std::set<int> held;
        for (const Task& task : order) {
            if (task.op == Op::Forward)
                held.insert(task.microbatch);
            if (makes_input_gradient(task.op))
                held.erase(task.microbatch);
            most = std::max(most, static_cast<int>(held.size()));
        }
    }
    return most;
}

// Returns a multiple of `unit` that is not the job's own number of micro-batches.
int other_number(int wanted, int unit, const Job& job) {
    const int number = (wanted + unit - 1) / unit * unit;
    const bool is_own = number == job.setup.pipeline.micro_batches || number == job.plan.shape.microbatches;
    return is_own ? other_number(number + 1, unit, job) : number;
}

// Returns the job with another number of micro-batches, without a plan for it.
Job with_microbatches(const Job& job, int microbatches, int steps) {
    const MicroBatchSizes sizes = sizes_of(job.setup.pipeline);
    Job probe = job;
    probe.setup.pipeline.micro_batches = microbatches;
    probe.setup.pipeline.current_plan.clear();
    if (job.setup.pipeline.mini_batch > 0)
        probe.setup.pipeline.mini_batch = std::int64_t{microbatches - 1} * sizes.full + sizes.last();
    probe.setup.training.steps = steps;
    probe.setup.training.learning_rate = 0;
    for (DeviceConfig& device : probe.setup.cluster.devices)
        device.memory = kUnlimited;
    return probe;
}

template <class Order>  // the compute tasks of a device, from its Holding
Job probe_of(const Job& job, int microbatches, int steps, const Operations& operations, Order order) {
    Job probe = with_microbatches(job, microbatches, steps);
    Plan plan;
    plan.schedule = "probe";
    plan.shape = job.plan.shape;
    plan.shape.microbatches = microbatches;
    plan.shape.per_update = 0;
    const Holdings holdings(plan.shape);
    for (int device = 0; device < plan.shape.devices; ++device)
        plan.order.push_back(order(holdings.of(device)));
    TransferMode mode = job.mode;
    mode.protocol = TransferMode::Protocol::Rendezvous;
    add_updates(plan);
    add_transfers(plan, mode);
    add_recomputes(plan, {.stages = operations.recomputed()});
    std::shared_ptr<const Proof> proof = check(plan, mode);
    return with_plan(std::move(probe), {std::move(plan), std::move(proof)});
}

// Returns nothing if the plan is from a file, or if its schedule accepts none of the next numbers.
std::optional<Job> next_plan(const Job& job, int turns) {
    if (job.setup.pipeline.schedule.ends_with(".csv"))
        return std::nullopt;
    const int own = job.setup.pipeline.micro_batches, all = job.setup.training.steps;
    const int steps =
        job.plan.asynchronous ? std::max(1, all / turns) : std::clamp(all, kFewestNear * turns, kMostNear * turns);
    for (int number = own + 1; number <= own + kTried * job.plan.shape.devices; ++number)
        try {
            Job next = with_microbatches(job, number, steps);
            ProvenPlan proven = proven_plan(next.setup, links_of(job.model->layers, job.split), steps,
                                            [&](const Shape&) { return job.costs; });
            return with_plan(std::move(next), std::move(proven));
        } catch (const Error&) {  // the schedule does not accept this number
        }
    return std::nullopt;
}

Job in_groups(const Job& job, const Operations& operations, int turns) {
    const int unit = even_share(job.plan.shape);
    const int group = std::clamp(most_at_once(job.plan), 2, kMostAtOnce);
    const int most = std::min(job.setup.pipeline.micro_batches, kMostMicroBatches);
    const int microbatches = other_number(std::max(2 * group * unit, most + 1), unit, job);
    const int all = job.plan.shape.microbatches * steps_of(job);
    const int each = (all + turns * microbatches - 1) / (turns * microbatches);
    return probe_of(job, microbatches, turns * std::clamp(each, kFewestNear, kMostNear), operations,
                    [&](const Holding& own) { return group_by_group(own, operations, group); });
}

// The work of a plan: of the device with the most work, and of all devices together.
struct Work {
    Ns longest = 0, all = 0;
};

Work work_of(const Job& job) {
    const PlanGraph& graph = job.proof->graph;
    const std::vector<Ns> times = durations_of(job.plan, graph, job.costs, job.versions);
    std::vector<Ns> devices(job.plan.order.size(), 0);
    for (int node = 0; node < graph.size(); ++node)
        if (!moves_data(graph.task(node).op))
            devices[graph.device_of(node)] += times[node];
    return {*std::ranges::max_element(devices), std::accumulate(devices.begin(), devices.end(), Ns{0})};
}

// A lower bound, since devices also wait.
Ns time_of_run(const Job& job) { return steps_of(job) * work_of(job).longest; }

// The time of all turns. The pipeline of an asynchronous plan is filled and drained in every turn, the pipeline
// of a synchronous plan in every step.
Ns time_of_near(const Job& near, int turns) {
    const Work work = work_of(near);
    return near.plan.asynchronous ? turns * (work.longest + work.all / near.plan.shape.microbatches)
                                  : steps_of(near) * work.longest;
}

// The number of micro-batches of `alone`: about the number of the plan, since the first tasks of a step find caches
// that the updates have filled. It is smaller if the probe would take longer than the run.
int microbatches_alone(const Job& job, int turns) {
    const int usual = std::min(job.setup.pipeline.micro_batches, kMostMicroBatches), unit = even_share(job.plan.shape);
    const Ns each = std::max<Ns>(1, work_of(job).all / job.plan.shape.microbatches);
    const Ns most = time_of_run(job) / (Ns{kStepsAlone} * turns * each);
    const int least = std::max(3, 2 * unit);
    return other_number(std::max<int>(least, static_cast<int>(std::min<Ns>(usual - 1, most))), unit, job);
}

}  // namespace

Probes probes_of(const Job& job, int turns) {
    const Operations operations(job.plan);
    std::optional<Job> next = next_plan(job, turns);
    return {probe_of(job, microbatches_alone(job, turns), kStepsAlone * turns, operations,
                     [&](const Holding& own) { return one_by_one(own, operations); }),
            next ? std::move(*next) : in_groups(job, operations, turns)};
}

int affordable_turns(const Job& job, int wanted) {
    const Ns run = time_of_run(job);
    int turns = job.plan.asynchronous ? wanted : turns_of(steps_of(job), wanted);
    for (; turns > 1; --turns) {
        const Probes probes = probes_of(job, turns);
        if (steps_of(probes.alone) * work_of(probes.alone).all + time_of_near(probes.near, turns) <= 2 * run)
            break;
    }
    return turns;
}

}  // namespace pw

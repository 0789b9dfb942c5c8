// The sequential oracle of a plan: one device, one task at a time.
#include "exec/execute.h"

#include <algorithm>

namespace pw {

namespace {

bool makes_weight_gradient(Op op) { return op == Op::Backward || op == Op::BackwardWeight; }

// Order in which a stage adds up its gradients.
std::vector<int> gradient_order(const Plan& plan, int stage) {
    std::vector<int> order;
    for (const std::vector<Task>& list : plan.order)
        for (const Task& task : list)
            if (task.stage == stage && makes_weight_gradient(task.op))
                order.push_back(task.microbatch);
    return order;
}

bool stages_agree(const Plan& plan) {
    for (int stage = 1; stage < plan.shape.stages; ++stage)
        if (gradient_order(plan, stage) != gradient_order(plan, 0))
            return false;
    return true;
}

StageSplit one_stage(const Model& model) {
    const auto layers = static_cast<int>(boost::num_vertices(model.layers));
    StageSplit split;
    split.stage_of.assign(static_cast<std::size_t>(layers), 0);
    split.layers.emplace_back();
    for (int layer = 0; layer < layers; ++layer)
        split.layers[0].push_back(layer);
    return split;
}

// One stage: in micro-batch order each backward follows its forward; another order of the sums needs
// all forwards first, since running averages follow the micro-batches.
std::vector<Task> whole_model_order(const std::vector<int>& sums) {
    std::vector<Task> order;
    const bool ascending = std::is_sorted(sums.begin(), sums.end());
    for (int mb = 0; mb < static_cast<int>(sums.size()); ++mb) {
        order.push_back({Op::Forward, 0, mb});
        if (ascending)
            order.push_back({Op::Backward, 0, mb});
    }
    if (!ascending)
        for (const int mb : sums)
            order.push_back({Op::Backward, 0, mb});
    order.push_back({Op::Update, 0, static_cast<int>(sums.size()) - 1});
    return order;
}

// All stages on one device, mini-batch by mini-batch; each stage adds up in its own order.
std::vector<Task> staged_order(const Plan& plan) {
    const Shape& shape = plan.shape;
    const int per_update = shape.per_update == 0 ? shape.microbatches : shape.per_update;
    std::vector<std::vector<int>> sums;
    for (int stage = 0; stage < shape.stages; ++stage)
        sums.push_back(gradient_order(plan, stage));
    std::vector<Task> order;
    for (int first = 0; first < shape.microbatches; first += per_update) {
        const int last = std::min(first + per_update, shape.microbatches) - 1;
        for (int mb = first; mb <= last; ++mb)
            for (int stage = 0; stage < shape.stages; ++stage)
                order.push_back({Op::Forward, stage, mb});
        for (int stage = shape.stages - 1; stage >= 0; --stage)
            for (const int mb : sums[stage])
                if (mb >= first && mb <= last)
                    order.push_back({Op::Backward, stage, mb});
        for (int stage = 0; stage < shape.stages; ++stage)
            order.push_back({Op::Update, stage, last});
    }
    return order;
}

}  // namespace

Job oracle_of(const Job& job) {
    Job oracle{job.config, job.model, job.split, job.plan, job.versions, job.steps, false};
    oracle.plan.shape.devices = 1;
    oracle.plan.shape.placement.clear();
    if (job.plan.weights == WeightPolicy::Flush && stages_agree(job.plan)) {
        oracle.split = one_stage(job.model);
        oracle.plan.shape.stages = 1;
        oracle.plan.shape.edges.clear();
        oracle.plan.order = {whole_model_order(gradient_order(job.plan, 0))};
        oracle.versions = versions_of(oracle.plan);
        return oracle;
    }
    oracle.plan.order = {staged_order(job.plan)};
    oracle.versions = versions_in_order_of(oracle.plan, job.versions);
    return oracle;
}

}  // namespace pw

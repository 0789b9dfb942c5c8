// S, the sum of gradients, in buckets: a thread beside the device's sums those that are full on all holders while the
// device makes the gradients of the others.
#include "exec/training/training.h"
#include "schedules/plan/sum_groups.h"
#include "workloads/costs/sums.h"

#include <algorithm>

namespace pw {

bool Training::sums_beside(int device) const {
    const Shape& shape = job.plan.shape;
    const std::vector<int> stages = shape.stages_of(device);
    return job.config.sum_bucket > 0 && !stages.empty() && may_overlap_sum(shape, stages.front());
}

// Buckets fill beside the last B or W of a mini-batch. Every I stands before its W: then all other gradients are final.
void TrainingDevice::list_buckets(int stage) {
    StageState& state = stages_.at(stage);
    const PlanGraph& graph = run_.plan.graph;
    if (run_.sums_beside(device_))
        state.buckets = buckets_of(state.all.bytes, run_.job.config.sum_bucket);
    if (state.buckets == 1)
        return;
    const auto length = static_cast<int>(run_.job.plan.order[device_].size());
    for (int position = 0; position < length; ++position)
        if (const int node = graph.node(device_, position); graph.task(node).op == Op::SumGradients)
            if (const int last = graph.last_gradients_of(node); last >= 0)
                sums_behind_[last] = node;
}

// The last bytes of the block are the first that are final.
Extent TrainingDevice::bucket_of(int stage, int number) const {
    const StageState& state = stages_.at(stage);
    return share_of(state.all, static_cast<std::size_t>(state.buckets - 1 - number),
                    static_cast<std::size_t>(state.buckets));
}

// Kernels of one thread.
void TrainingDevice::open_bucket_thread() const {
    Config config = run_.job.config;
    config.run.threads_per_device = 1;
    (void)open_kernels(config, device_, run_.job.plan.shape.devices);
}

// On the thread beside. All holders do the same, bucket by bucket.
void TrainingDevice::sum_in_buckets(int node) {
    const int stage = run_.plan.graph.task(node).stage, buckets = stages_.at(stage).buckets;
    const auto meet = [&](const Barriers::RankAction& across) { run_.plan.barriers->arrive(node, across, true); };
    const auto fetch_beside = [&] {
        if (run_.plan.barriers->spans_ranks(node))
            meet(run_.fetches_across());
    };
    for (int number = 0; number < buckets; ++number) {
        const Extent bucket = bucket_of(stage, number);
        bucket_thread_->wait_until_full(bucket.first);
        meet(run_.synchronise_ranks());
        if (number + 1 == buckets)
            bucket_thread_->last_is_full();
        list_share(stage, bucket);
        fetch_beside();
        add_up();
        meet(run_.synchronise_ranks());
        copy_shares(stage, bucket);
        fetch_beside();
    }
}

// All gradients of the stage are final: no S begins before the pass that made the last of them has ended.
void TrainingDevice::has_run(int node) {
    if (sums_behind_.contains(node))
        bucket_thread_->fill(0);
}

// A holder without a gradient of the mini-batch begins here, with full buckets.
void TrainingDevice::wait_for_last_bucket(int node) {
    const WaitingAt waiting(run_.plan.monitor.get(), device_, node);
    bucket_thread_->begin(node);
    bucket_thread_->fill(0);
    bucket_thread_->wait_for_last();
}

void TrainingDevice::wait_for_buckets(int node) {
    const WaitingAt waiting(run_.plan.monitor.get(), device_, node, true);
    bucket_thread_->wait_until_done();
}

}  // namespace pw

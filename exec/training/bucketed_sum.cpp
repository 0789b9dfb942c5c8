#include "exec/training/bucketed_sum.h"

#include "exec/training/gradient_sum.h"

#include <utility>

namespace pw {

// Buckets fill during the last B or W of a mini-batch. Since every I precedes its W, all other gradients are final
// by then. The thread sums one stage at a time: where a pass precedes the S of another stage, the sum begins at its S.
BucketedSum::BucketedSum(const DeviceScope& on, GradientSum& sums, BucketThread& thread,
                         const Barriers::RankAction& synchronise_ranks, const Barriers::RankAction& fetch)
    : on_(on), sums_(sums), thread_(thread), synchronise_ranks_(synchronise_ranks), fetch_(fetch) {
    const PlanGraph& graph = on_.plan.graph;
    const auto length = static_cast<int>(on_.plan.job.plan.order[on_.device].size());
    int before = -1;  // the S of another stage
    for (int position = 0; position < length; ++position) {
        const int node = graph.node(on_.device, position);
        const Task& task = graph.task(node);
        if (task.op == Op::SumGradients && on_.stages.at(task.stage).share.buckets > 1)
            if (const int last = graph.last_gradients_of(node); last > std::exchange(before, node))
                sum_after_[last] = node;
    }
}

void BucketedSum::begin_pass(int node, StageProgram& program, std::optional<FillObserver>& filling) {
    const auto sum = sum_after_.find(node);
    if (sum == sum_after_.end())
        return;
    thread_.begin(sum->second);
    filling.emplace(program, on_.plan.job.model->layers, thread_);
}

// All gradients of the stage are final: no S begins before the pass that computes the last of them has ended.
void BucketedSum::end_pass(int node) {
    if (sum_after_.contains(node))
        thread_.fill(0);
}

// All holders do this together, bucket by bucket.
void BucketedSum::sum(int node) {
    const int stage = on_.plan.graph.task(node).stage;
    const StageShare& share = on_.stages.at(stage).share;
    const auto arrive = [&](const Barriers::RankAction& between_ranks) {
        on_.plan.barriers->arrive(node, between_ranks, false);
    };
    const auto fetch = [&] {
        if (on_.plan.barriers->spans_ranks(node))
            arrive(fetch_);
    };
    for (int number = 0; number < share.buckets; ++number) {
        const Extent bucket = share.bucket(number);
        thread_.wait_until_full(bucket.first);
        arrive(synchronise_ranks_);
        if (number + 1 == share.buckets)
            thread_.last_is_full();
        sums_.list(stage, bucket);
        fetch();
        sums_.add();
        arrive(synchronise_ranks_);
        sums_.copy(stage, bucket);
        fetch();
    }
}

// A holder without a gradient of the mini-batch begins here. Its buckets are full.
void BucketedSum::wait_for_last(int node) {
    const WaitingAt waiting(on_.plan.monitor.get(), on_.device, node);
    thread_.begin(node);
    thread_.fill(0);
    thread_.wait_for_last();
}

void BucketedSum::wait(int node) {
    const WaitingAt waiting(on_.plan.monitor.get(), on_.device, node, true);
    thread_.wait_until_done();
}

}  // namespace pw

// S, the sum of gradients, in buckets: a second thread of the device sums the buckets that are full on all holders
// while the device computes the gradients of the remaining buckets.
#pragma once

#include "exec/training/bucket_thread.h"
#include "exec/training/held_stage.h"

#include <map>
#include <optional>

namespace pw {

class GradientSum;

class BucketedSum {
public:
    // `synchronise_ranks` and `fetch` are the actions of ranks at a barrier.
    BucketedSum(const DeviceScope& on, GradientSum& sums, BucketThread& thread,
                const Barriers::RankAction& synchronise_ranks, const Barriers::RankAction& fetch);

    // These are for the device's thread. begin_pass() and end_pass() enclose a pass that computes gradients. During
    // the pass that computes the last ones of a mini-batch, `filling` reports which are final.
    void begin_pass(int node, StageProgram& program, std::optional<FillObserver>& filling);
    void end_pass(int node);
    void wait_for_last(int node);  // until the last bucket is full on all devices
    void wait(int node);           // until all buckets are summed

    void sum(int node);  // on the bucket thread

private:
    const DeviceScope on_;
    GradientSum& sums_;
    BucketThread& thread_;
    const Barriers::RankAction &synchronise_ranks_, &fetch_;
    std::map<int, int> sum_after_;  // node of the pass that computes the last gradients of an S -> node of the S
};

}  // namespace pw

// The copies of a lane start as listed, in whatever order they may start.
#include "exec/engine/host_copies.h"
#include "job/build.h"
#include "schedules/plan/plan_graph.h"
#include "tests/support/execution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

namespace pw {
namespace {

constexpr const char* kWithCopies = R"(
workload: {model: uniform, forward: 200 us, backward_input: 200 us, backward_weight: 200 us, activation: 4 kB}
cluster: {devices: 2, host_link: {bandwidth: 20 MB/s}}
pipeline: {schedule: gpipe, micro_batches: 4, offload: all}
)";

class RecordedCopies : public HostCopies {
public:
    using HostCopies::HostCopies;
    void wait(int) override {}
    Interval interval(int) const override { return {}; }
    std::array<std::vector<int>, kLanes> begun;

private:
    void begin(int node, int lane) override { begun[static_cast<std::size_t>(lane)].push_back(node); }
};

TEST(HostCopies, StartAsListed) {
    const Job job = Execution(kWithCopies, {}).job();
    const PlanGraph graph(job.plan);
    for (const bool both_ways : {false, true}) {
        TransferMode mode = job.mode;
        mode.copies = both_ways ? TransferMode::Copies::BothWays : TransferMode::Copies::InTurn;
        RecordedCopies copies(graph, job.plan.order[0], 0, mode);
        std::vector<int> listed;
        for (int position = 0; position < static_cast<int>(job.plan.order[0].size()); ++position)
            if (is_copy(job.plan.order[0][static_cast<std::size_t>(position)].op))
                listed.push_back(graph.node(0, position));
        ASSERT_EQ(listed.size(), 8u);
        for (int step = 0; step < 2; ++step) {
            copies.begin_step();
            copies.begun = {};
            std::for_each(listed.rbegin(), listed.rend(), [&](int node) { copies.post(node); });
            std::vector<int> begun = copies.begun[0];
            begun.insert(begun.end(), copies.begun[1].begin(), copies.begun[1].end());
            EXPECT_EQ(copies.begun[0].size(), both_ways ? 4u : 8u);
            for (const std::vector<int>& lane : copies.begun)
                EXPECT_TRUE(std::is_sorted(lane.begin(), lane.end()));
            std::sort(begun.begin(), begun.end());
            EXPECT_EQ(begun, listed);
        }
    }
}

}  // namespace
}  // namespace pw

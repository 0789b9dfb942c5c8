// A schedule that is in no table and orders tasks by their costs, from the config to the simulated step.
#include "job/job.h"
#include "job/load.h"
#include "job/plan.h"
#include "schedules/orders/order_costs.h"
#include "schedules/passes/passes.h"
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/refusal.h"
#include "tests/support/shapes.h"
#include "tests/support/temporary_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>

namespace pw {
namespace {

// Runs the plan ahead by its costs: of all tasks that a device could begin next, the one that can begin first; of
// those, a backward, then the lowest micro-batch. A device has room for memory / activation micro-batches.
class Greedy {
public:
    explicit Greedy(const Request& request)
        : shape_(request.shape),
          costs_(*request.costs),
          free_at_(static_cast<std::size_t>(shape_.devices), 0),
          held_(free_at_.size(), 0) {}

    std::vector<Tasks> lists() {
        std::vector<Tasks> lists(static_cast<std::size_t>(shape_.devices));
        for (std::optional<Next> next = earliest(); next; next = earliest()) {
            const int device = device_of(next->task.stage);
            ends_[next->task] = free_at_[device] = next->start + time_of(next->task);
            held_[device] += next->task.op == Op::Forward ? activation(device) : -activation(device);
            lists[device].push_back(next->task);
        }
        return lists;
    }

private:
    struct Next {
        Ns start;
        Task task;
        auto key() const { return std::tuple(start, task.op == Op::Forward, task.microbatch, task.stage); }
    };

    int device_of(int stage) const { return shape_.devices_of(stage).front(); }
    Bytes activation(int stage) const { return costs_.held[stage].front().after_forward; }
    Ns time_of(const Task& task) const {
        const OrderCosts::Times& times = costs_.times.at({task.stage, device_of(task.stage)}).front();
        return task.op == Op::Forward ? times.forward : times.backward;
    }

    // Returns when the input from another stage is there, or nothing where it is not made yet.
    std::optional<Ns> arrival(const Task& task, int peer) const {
        const auto made = ends_.find({task.op, peer, task.microbatch});
        if (made == ends_.end())
            return std::nullopt;
        return made->second +
               costs_.messages.at({{peer, device_of(peer)}, {task.stage, device_of(task.stage)}}).front().time();
    }

    void consider(const Task& task, std::optional<Next>& best) const {
        const bool forward = task.op == Op::Forward;
        const int device = device_of(task.stage), peer = task.stage + (forward ? -1 : 1);
        if (ends_.contains(task) || (!forward && !ends_.contains({Op::Forward, task.stage, task.microbatch})) ||
            (forward && held_[device] + activation(task.stage) > costs_.memory[device]))
            return;
        const std::optional<Ns> input = peer < 0 || peer == shape_.stages ? Ns{0} : arrival(task, peer);
        if (!input)
            return;
        const Next next{std::max(*input, free_at_[device]), task};
        if (!best || next.key() < best->key())
            best = next;
    }

    std::optional<Next> earliest() const {
        std::optional<Next> best;
        for (int stage = 0; stage < shape_.stages; ++stage)
            for (int mb = 0; mb < shape_.microbatches; ++mb)
                for (const Op op : {Op::Forward, Op::Backward})
                    consider({op, stage, mb}, best);
        return best;
    }

    const Shape& shape_;
    const OrderCosts& costs_;
    std::map<Task, Ns> ends_;
    std::vector<Ns> free_at_;  // by device
    std::vector<Bytes> held_;
};

const Schedule kGreedy{.name = "greedy",
                       .summary = "whatever can begin first",
                       .orders = [](const Request& request) { return Greedy(request).lists(); },
                       .needs_costs = true};

Config config_with(const std::string& memory, const std::string& cluster = "") {
    const TemporaryFolder folder;
    return load_config(folder.write("cfg.yaml",
                                    "workload: {model: uniform, stages: 2, forward: [1 ns, 3 ns], "
                                    "backward_input: [1 ns, 2 ns], backward_weight: 1 ns, activation: 1 "
                                    "MB}\n"
                                    "cluster: {devices: 2, memory: " +
                                        memory + ", link: {latency: 1 ns, bandwidth: inf}" + cluster +
                                        "}\n"
                                        "pipeline: {schedule: gpipe, stages: 2, micro_batches: 3}\n"),
                       {});
}

// Stage 0 takes 1 and 2, stage 1 takes 3 and 3, a hop takes 1. With room for all three micro-batches:
// device 0: 0F0 0-1, 0F1 1-2, 0F2 2-3, then backwards as they come;
// device 1: 1F0 2-5, 1B0 5-8, 1F1 8-11, 1B1 11-14, 1F2 14-17, 1B2 17-20; 0B2 begins at 21 and ends at 23.
TEST(OrderedByCosts, PlansAreProvenAndSimulated) {
    Notices notices;
    const Job job = make_job(config_with("1 GB"), kGreedy, notices);
    EXPECT_EQ(row_of(job.plan, 0), "0F0 0F1 0F2 0B0 0B1 0B2 0U2");
    EXPECT_EQ(row_of(job.plan, 1), "1F0 1B0 1F1 1B1 1F2 1B2 1U2");
    ASSERT_NE(job.proof, nullptr);
    EXPECT_FALSE(job.proof->order.empty());
    EXPECT_EQ(metrics_of(simulate(job.plan, job.costs, job.mode)).step_time, 23);
}

// The order follows the memory: device 0 has room for one micro-batch of 1 MB at a time, so that each comes back before
// the next begins: 0F0 0-1, 1F0 2-5, 1B0 5-8, 0B0 9-11, three times.
TEST(OrderedByCosts, MemoryIsALimit) {
    Notices notices;
    const Job job = make_job(config_with("1500 kB"), kGreedy, notices);
    EXPECT_EQ(row_of(job.plan, 0), "0F0 0B0 0F1 0B1 0F2 0B2 0U2");
    EXPECT_EQ(metrics_of(simulate(job.plan, job.costs, job.mode)).step_time, 33);
}

// 2 ns of dispatch per task; device 1 is half as fast; 1 MB over 1 GB/s take 1 ms.
TEST(OrderedByCosts, CostsAreThoseOfTheDevices) {
    Shape shape;
    shape.devices = shape.stages = 2;
    shape.microbatches = 3;
    Costs costs = uniform(2, 10, 6, 4, 7);
    costs.stage[1].forward = 30;
    ClusterEdit(costs)->set_speeds({1, 0.5});
    costs.dispatch = 2;
    ClusterEdit(costs)->link.bandwidth = 1e9;
    costs.edges.push_back({0, 1, 1'000'000, 2'000'000});
    const OrderCosts known = order_costs(placed(kGreedy, shape), costs, {100, 200});
    const OrderCosts::Times first = known.times.at({0, 0}).front(), second = known.times.at({1, 1}).front();
    EXPECT_EQ(first.forward, 12);
    EXPECT_EQ(first.backward, 12);
    EXPECT_EQ(first.backward_input, 8);
    EXPECT_EQ(first.backward_weight, 6);
    EXPECT_EQ(second.forward, 62);
    EXPECT_EQ(second.backward, 22);
    EXPECT_EQ(known.messages.at({{0, 0}, {1, 1}}).front().time(), 1'000'007);
    EXPECT_EQ(known.messages.at({{1, 1}, {0, 0}}).front().time(), 2'000'007);
    EXPECT_EQ(known.times.size(), 2u);
    EXPECT_EQ(known.messages.size(), 2u);
    EXPECT_EQ(known.memory, (std::vector<Bytes>{100, 200}));
}

TEST(OrderedByCosts, PlansWithoutCostsAreRefused) {
    Shape shape;
    shape.devices = shape.stages = 2;
    expect_says(refusal([&] { (void)make_plan(kGreedy, shape); }),
                {"schedule greedy orders tasks by their costs, and this plan has none"});
}

}  // namespace
}  // namespace pw

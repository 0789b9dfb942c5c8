// Interleaved pipelines whose forwards run in pairs with backwards, against the loops of Megatron-Core's combined 1F1B
// (NVIDIA/Megatron-LM@d98e8a6, megatron/core/pipeline_parallel/schedules.py) and times counted by hand.
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/shapes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pw {
namespace {

Plan plan_with_pairs(int devices, int microbatches, int chunks, int group, const TransferMode& transfers = {}) {
    const Schedule& schedule = schedule_named("interleaved");
    return make_plan(schedule, shape_of(schedule, devices, microbatches, chunks),
                     {.schedule = {.group = group, .pairs = true}, .transfers = transfers});
}

// Returns what a device computes, pairs in brackets: "0F0 (0F1;2B0) 0B0".
std::string printed(const Plan& plan, int device) {
    std::string text;
    bool is_second = false;
    for (const Task& task : plan.order[static_cast<std::size_t>(device)])
        if (is_compute(task.op)) {
            text += is_second ? ";" : text.empty() ? "" : " ";
            text += (task.with_next ? "(" : "") + print(task) + (is_second ? ")" : "");
            is_second = task.with_next;
        }
    return text;
}

// get_pp_rank_microbatches() and get_schedule_table(), then the loops over warm-up, steady state and the rest.
std::string as_megatron_runs(int p, int rank, int m, int chunks, int group) {
    std::vector<std::pair<int, int>> table;  // micro-batch and chunk
    for (int first = 0; first < m; first += group)
        for (int chunk = 0; chunk < chunks; ++chunk)
            for (int mb = first; mb < std::min(first + group, m); ++mb)
                table.emplace_back(mb, chunk);
    const int all = m * chunks, warm_up = std::min(all, (p - rank - 1) * 2 + (chunks - 1) * group + 1);
    const auto forward = [&](int k) { return fmt::format("{}F{}", table[k].second * p + rank, table[k].first); };
    const auto backward = [&](int k) {
        return fmt::format("{}B{}", (chunks - 1 - table[k].second) * p + rank, table[k].first);
    };
    std::string text;
    for (int k = 0; k < warm_up; ++k)
        text += (k > 0 ? " " : "") + forward(k);
    for (int k = 0; k < all - warm_up; ++k)
        text += fmt::format(" ({};{})", forward(k + warm_up), backward(k));
    for (int k = all - warm_up; k < all; ++k)
        text += " " + backward(k);
    return text;
}

TEST(InterleavedPairs, HaveTheOrderCountedByHand) {
    const Plan plan = plan_with_pairs(2, 4, 2, 0);
    EXPECT_EQ(printed(plan, 0), "0F0 0F1 2F0 2F1 0F2 (0F3;2B0) (2F2;2B1) (2F3;0B0) 0B1 2B2 2B3 0B2 0B3");
    EXPECT_EQ(printed(plan, 1), "1F0 1F1 3F0 (3F1;3B0) (1F2;3B1) (1F3;1B0) (3F2;1B1) (3F3;3B2) 3B3 1B2 1B3");
}

// Every shape has the loops' order, and completes in all lanes (make_plan proves it).
TEST(InterleavedPairs, HaveTheOrderOfMegatron) {
    for (const int p : {1, 2, 3, 4, 6})
        for (const int chunks : {1, 2, 3})
            for (const auto& [m, group] :
                 {std::pair{p, p}, {2 * p, p}, {5 * p, p}, {4 * p, 2 * p}, {3 * p + 1, p + 1}}) {
                if (m % group != 0 && m % group < p)
                    continue;
                const Plan plan = plan_with_pairs(p, m, chunks, group);
                for (int device = 0; device < p; ++device)
                    EXPECT_EQ(printed(plan, device), as_megatron_runs(p, device, m, chunks, group))
                        << p << " devices, " << m << " micro-batches in groups of " << group;
                for (const auto& communicator : kChoices<TransferMode::Communicator>)
                    for (const auto& receive : kChoices<TransferMode::Receive>)
                        EXPECT_NO_THROW(plan_with_pairs(p, m, chunks, group,
                                                        {.communicator = communicator.value, .receive = receive.value}))
                            << communicator.name << ", " << receive.name;
            }
}

// Five forwards of 10, then device 0 waits for 3B0, which device 1 computes with 3F1 from 40 to 65. Pairs of 25 follow:
// on device 0 from 65 to 140, on device 1 from 40 to 165. 0B1 ends at 160, 3B3 at 185, and the last backwards go back
// and forth: 2B2 185, 2B3 205, 1B2 205, 1B3 225, 0B2 225, 0B3 245.
TEST(InterleavedPairs, TakeTheTimeCountedByHand) {
    Costs costs = uniform(4, 10, 20, 0);
    costs.pair_exposed = 0.5;
    EXPECT_EQ(metrics_of(simulate(plan_with_pairs(2, 4, 2, 0), costs)).makespan, 245);
    costs.pair_exposed = 1;
    const Plan plain = plan_of("interleaved", 2, 4, 2);
    EXPECT_EQ(metrics_of(simulate(plain, costs)).makespan, 4 * 2 * 30 + 30);
}

// Once the pipeline is full, a device does nothing but pairs.
TEST(InterleavedPairs, LeaveNoDeviceIdle) {
    for (const int p : {2, 3, 4, 6})
        for (const int chunks : {2, 3}) {
            Costs costs = uniform(p * chunks, 10, 20, 0);
            costs.pair_exposed = 0.5;
            const auto makespan = [&](int rounds) {
                return metrics_of(simulate(plan_with_pairs(p, rounds * p, chunks, p), costs)).makespan;
            };
            EXPECT_EQ(makespan(16) - makespan(8), 8 * p * chunks * 25) << p << " devices with " << chunks;
        }
}

// A forward more than without pairs, and the forward of the pair with the backward.
TEST(InterleavedPairs, HoldTheForwardsOfTheWarmUpAndOneMore) {
    const auto held = [&](const Plan& plan, int device) {
        int now = 0, most = 0;
        for (const Task& task : plan.order[static_cast<std::size_t>(device)])
            if (is_compute(task.op))
                most = std::max(most, now += task.op == Op::Forward ? 1 : -1);
        return most;
    };
    const Plan pairs = plan_with_pairs(4, 16, 2, 4), plain = plan_of("interleaved", 4, 16, 2);
    for (int device = 0; device < 4; ++device) {
        EXPECT_EQ(held(pairs, device), 2 * (3 - device) + 4 + 2);
        EXPECT_EQ(held(pairs, device), held(plain, device) + 1);
    }
}

}  // namespace
}  // namespace pw

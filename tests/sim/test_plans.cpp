// Laws over a grid of shapes, for every schedule: complete, ordered, within the published memory, free of
// deadlock in every lane mode, and never held up by the lanes of the default mode.
// PIPEWRIGHT_SOAK=1 tries every shape up to p = 16, v = 4, m = 64; else a part of them, under sanitizers a small one.
#include "schedules/passes/passes.h"
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/longest_path.h"
#include "tests/support/shapes.h"
#include "tests/support/thoroughness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

namespace pw {
namespace {

using Protocol = TransferMode::Protocol;

using Counts = std::vector<int>;

const Counts kDevices = kSanitized ? Counts{1, 3, 8} : Counts{1, 2, 3, 4, 5, 8, 16};
const Counts kMicroBatches = kSanitized ? Counts{1, 4, 16} : Counts{1, 2, 3, 4, 7, 16, 37, 64};

std::vector<int> microbatches() {
    std::vector<int> all(64);
    for (int m = 1; m <= 64; ++m)
        all[static_cast<std::size_t>(m - 1)] = m;
    return soaks() ? all : kMicroBatches;
}

std::vector<int> devices() {
    std::vector<int> all(16);
    for (int p = 1; p <= 16; ++p)
        all[static_cast<std::size_t>(p - 1)] = p;
    return soaks() ? all : kDevices;
}

std::vector<int> chunks_of(const Schedule& schedule) {
    std::vector<int> chunks;
    for (const int count : {1, 2, 3, 4})
        if (schedule.placement.fits(count * 5, 5))
            chunks.push_back(count);
    return chunks;
}

// Micro-batches and chunks in flight that the schedule promises: (stage, micro-batch) pairs on device d,
// freed at I or B, and at W or B.
std::pair<int, int> bound(const Schedule& schedule, int p, int v, int m, int d) {
    const int all = m * v;
    const int group =
        std::string_view("interleaved zb1p").find(schedule.name) != std::string_view::npos ? m / std::max(1, m / p) : 0;
    const auto at_most = [&](int input, int weight) { return std::pair(std::min(input, all), std::min(weight, all)); };
    if (schedule.name == "naive")
        return at_most(v, v);
    if (schedule.name == "gpipe" || schedule.name == "bfs")
        return at_most(all, all);
    if (schedule.name == "eager-1f1b")
        return at_most(2 * (p - d) - 1, 2 * (p - d) - 1);
    if (schedule.name == "interleaved")
        return at_most(2 * (p - d) - 1 + (v - 1) * group, 2 * (p - d) - 1 + (v - 1) * group);
    if (schedule.name == "zb-h1")
        return at_most(p - d, p);
    if (schedule.name == "zb-h2")
        return at_most(2 * (p - d) - 1, 2 * p - 1);
    if (schedule.name == "zb1p")
        return at_most(p - d + (v - 1) * group, p + (v - 1) * group);
    if (schedule.name == "zb-v")
        return at_most(2 * p, 2 * p);
    if (schedule.name == "v-half")
        return at_most((p + 2) / 2 * 2, (p + 2) / 2 * 2);
    if (schedule.name == "v-min")
        return at_most((p + 4) / 3 * 2, (p + 4) / 3 * 2);
    if (schedule.name == "hanayo")
        return at_most(p * v, p * v);
    if (schedule.name == "chimera")
        return at_most(p / 2 + 1 + std::min(d, p - 1 - d), p / 2 + 1 + std::min(d, p - 1 - d));
    if (schedule.name == "dualpipe")
        return at_most(p + 1, p + 1);
    if (schedule.name == "dualpipe-v")
        return at_most(2 * p + 1, 2 * p + 1);
    if (schedule.name == "auto" || schedule.name == "auto-v" || schedule.name == "auto-bidirectional")
        return at_most(p * v, p * v);
    if (schedule.name == "pipemare")
        return at_most(2 * (p - d), 2 * (p - d));
    if (schedule.name == "forward-only")
        return {1, 1};
    return at_most(p - d, p - d);  // 1f1b and those that never flush
}

Costs uneven(int stages) {
    Costs costs = uniform(stages, 10, 10, 10, 3);
    for (int stage = 0; stage < stages; ++stage) {
        StageCost& cost = costs.stage[static_cast<std::size_t>(stage)];
        cost.forward = 5 + stage * 7 % 11;
        cost.backward_input = 6 + stage * 5 % 13;
        cost.backward_weight = 2 + stage * 3 % 7;
        cost.backward = cost.backward_input + cost.backward_weight;
    }
    return costs;
}

std::size_t count_of(const Plan& plan, bool (*counted)(Op)) {
    std::size_t count = 0;
    for (const auto& order : plan.order)
        count += static_cast<std::size_t>(
            std::count_if(order.begin(), order.end(), [&](const Task& task) { return counted(task.op); }));
    return count;
}

class Plans : public testing::TestWithParam<std::string_view> {
protected:
    const Schedule& schedule() const { return schedule_named(GetParam()); }

    template <class Law>
    void for_shapes(Law law) {
        for (const int p : devices())
            for (const int v : chunks_of(schedule()))
                for (const int m : microbatches()) {
                    law(p, v, m);
                    ASSERT_FALSE(HasFailure()) << schedule().name << ": p " << p << " v " << v << " m " << m;
                }
    }
};

// make_plan() has proven it: each task once, inputs before outputs, no deadlock under rendezvous.
TEST_P(Plans, AreWhollyThereWithinTheirMemory) {
    for_shapes([&](int p, int v, int m) {
        const std::optional<Plan> plan = try_plan(schedule(), shape_of(schedule(), p, m, v));
        if (!plan)
            return;
        const std::size_t all = static_cast<std::size_t>(p) * v * m, backwards = schedule().trains ? all : 0;
        EXPECT_EQ(count_of(*plan, [](Op op) { return op == Op::Forward; }), all);
        EXPECT_EQ(count_of(*plan, makes_input_gradient), backwards);
        EXPECT_EQ(count_of(*plan, makes_weight_gradient), backwards);
        if (!soaks() && p * v * m > 512)
            return;
        const Trace trace = simulate(*plan, uneven(p * v));
        const Metrics metrics = metrics_of(trace);
        for (int d = 0; d < p; ++d) {
            const auto [input, weight] = bound(schedule(), p, v, m, d);
            EXPECT_LE(metrics.devices[d].peak_in_flight, input) << "device " << d;
            EXPECT_LE(metrics.devices[d].peak_in_flight_until_weight, weight) << "device " << d;
        }
        EXPECT_EQ(metrics.makespan, longest_path(*plan, uneven(p * v)));  // no message waits in a lane
    });
}

TEST_P(Plans, NeverDeadlockInAnyModeAndProtocol) {
    for_shapes([&](int p, int v, int m) {
        if (!soaks() && (p * v * m > 500 || (p > 8 && m % 2 == 1)))
            return;
        for (const auto communicator : {Communicator::Edge, Communicator::Direction, Communicator::One})
            for (const auto receive : {TransferMode::Receive::Early, TransferMode::Receive::Deferred}) {
                PlanOptions options;
                options.transfers = {communicator, receive, Protocol::Rendezvous, true};
                const std::optional<Plan> plan = try_plan(schedule(), shape_of(schedule(), p, m, v), options);
                if (!plan)
                    continue;
                for (const auto protocol : {Protocol::Eager, Protocol::OneSlot, Protocol::Rendezvous}) {
                    if (p * v * m > 100 && protocol != Protocol::Rendezvous)
                        continue;  // implied
                    EXPECT_NO_THROW(check(*plan, {communicator, receive, protocol, true}));
                }
            }
    });
}

std::string test_name(const testing::TestParamInfo<std::string_view>& test) {
    std::string name(test.param);
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
}

INSTANTIATE_TEST_SUITE_P(EverySchedule, Plans, testing::ValuesIn(names_of_schedules()), test_name);

}  // namespace
}  // namespace pw

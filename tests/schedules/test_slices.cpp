// Plans of slices: their orders (arXiv 2406.03488, and sail-sg/zero-bubble-pipeline-parallelism 39f2c186), and what the
// check of plans refuses.
#include "schedules/passes/passes.h"
#include "tests/support/refusal.h"
#include "tests/support/shapes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace pw {
namespace {

Shape sliced(int p, int m, int k) {
    Shape shape = shape_of(schedule_named("seq1f1b"), p, m * k);
    shape.slices = k;
    return shape;
}

Plan seq_plan(int p, int m, int k) { return make_plan(schedule_named("seq1f1b"), sliced(p, m, k)); }

TEST(Slices, AreOrderedAsPublished) {
    const Plan plan = seq_plan(2, 2, 2);
    EXPECT_EQ(row_of(plan, 0), "0F0.0 0F0.1 0F1.0 0B0.1 0F1.1 0B0.0 0B1.1 0B1.0 0U1");
    EXPECT_EQ(row_of(plan, 1), "1F0.0 1F0.1 1B0.1 1F1.0 1B0.0 1F1.1 1B1.1 1B1.0 1U1");
    EXPECT_EQ(row_of(seq_plan(1, 1, 3), 0), "0F0.0 0F0.1 0F0.2 0B0.2 0B0.1 0B0.0 0U0");
}

TEST(Slices, AreWholeMicroBatchesOf1F1BIfThereIsOne) {
    for (const int p : {1, 2, 3, 8})
        for (const int m : {1, 2, 8, 11}) {
            Plan plan = seq_plan(p, m, 1);
            plan.schedule = "1f1b";
            EXPECT_EQ(print(plan), print(plan_of("1f1b", p, m))) << p << ' ' << m;
            EXPECT_EQ(hash_of(plan), hash_of(plan_of("1f1b", p, m))) << p << ' ' << m;
        }
}

// The rules of the paper, for every task: forwards ascend, backwards go through micro-batches in their order and
// through the slices of each from the last to the first, and device d runs p - d - 2 + k forwards before the first
// backward, and one more between the warm-up and it.
TEST(Slices, KeepTheRulesForAllShapes) {
    for (const int p : {1, 2, 4, 7})
        for (const int m : {1, 2, 5})
            for (const int k : {2, 3, 5}) {
                const Plan plan = seq_plan(p, m, k);
                for (int device = 0; device < p; ++device) {
                    std::vector<std::pair<int, int>> forwards, backwards;
                    int ahead = -1;
                    for (const Task& task : plan.order[device]) {
                        if (task.op == Op::Forward)
                            forwards.emplace_back(task.whole(), task.slice());
                        if (task.op != Op::Backward)
                            continue;
                        ahead = ahead < 0 ? static_cast<int>(forwards.size()) : ahead;
                        backwards.emplace_back(task.whole(), -task.slice());
                    }
                    EXPECT_EQ(ahead, std::min(p - device - 2 + k + 1, m * k));
                    EXPECT_EQ(std::ssize(forwards), m * k);
                    EXPECT_TRUE(std::is_sorted(forwards.begin(), forwards.end()));
                    EXPECT_EQ(std::ssize(backwards), m * k);
                    EXPECT_TRUE(std::is_sorted(backwards.begin(), backwards.end()));
                }
            }
}

// Whether `later` reads what `earlier` makes on the same stage: the oracle of the next test.
bool depends(const Task& later, const Task& earlier) {
    if (later.whole() != earlier.whole())
        return false;
    if (later.op == Op::Forward)
        return earlier.op == Op::Forward && later.slice() == earlier.slice() + 1;
    return earlier.op == Op::Backward ? later.slice() == earlier.slice() - 1 : later.slice() == earlier.slice();
}

// Without transfers, an error names the task itself and not the transfer that brings its tensor.
Plan without_transfers(Plan plan) {
    for (std::vector<Task>& order : plan.order)
        std::erase_if(order, [](const Task& task) { return is_transfer(task.op); });
    return plan;
}

TEST(Slices, AreRefusedInAWrongOrder) {
    for (const int k : {2, 3})
        for (const int p : {1, 3}) {
            const Plan plan = without_transfers(seq_plan(p, 3, k));
            EXPECT_NO_THROW(check(plan));
            for (int device = 0; device < p; ++device) {
                std::vector<int> computing;  // positions
                for (int position = 0; position < std::ssize(plan.order[device]); ++position)
                    if (is_compute(plan.order[device][position].op))
                        computing.push_back(position);
                for (std::size_t i = 1; i < computing.size(); ++i) {
                    Plan changed = plan;
                    Task &first = changed.order[device][computing[i - 1]],
                         &second = changed.order[device][computing[i]];
                    if (!depends(second, first))
                        continue;
                    const std::string needed = print(first), needs = print(second);
                    std::swap(first, second);
                    expect_says(refusal([&] { check(changed); }), {needs + " needs " + needed});
                }
            }
        }
}

TEST(Slices, AreRefusedIfOneIsMissing) {
    Plan plan = without_transfers(seq_plan(2, 2, 2));
    std::erase_if(plan.order[1], [](const Task& task) { return print(task) == "1B1.1"; });
    expect_says(refusal([&] { check(plan); }), {"0B1.1 needs 1I1.1, which no device runs"});
}

// A micro-batch stays on one pipeline, with all of its slices.
TEST(Slices, FollowTheirMicroBatchToAReplica) {
    Shape shape = sliced(4, 5, 3);
    shape.stages = 2;
    shape.copies = 2;
    const Plan plan = make_plan(schedule_named("seq1f1b"), shape);
    for (int device = 0; device < 4; ++device) {
        std::set<std::pair<int, int>> forwards;
        for (const Task& task : plan.order[device])
            if (task.op == Op::Forward) {
                EXPECT_EQ(task.whole() % 2, device % 2) << print(task);
                forwards.emplace(task.whole(), task.slice());
            }
        EXPECT_EQ(std::ssize(forwards), device % 2 == 0 ? 9 : 6);
    }
}

}  // namespace
}  // namespace pw

// Which part of a row's height a task has, and which stages are lighter.
#include "sim/simulate.h"
#include "tests/support/shapes.h"
#include "viz/picture.h"

#include <gtest/gtest.h>

#include <utility>

namespace pw {
namespace {

TEST(PictureOfPairs, TasksOfAPairShareTheHeight) {
    const Plan plan = plan_of("dualpipe-v", 2, 4, 2);
    Costs costs = uniform(4, 4, 4, 4);
    costs.pair_exposed = 0.5;
    const Trace overlapped = simulate(plan, costs);
    costs.pair_exposed = 1;
    const Trace in_turn = simulate(plan, costs);
    for (const Trace* trace : {&overlapped, &in_turn}) {
        const Picture picture = picture_of({{trace, ""}});
        for (const Row& row : picture.timelines[0].rows) {
            bool second = false;  // of a pair
            for (const Box& box : row.tasks) {
                const bool pair = std::exchange(second, box.event->task.with_next) || box.event->task.with_next;
                EXPECT_EQ(box.lanes, pair && trace == &overlapped ? 2 : 1) << print(box.event->task);
                EXPECT_LT(box.lane, box.lanes);
            }
        }
    }
}

// Even micro-batches enter at device 0, odd ones at device 3: each direction has one shade on all devices.
TEST(PictureOfPairs, DirectionsHaveTheirShades) {
    const Trace trace = simulate(plan_of("chimera", 4, 4), uniform(4, 1, 1, 1));
    const Picture picture = picture_of({{&trace, ""}});
    for (const Row& row : picture.timelines[0].rows)
        for (const Box& box : row.tasks)
            if (is_compute(box.event->task.op)) {
                EXPECT_EQ(box.chunk, box.event->task.microbatch % 2) << row.device << ' ' << print(box.event->task);
            }
    EXPECT_EQ(picture.timelines[0].rows[0].label, "device 0 · stage 0, 3");
    EXPECT_EQ(picture.timelines[0].rows[3].label, "device 3 · stage 3, 0");
    const Trace looped = simulate(plan_of("interleaved", 2, 4, 2), uniform(4, 1, 1, 1));
    EXPECT_EQ(picture_of({{&looped, ""}}).timelines[0].rows[1].label, "device 1 · stage 1, 3");
}

}  // namespace
}  // namespace pw

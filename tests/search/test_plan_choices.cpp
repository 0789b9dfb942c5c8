// What a choice of the search takes from the config, and which schedules it has.
#include "schedules/orders/schedule.h"
#include "search/plans/choice_list.h"
#include "tests/search/random_problem.h"
#include "tests/support/refusal.h"

#include <gtest/gtest.h>

namespace pw {
namespace {

TEST(PlanChoices, SchedulesOfSlicesAreRefused) {
    Random random(1);
    const Config config = random_config(random, "seq1f1b");
    expect_says(refusal([&] { (void)choices_of(config, 4); }), {"schedule seq1f1b orders slices of micro-batches"});
}

TEST(PlanChoices, TakeLinksAndWhatDevicesShareAlong) {
    Config config;
    config.cluster.devices.resize(3);
    config.cluster.links = {{2, 0, {7, 1e9}}, {0, 1, {8, 1e9}}};
    config.cluster.shared = {{{0, 2}, 2e9}, {{1}, 3e9}, {{0, 1}, 4e9}};
    PlanChoice choice;
    choice.schedule = "gpipe";
    choice.devices = {2, 0};
    const ClusterConfig chosen = setup_of(config, choice).cluster;
    EXPECT_EQ(chosen.links, (std::vector<ClusterConfig::PairLink>{{0, 1, {7, 1e9}}}));
    EXPECT_EQ(chosen.shared, (std::vector<ClusterConfig::Shared>{{{0, 1}, 2e9}, {{1}, 4e9}}));
}

}  // namespace
}  // namespace pw

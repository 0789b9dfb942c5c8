// What a choice of the search takes from the config, and which schedules it has.
#include "schedules/orders/schedule.h"
#include "search/plans/choice_list.h"
#include "tests/support/refusal.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace pw {
namespace {

// The pipeline's slices, or all numbers and lengths of the search.
TEST(PlanChoices, CutSequencesAsTheConfigSays) {
    Config config;
    config.cluster.devices.resize(2);
    config.search.schedules = {"1f1b", "seq1f1b"};
    config.search.stages = {2};
    config.pipeline.slices = 3;
    const auto tried = [&] {
        std::set<std::string> all;
        for (const PlanChoice& choice : choices_of(config, 4).all)
            all.insert(fmt::format("{} {} {}", choice.schedule, choice.slices, name_of(choice.slice_lengths)));
        return all;
    };
    EXPECT_EQ(tried(), (std::set<std::string>{"1f1b 1 even", "seq1f1b 3 even"}));
    config.search.slices = {2, 4};
    config.search.slice_lengths = {SliceLengths::Even, SliceLengths::Time};
    EXPECT_EQ(tried(), (std::set<std::string>{"1f1b 1 even", "seq1f1b 2 even", "seq1f1b 2 time", "seq1f1b 4 even",
                                              "seq1f1b 4 time"}));
    config.pipeline.slice_tokens = {3, 3, 2};
    expect_says(refusal([&] { (void)choices_of(config, 4); }),
                {"the tokens of each slice are listed", "search.slices"});
}

TEST(PlanChoices, CutNoSequencesWhereAnythingElseForbidsSlices) {
    Config config;
    config.cluster.devices.resize(2);
    config.search.schedules = {"1f1b", "seq1f1b"};
    config.search.stages = {2};
    config.search.recompute = config.search.offload = SearchConfig::Recompute::Auto;
    config.cluster.host_link = Link{0, 1e9};
    for (const PlanChoice& choice : choices_of(config, 4).all)
        EXPECT_TRUE(choice.slices == 1 || (choice.recomputed == 0 && choice.offloaded == 0)) << print(choice);
    config.search.recompute = SearchConfig::Recompute::All;
    expect_says(refusal([&] { (void)choices_of(config, 4); }), {"seq1f1b cuts sequences", "recompute: auto"});
    config.search.recompute = SearchConfig::Recompute::None;
    config.search.offload = SearchConfig::Recompute::All;
    expect_says(refusal([&] { (void)choices_of(config, 4); }), {"seq1f1b cuts sequences", "offload: auto"});
    config.search.offload = SearchConfig::Recompute::None;
    config.cluster.makes.resize(2);
    expect_says(refusal([&] { (void)choices_of(config, 4); }), {"devices of several makes", "one make"});
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

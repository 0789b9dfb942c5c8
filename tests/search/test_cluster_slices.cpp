// Searches on a cluster that cut sequences into slices, against a loop over every config of a small space.
#include "job/job.h"
#include "report/plan_search.h"
#include "report/report.h"
#include "search/clusters/cluster_search.h"
#include "tests/search/cluster_spaces.h"
#include "tests/support/config_text.h"
#include "tests/support/refusal.h"
#include "tests/support/thoroughness.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

namespace pw {
namespace {

// Slices of a number that does not divide the 4096 tokens exist only with equal times.
constexpr const char* kSliced = R"(
workload: {model: llama-3.2-1b, sequence_length: 4096}
cluster: {hosts: 2, devices_per_host: 4, device: h100-sxm-80, memory: 12 GB, between: {link: ndr400, adapters: 4}}
training: {precision: bf16, optimizer: adamw}
search: {mini_batch: 16, micro_batch_sizes: [1, 2], chunks: [1], schedules: [1f1b, seq1f1b], slices: [2, 3, 8],
         zero: [0, 1, 3], recompute: [none, full], context: [1, 2], unequal_blocks: false}
)";

Space space_of_slices() {
    Space space{kSliced, 8,      16,        {1, 2, 4},        {1, 2, 4, 8}, {1, 2},
                {1},     {1, 2}, {0, 1, 3}, {"none", "full"}, {{"1f1b", 1}}};
    for (const int slices : {2, 3, 8})
        for (const char* lengths : {"even", "time"})
            space.schedules.push_back({"seq1f1b", 1, slices, lengths});
    return space;
}

TEST(ClusterSearch, FindsTheBestOfEveryConfigWithSlices) {
    OneIn some(2);
    for (const char* memory : {"12 GB", "24 GB"}) {
        if (!some.picks())
            continue;
        SCOPED_TRACE(memory);
        Space space = space_of_slices();
        space.base.replace(space.base.find("12 GB"), 5, memory);
        expect_the_same(space);
    }
}

// Every division of 16 blocks among two stages, and of the same blocks for slices, against what the search bounds and
// finds.
TEST(ClusterSearch, BoundsEveryDivisionOfSlices) {
    for (const char* memory : {"inf", "14 GB"}) {
        const std::vector<std::string> set = {"search.tensor=[2]",
                                              "search.pipeline=[2]",
                                              "search.context=[1]",
                                              "search.zero=[1]",
                                              "search.recompute=[none]",
                                              "search.schedules=[seq1f1b]",
                                              "search.slices=[3]",
                                              "search.unequal_blocks=true",
                                              "search.micro_batch_sizes=[2]",
                                              fmt::format("cluster.memory={}", memory)};
        const SearchResult result = search_cluster(load(kSliced, set));
        Ns best = std::numeric_limits<Ns>::max();
        for (int first = 0; first <= 16; ++first) {
            Notices notices;
            const std::vector<std::string> plan = {
                "parallel={tensor: 2, pipeline: 2, zero: 1}", fmt::format("cluster.memory={}", memory),
                fmt::format("pipeline={{schedule: seq1f1b, slices: 3, slice_lengths: time, mini_batch: 16, "
                            "micro_batch_size: 2, split: [{}, {}]}}",
                            first, 16 - first)};
            const Report report = predicted_report(make_job(load(kSliced, plan), notices), false);
            if (fits(report))
                best = std::min(best, report.metrics.step_time);
        }
        ASSERT_NE(result.best(), nullptr) << memory;
        EXPECT_LE(result.lower_bound, best) << memory;
        EXPECT_EQ(result.best()->step_time, best) << memory;
        EXPECT_EQ(result.best()->choice.slices, 3);
    }
}

TEST(ClusterSearch, WritesAConfigWithSlices) {
    const PlanSearch plans =
        search_best_plan(load(kSliced, {"search.schedules=[seq1f1b]", "search.pipeline=[2]", "search.slices=[3]"}));
    ASSERT_TRUE(plans.best);
    const FoundPlan& best = *plans.result.best();
    EXPECT_TRUE(contains(print(best.choice), ", 3 slices of equal time")) << print(best.choice);
    Notices notices;
    const Job written = make_job(load(best_config_yaml(plans, "best.yaml")), notices);
    EXPECT_EQ(written.plan.shape.slices, 3);
    EXPECT_EQ(predicted_report(written, false).metrics.step_time, best.step_time);
    const Json json = to_json(plans);
    EXPECT_EQ(json["best"]["slices"], 3);
    EXPECT_EQ(json["best"]["slice_lengths"], "time");
}

TEST(ClusterSearch, SaysWhichSlicesItCannotTry) {
    expect_says(refusal([] {
                    (void)search_cluster(load(
                        kSliced, {"search.schedules=[seq1f1b]", "search.slices=[3]", "search.slice_lengths=[even]"}));
                }),
                {"search.slices", "no number of slices cuts the 4096 tokens", "slice_lengths: [time]"});
    expect_says(refusal([] { (void)search_cluster(load(kSliced, {"pipeline.slices=4"})); }),
                {"pipeline.slices", "chooses how seq1f1b cuts sequences", "search.slices"});
}

}  // namespace
}  // namespace pw

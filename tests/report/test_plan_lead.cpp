// How sure a search is of its best plan, against counts of its rows and simulations without overlap.
#include "report/plan_lead.h"

#include "job/build.h"
#include "report/predict.h"
#include "report/report.h"
#include "tests/support/config_text.h"
#include "tests/support/refusal.h"
#include "workloads/transformers/error_bands.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>

namespace pw {
namespace {

constexpr const char* kTwoHosts = R"(
workload: {model: llama-3-8b, sequence_length: 8192}
cluster: {hosts: 2, devices_per_host: 8, device: h100-sxm-80, between: {link: ndr400, adapters: 8}}
training: {precision: bf16, optimizer: adamw}
search: {mini_batch: 64, zero: [1], context: [1], schedules: [1f1b, interleaved]}
)";
constexpr std::size_t kAll = 1000;

int degrees_above_one(const Parallel& degrees) {
    const int values[] = {degrees.tensor, degrees.pipeline,      degrees.context, degrees.expert,
                          degrees.data,   degrees.expert_tensor, degrees.zero + 1};
    return static_cast<int>(std::ranges::count_if(values, [](int value) { return value > 1; }));
}

Ns predicted_step(const struct Setup& setup) {
    Notices notices;
    return predict_numbers(make_job(setup, notices)).metrics.step_time;
}

TEST(PlanLeads, ListTheRowsWithinTheBand) {
    const PlanSearch search = search_best_plan(load(kTwoHosts));
    const PlanLead lead = lead_of(search, kAll);
    ASSERT_GT(lead.rows.size(), 3u);
    const auto best = static_cast<double>(lead.rows[0]->step_time);
    int fewest = degrees_above_one(lead.rows[0]->choice.degrees);
    for (std::size_t row = 1; row < lead.rows.size(); ++row) {
        const bool is_near = static_cast<double>(lead.rows[row]->step_time) <= difference_band().factor * best;
        EXPECT_EQ(std::ranges::count(lead.alike, row), is_near ? 1 : 0) << row;
        if (is_near)
            fewest = std::min(fewest, degrees_above_one(lead.rows[row]->choice.degrees));
    }
    EXPECT_FALSE(lead.alike.empty());
    EXPECT_EQ(degrees_above_one(lead.rows[lead.simplest]->choice.degrees), fewest);
    for (std::size_t row = 0; row < lead.simplest; ++row)  // the fastest of the simplest
        EXPECT_TRUE(degrees_above_one(lead.rows[row]->choice.degrees) > fewest ||
                    (row > 0 && std::ranges::count(lead.alike, row) == 0));
    EXPECT_TRUE(contains(to_text(search, 10), "cannot be told apart from plan 1"));
    EXPECT_FALSE(contains(to_text(search, 1), "told apart")) << "a table of one row compares nothing";
}

// Where neither weights nor contexts are gathered, nothing is hidden if the config overlaps nothing.
TEST(PlanLeads, TakeAsLongAsWithoutOverlap) {
    const PlanSearch search = search_best_plan(load(kTwoHosts));
    ASSERT_EQ(search.unhidden.size(), kUnhiddenPlans);
    for (std::size_t row = 0; row < search.unhidden.size(); ++row) {
        auto setup = job_in_row(search, row + 1).setup;
        const Ns hidden = predicted_step(setup);
        setup.parallel.degrees.overlap = Overlap{};
        EXPECT_EQ(search.unhidden[row], predicted_step(setup)) << row;
        EXPECT_GE(search.unhidden[row], hidden);
    }
}

// Gathers of ZeRO-3 are hidden whatever `overlap` says.
TEST(PlanLeads, ExposeTheGathersOfWeights) {
    const PlanSearch search = search_best_plan(load(kTwoHosts, {"search.zero=[3]"}));
    for (std::size_t row = 0; row < search.unhidden.size(); ++row)
        EXPECT_GT(search.unhidden[row], lead_of(search, kAll).rows[row]->step_time);
}

TEST(PlanLeads, SayWhatLeavesNoMemory) {
    const PlanSearch wide = search_best_plan(load(kTwoHosts));
    const PlanLead lead = lead_of(wide, kAll);
    const Bytes reserved = lead.rows[0]->most_reserved();
    EXPECT_NEAR(lead.memory, static_cast<double>(reserved) / static_cast<double>(wide.problem.setup.parallel.memory),
                1e-12);
    // 98 % of the memory are needed: the best plan stays the best, and its lead rests on 2 %.
    const auto memory = static_cast<std::int64_t>(static_cast<double>(reserved) / 0.98);
    const PlanSearch narrow = search_best_plan(load(kTwoHosts, {fmt::format("cluster.memory={} B", memory)}));
    EXPECT_EQ(narrow.result.best()->choice, wide.result.best()->choice);
    EXPECT_NEAR(lead_of(narrow, kAll).memory, 0.98, 1e-6);
    EXPECT_TRUE(contains(to_text(narrow, 10), "plan 1 leaves 2.0 % of a device's memory"));
    const Json json = to_json(narrow)["best"]["lead"];
    EXPECT_NEAR(json["memory_share"].get<double>(), 0.98, 1e-6);
}

}  // namespace
}  // namespace pw

// The choices that a search for a cluster tries.
#include "search/clusters/choice_list.h"

#include "job/job.h"
#include "report/plan_search.h"
#include "report/report.h"
#include "search/clusters/cluster_search.h"
#include "tests/search/small_cluster.h"
#include "tests/support/config_text.h"
#include "tests/support/refusal.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace pw {
namespace {

// A list with `pipeline` 1 and several chunks has schedules of several stages on one device.
TEST(ChoiceList, TriesSeveralStagesOnASingleDevice) {
    const Config config = load(kSmall, {"search.tensor=[1, 8]", "search.pipeline=[1]", "search.context=[1]",
                                        "search.recompute=[none]", "search.micro_batch_sizes=[1]",
                                        "search.chunks=[1, 2]", "search.schedules=[1f1b, v-half, interleaved]"});
    std::set<std::tuple<std::string, int, int, int>> tried;
    for (const PlanChoice& choice : cluster_choices(config))
        tried.emplace(choice.schedule, choice.chunks(), choice.degrees.tensor, choice.degrees.zero);
    std::set<std::tuple<std::string, int, int, int>> expected;
    for (const auto& [schedule, chunks] : {std::pair{"1f1b", 1}, std::pair{"v-half", 2}, std::pair{"interleaved", 2}})
        for (const int tensor : {1, 8})
            for (const int zero : {0, 1, 3})  // with one replica, too
                expected.emplace(schedule, chunks, tensor, zero);
    EXPECT_EQ(tried, expected);
}

Job job_of(const std::string& text) {
    Notices notices;
    return make_job(load(text), notices);
}

// Items that are lists have a value for each device of the pipeline. The same lists in `parallel` give the same plans.
TEST(ChoiceList, TriesDegreesByStage) {
    constexpr const char* kSixDevices = R"(
workload: {model: llama-3.2-1b, sequence_length: 4096}
cluster: {devices: 6, device: h100-sxm-80}
training: {precision: bf16, optimizer: adamw}
)";
    const Config config = load(
        std::string(kSixDevices) +
        "search: {mini_batch: 8, pipeline: [2, 3], tensor: [2, [4, 2], [2, 4]], context: [1], chunks: [1],\n"
        "         schedules: [1f1b, chimera], zero: [0], recompute: [none, [full, none]], micro_batch_sizes: [1]}\n");
    std::set<std::string> tried, expected = {"3 2 none"};
    for (const char* tensor : {"4|2", "2|4"})
        for (const char* recompute : {"none", "full|none"})
            expected.insert(fmt::format("2 {} {}", tensor, recompute));
    const SearchResult result = search_cluster(config);
    for (const PlanChoice& choice : cluster_choices(config)) {
        EXPECT_TRUE(choice.of_stages.empty() || choice.schedule == "1f1b") << "chimera has each stage on two devices";
        tried.insert(fmt::format("{} {} {}", choice.degrees.pipeline, print_degree(choice, Degree::Tensor),
                                 print_degree(choice, Degree::Recompute)));
    }
    EXPECT_EQ(tried, expected);
    Ns best = std::numeric_limits<Ns>::max();
    for (const auto& [tensor, recompute, choice] :
         {std::tuple{"[4, 2]", "none", "4|2"}, std::tuple{"[2, 4]", "none", "2|4"},
          std::tuple{"[4, 2]", "[full, none]", "4|2"}, std::tuple{"[2, 4]", "[full, none]", "2|4"}})
        for (int blocks = 1; blocks < 16; ++blocks) {
            const Job job = job_of(
                fmt::format("{}parallel: {{pipeline: 2, tensor: {}, recompute: {}}}\npipeline: {{schedule: 1f1b, "
                            "micro_batches: 8, split: [{}, {}]}}\n",
                            kSixDevices, tensor, recompute, blocks, 16 - blocks));
            best = std::min(best, predicted_report(job, false).metrics.step_time);
        }
    ASSERT_NE(result.best(), nullptr);
    EXPECT_LE(result.best()->step_time, best);
    EXPECT_LE(result.lower_bound, best);
    const PlanSearch plans = search_best_plan(config);
    EXPECT_EQ(predicted_report(job_of(best_config_yaml(plans, "")), false).metrics.step_time,
              plans.result.best()->step_time);
    expect_says(refusal([&] { search_cluster(load(config.yaml, {"search.tensor=[2, [1, 2, 4, 2]]"})); }),
                {"'search.tensor[1]' has 4 values", "no pipeline of this search has 4 devices", "2, 3"});
    expect_says(refusal([&] { load(config.yaml, {"search.tensor=[[2]]"}); }), {"search.tensor[0]", "without brackets"});
    expect_says(refusal([&] { load(config.yaml, {"search.tensor=[2, [2, 2]]"}); }),
                {"'search.tensor[1]' has no values that differ", "without brackets"});
    expect_says(refusal([&] { load(config.yaml, {"search.zero=[[]]"}); }), {"'search.zero[0]' has no values"});
}

TEST(ChoiceList, RefusesListsThatLeaveNothing) {
    const auto refused = [](const std::string& set) { return refusal([&] { search_cluster(load(kSmall, {set})); }); };
    expect_says(refused("search.tensor=[3]"), {"search.tensor", "divides the 32 heads of llama-3.2-1b"});
    expect_says(refused("search.context=[3]"), {"search.context", "divides the 4096 tokens"});
    expect_says(refused("search.pipeline=[3]"), {"search", "divides the 8 devices"});
    expect_says(refused("search.expert=[2]"), {"search.expert", "llama-3.2-1b has no experts"});
    expect_says(refused("search.expert_tensor=[2]"), {"search.expert_tensor", "llama-3.2-1b has no experts"});
    const auto with_experts = [](const std::string& set) {
        return refusal([&] { search_cluster(load(kSmall, {"workload.model=qwen3-30b-a3b", set})); });
    };
    expect_says(with_experts("search.expert_tensor=[5]"),
                {"search.expert_tensor", "divides the width 768 of an expert of qwen3-30b-a3b"});
    expect_says(with_experts("search={mini_batch: 8, expert: [8], expert_tensor: [1000000]}"),
                {"divides the width 768 of an expert"});
    expect_says(with_experts("search={mini_batch: 8, expert: [8], expert_tensor: [2]}"),
                {"expert_tensor: [2]", "with expert, the devices of a stage"});
    expect_says(refused("search.chunks=[32]"), {"search.chunks", "the 16 blocks do not fill them"});
    expect_says(refused("search={mini_batch: 7, micro_batch_sizes: [2]}"),
                {"{mini_batch: 7", "7 sequences cannot be divided"});
    expect_says(refused("search.schedules=[pipedream]"), {"search.schedules", "updates without a flush"});
    expect_says(refused("search.schedules=[forward-only]"), {"search.schedules", "has no backward passes"});
    expect_says(refused("search.zero=[4]"), {"search.zero", "3"});
    expect_says(refused("search.tensor=[2, 2]"), {"'2' is listed twice in 'search.tensor'"});
    expect_says(refused("search.recompute=[none, all]"), {"search.recompute[1]", "selective"});
}

TEST(ChoiceList, TriesOnlyWhatIsListed) {
    const Config config = load(kSmall, {"search.tensor=[2]", "search.pipeline=[2, 4]", "search.zero=[1]",
                                        "search.recompute=full", "search.context=[1]"});
    for (const PlanChoice& choice : cluster_choices(config)) {
        EXPECT_EQ(choice.degrees.tensor, 2);
        EXPECT_EQ(choice.degrees.data, 4 / choice.degrees.pipeline);
        EXPECT_EQ(choice.degrees.recompute, set_of(BlockModule::Block));
        EXPECT_TRUE(choice.degrees.sequence);
        EXPECT_EQ(setup_of(config, choice).pipeline.micro_batches, 16 / choice.degrees.data / choice.micro_batch_size);
    }
    EXPECT_EQ(load(config.yaml).search.degrees[static_cast<std::size_t>(Degree::Recompute)],
              (std::vector<std::vector<int>>{{static_cast<int>(set_of(BlockModule::Block))}}));
    EXPECT_EQ(load(config.yaml).search.degrees[static_cast<std::size_t>(Degree::Pipeline)],
              (std::vector<std::vector<int>>{{2}, {4}}));
    // pipeline.mini_batch is of all replicas, and the search's default.
    EXPECT_EQ(load("workload: {model: llama-3.2-1b, sequence_length: 4096}\n"
                   "cluster: {hosts: 2, devices_per_host: 4, device: h100-sxm-80, between: {link: ndr400}}\n"
                   "training: {precision: bf16}\npipeline: {mini_batch: 32}\n")
                  .search.mini_batch,
              32);
}

}  // namespace
}  // namespace pw

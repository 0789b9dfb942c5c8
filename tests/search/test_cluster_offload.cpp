// The search for plans of a transformer that offload stages, against a loop over every config of small random spaces.
#include "job/job.h"
#include "report/plan_search.h"
#include "report/report.h"
#include "report/training_arguments.h"
#include "search/clusters/choice_bounds.h"
#include "search/clusters/choice_list.h"
#include "search/clusters/cluster_search.h"
#include "tests/search/small_cluster.h"
#include "tests/support/config_text.h"
#include "tests/support/dice.h"
#include "tests/support/refusal.h"
#include "tests/support/thoroughness.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pw {
namespace {

// The values of a search, and of the loop.
struct OffloadSpace {
    std::vector<int> tensor, pipeline, chunks, sizes, ahead;
    std::vector<std::string> schedules;
    std::string offload;           // all, auto
    std::vector<std::string> set;  // of both

    std::vector<std::string> search() const {
        std::vector<std::string> all = set;
        for (const auto& [key, values] : {std::pair{"tensor", tensor},
                                          {"pipeline", pipeline},
                                          {"chunks", chunks},
                                          {"micro_batch_sizes", sizes},
                                          {"offload_ahead", ahead}})
            all.push_back(fmt::format("search.{}=[{}]", key, fmt::join(values, ", ")));
        all.push_back(fmt::format("search.schedules=[{}]", fmt::join(schedules, ", ")));
        all.push_back("search.offload=" + offload);
        all.insert(all.end(), {"search.context=[1]", "search.zero=[1]", "search.recompute=[none]"});
        return all;
    }
};

class OffloadSpaces {
public:
    explicit OffloadSpaces(unsigned seed) : random_(seed) {}

    OffloadSpace draw() {
        OffloadSpace space;
        space.tensor = one_of<std::vector<int>>({{1}, {2}, {1, 2}});
        space.pipeline = space.tensor.back() == 1 ? one_of<std::vector<int>>({{4}, {2, 4}, {8}})
                                                  : one_of<std::vector<int>>({{4}, {2, 4}});
        space.chunks = one_of<std::vector<int>>({{1}, {1, 2}});
        space.sizes = one_of<std::vector<int>>({{1}, {1, 2}});
        space.ahead = one_of<std::vector<int>>({{1}, {2}, {1, 3}});
        space.schedules = one_of<std::vector<std::string>>({{"1f1b", "interleaved"},
                                                            {"gpipe", "zb-h1"},
                                                            {"bfs", "1f1b"},
                                                            {"zb-v", "1f1b"},
                                                            {"dualpipe-v", "chimera"}});
        space.offload = one_in(2) ? "all" : "auto";
        space.set = {fmt::format("cluster.memory={} GB", pick(random_, 6, 14)),
                     fmt::format("cluster.host_link={{bandwidth: {} GB/s, latency: {} us}}", 1 << pick(random_, 1, 6),
                                 pick(random_, 0, 50)),
                     "search.mini_batch=" + std::to_string(one_of<int>({8, 16, 32}))};
        if (one_in(2))
            space.set.emplace_back("transfer.copies=both ways");
        if (one_in(3))
            space.set.emplace_back("pipeline.offload_share=0.6");
        if (one_in(2))
            space.set.emplace_back("pipeline.offload_states=all");
        return space;
    }

private:
    bool one_in(int count) { return pick(random_, 1, count) == 1; }
    template <class Value>
    Value one_of(const std::vector<Value>& values) {
        return values[static_cast<std::size_t>(pick(random_, 0, static_cast<int>(values.size()) - 1))];
    }
    Random random_;
};

std::vector<int> first_numbers_of(int count) {
    std::vector<int> numbers(static_cast<std::size_t>(count));
    std::iota(numbers.begin(), numbers.end(), 0);
    return numbers;
}

struct OffloadedPlan {
    std::string name;
    int offloaded = 0;
    Ns step_time = 0;
    std::vector<Bytes> reserved;
    bool fits = false;
};

std::string name_of_ways(const std::string& schedule, int tensor, int pipeline, int stages, int size, int offloaded,
                         int ahead) {
    return fmt::format("{} {} {} {} {} {} {}", schedule, tensor, pipeline, stages, size, offloaded, ahead);
}

std::string name_of_ways(const PlanChoice& choice) {
    return name_of_ways(choice.schedule, choice.degrees.tensor, choice.degrees.pipeline, choice.stages,
                        choice.micro_batch_size, choice.offloaded, choice.offload_ahead);
}

// Predicts a config; nothing if it is a mistake.
std::optional<OffloadedPlan> predicted_offload(const Config& base, const OffloadSpace& space,
                                               const std::string& schedule, int tensor, int pipeline, int chunks,
                                               int size, int offloaded, int ahead) {
    std::vector<std::string> set = space.set;
    const int stages = pipeline * chunks;
    set.push_back(fmt::format("parallel={{tensor: {}, pipeline: {}, zero: 1}}", tensor, pipeline));
    for (const auto& [key, value] : std::vector<std::pair<std::string, std::string>>{
             {"schedule", schedule},
             {"stages", std::to_string(stages)},
             {"mini_batch", std::to_string(base.search.mini_batch)},
             {"micro_batch_size", std::to_string(size)},
             {"offload", fmt::format("[{}]", fmt::join(first_numbers_of(offloaded), ", "))},
             {"offload_ahead", std::to_string(ahead)}})
        if (key != "offload" || offloaded > 0)
            set.push_back(fmt::format("pipeline.{}={}", key, value));
    try {
        Notices notices;
        const Report report = predicted_report(make_job(load(kSmall, set), notices), false);
        OffloadedPlan plan{name_of_ways(schedule, tensor, pipeline, stages, size, offloaded, ahead),
                           offloaded,
                           report.metrics.step_time,
                           {},
                           fits(report)};
        for (const DeviceMetrics& device : report.metrics.devices)
            plan.reserved.push_back(device.needed_memory());
        return plan;
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::BadInput) << error.what();
        return std::nullopt;
    }
}

std::vector<OffloadedPlan> every_offloaded_plan(const Config& base, const OffloadSpace& space) {
    std::vector<OffloadedPlan> all;
    for (const std::string& schedule : space.schedules)
        for (const int tensor : space.tensor)
            for (const int pipeline : space.pipeline)
                for (const int chunks : space.chunks)
                    for (const int size : space.sizes)
                        for (int k = 0; k <= pipeline * chunks; k += space.offload == "all" ? pipeline * chunks : 1)
                            for (const int ahead : k == 0 ? std::vector{1} : space.ahead)
                                if (tensor * pipeline <= 8)
                                    if (const auto plan = predicted_offload(base, space, schedule, tensor, pipeline,
                                                                            chunks, size, k, ahead))
                                        all.push_back(*plan);
    return all;
}

// The bounds of every choice, against the loop's plans.
void expect_offload_bounds(const Config& config, const std::map<std::string, OffloadedPlan>& plans,
                           std::map<std::string, int>& seen) {
    const std::vector<PlanChoice> choices = cluster_choices(config);
    const BoundsOfChoices bounds =
        bounds_of(config, choices, [](const std::string&, std::size_t count, const auto& work) {
            for (std::size_t k = 0; k < count; ++k)
                work(k);
        });
    for (std::size_t k = 0; k < choices.size(); ++k) {
        const auto plan = plans.find(name_of_ways(choices[k]));
        if (plan == plans.end() || !bounds.of[k].is_defined)
            continue;
        const Shortage& shortage = bounds.of[k].shortage;
        const Bytes needed = plan->second.reserved[static_cast<std::size_t>(shortage.stage)];
        EXPECT_LE(bounds.of[k].step_time, plan->second.step_time) << print(choices[k]);
        EXPECT_LE(shortage.needs, needed) << print(choices[k]);
        if (choices[k].offloaded == 0)
            continue;
        ++seen["offloaded"];
        seen["sharp memory"] += 10 * shortage.needs > 9 * needed;
        seen["sharp step"] += 10 * bounds.of[k].step_time > 8 * plan->second.step_time;
    }
}

TEST(ClusterOffload, FindsTheBestOfEveryConfig) {
    OffloadSpaces spaces(7);
    std::map<std::string, int> seen;
    for (int round = 0; round < rounds(12); ++round) {
        const OffloadSpace space = spaces.draw();
        const Config config = load(kSmall, space.search());
        SCOPED_TRACE(fmt::format("round {}: {} {}", round, fmt::join(space.search(), " "), space.offload));
        const SearchResult result = search_cluster(config);
        std::map<std::string, OffloadedPlan> plans;
        Ns best = std::numeric_limits<Ns>::max();
        for (const OffloadedPlan& plan : every_offloaded_plan(config, space)) {
            plans[plan.name] = plan;
            if (plan.fits && (plan.offloaded > 0 || space.offload == "auto"))
                best = std::min(best, plan.step_time);
        }
        expect_offload_bounds(config, plans, seen);
        ASSERT_EQ(result.best() != nullptr, best != std::numeric_limits<Ns>::max());
        seen["none fits"] += result.best() == nullptr;
        if (result.best() == nullptr)
            continue;
        EXPECT_EQ(result.best()->step_time, best);
        EXPECT_EQ(result.lower_bound, best);
        seen["best offloads"] += result.best()->choice.offloaded > 0;
        for (const FoundPlan& plan : result.plans) {
            const OffloadedPlan& same = plans.at(name_of_ways(plan.choice));
            EXPECT_EQ(plan.step_time, same.step_time) << print(plan.choice);
            EXPECT_EQ(plan.reserved, same.reserved) << print(plan.choice);
        }
    }
    EXPECT_GT(seen["best offloads"], 2);
    EXPECT_GT(seen["offloaded"], 100);
    EXPECT_GT(10 * seen["sharp memory"], 5 * seen["offloaded"]);
    EXPECT_GT(10 * seen["sharp step"], 5 * seen["offloaded"]);
    for (const auto& [what, count] : seen)
        RecordProperty(what, count);
}

// Little memory, so that plans of deep pipelines offload.
const std::vector<std::string> kTight = {"cluster.memory=11 GB",    "cluster.host_link={bandwidth: 50 GB/s}",
                                         "search.offload=auto",     "search.tensor=[2]",
                                         "search.pipeline=[4]",     "search.schedules=[gpipe]",
                                         "search.recompute=[none]", "search.zero=[1]",
                                         "search.context=[1]",      "search.chunks=[1]"};

// Every division of 16 blocks among two stages, with each number of offloaded stages.
TEST(ClusterOffload, BoundsEveryDivision) {
    const std::vector<std::string> both = {"cluster.memory=11 GB", "cluster.host_link={bandwidth: 50 GB/s}"};
    std::vector<std::string> set = kTight;
    set.insert(set.end(), both.begin(), both.end());
    set.insert(set.end(), {"search.pipeline=[2]", "search.tensor=[2]", "search.unequal_blocks=true"});
    const SearchResult result = search_cluster(load(kSmall, set));
    Ns best = std::numeric_limits<Ns>::max();
    for (int first = 0; first <= 16; ++first)
        for (int offloaded = 0; offloaded <= 2; ++offloaded)
            for (const int size : {1, 2}) {
                Notices notices;
                std::vector<std::string> plan = both;
                plan.emplace_back("parallel={tensor: 2, pipeline: 2, zero: 1}");
                plan.push_back(fmt::format(
                    "pipeline={{schedule: gpipe, mini_batch: 16, micro_batch_size: {}, split: [{}, {}]{}}}", size,
                    first, 16 - first,
                    offloaded == 0 ? ""
                                   : fmt::format(", offload: [{}]", fmt::join(first_numbers_of(offloaded), ", "))));
                const Report report = predicted_report(make_job(load(kSmall, plan), notices), false);
                if (fits(report))
                    best = std::min(best, report.metrics.step_time);
            }
    ASSERT_NE(best, std::numeric_limits<Ns>::max());
    ASSERT_NE(result.best(), nullptr);
    EXPECT_LE(result.lower_bound, best);
    EXPECT_EQ(result.best()->step_time, best);
    EXPECT_GT(result.best()->choice.offloaded, 0);
}

TEST(ClusterOffload, WritesAConfigWithTheSamePrediction) {
    const PlanSearch plans = search_best_plan(load(kSmall, kTight));
    ASSERT_TRUE(plans.best);
    const FoundPlan& best = *plans.result.best();
    ASSERT_GT(best.choice.offloaded, 0);
    Notices notices;
    const Report report = predicted_report(make_job(load(best_config_yaml(plans, "best.yaml")), notices), false);
    EXPECT_EQ(report.metrics.step_time, best.step_time);
    EXPECT_EQ(largest_reserved(report), best.most_reserved());
    const Json json = to_json(plans);
    EXPECT_EQ(json["best"]["offloaded"], best.choice.offloaded);
    EXPECT_EQ(json["best"]["stages"][0]["offload"], true);
    EXPECT_NE(print(best.choice).find(fmt::format("{} of the stages offloaded", best.choice.offloaded)),
              std::string::npos);
    EXPECT_TRUE(json["best"]["runs_on"].empty());
}

// A single stage of 1f1b runs each backward right after its forward.
TEST(ClusterOffload, NamesNoStagesWhereNothingLeaves) {
    std::vector<std::string> set = kTight;
    set.insert(set.end(),
               {"cluster.memory=80 GB", "search.offload=all", "search.pipeline=[1]", "search.schedules=[1f1b]"});
    const SearchResult result = search_cluster(load(kSmall, set));
    ASSERT_NE(result.best(), nullptr);
    EXPECT_EQ(result.best()->choice.offloaded, 0);
}

TEST(ClusterOffload, IsRefusedWithoutALink) {
    const std::string text = std::string(kSmall) + "pipeline: {offload: all}\n";
    expect_says(refusal([&] { search_cluster(load(text, {"cluster.host_link={bandwidth: 1 GB/s}"})); }),
                {"write search.offload"});
    expect_says(refusal([&] { search_cluster(load(kSmall, {"search.offload=all"})); }), {"write cluster.host_link"});
}

}  // namespace
}  // namespace pw

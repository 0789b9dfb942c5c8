// Searches of schedules that order tasks by costs: their bounds against every split in every schedule's order with the
// same placement, and their plans as simulated.
#include "job/build.h"
#include "job/plan.h"
#include "schedules/orders/schedule.h"
#include "schedules/plan/gradient_sums.h"
#include "search/plans/choice_list.h"
#include "search/plans/makespan.h"
#include "search/plans/sized_model.h"
#include "search/plans/trial.h"
#include "sim/metrics.h"
#include "tests/search/random_problem.h"
#include "tests/support/every_split.h"
#include "tests/support/thoroughness.h"
#include "workloads/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

namespace pw {
namespace {

// Returns the metrics of a split in the order of a schedule; nothing if that is not defined for the config.
std::optional<Metrics> metrics_in(const SearchProblem& problem, Setup config, const std::string& schedule,
                                  StageSplit split) {
    config.pipeline.schedule = schedule;
    const Profile profile = problem.profile_at(config.pipeline.micro_batch_size);
    const StageLinks links = links_of(problem.model.layers, split);
    group_readers(split, config.run);
    const auto costs_in = [&](const Shape& shape) {
        Costs costs = costs_of(problem.model, split, profile, config.pipeline.micro_batch_size);
        costs.lengths = config.pipeline.micro_batch_lengths;
        costs.cluster = cluster_of(config, profile);
        add_settings(costs, config);
        add_gradient_sums(costs, shape, {}, config.sums);
        return costs;
    };
    try {
        const Plan plan = proven_plan(config, links, config.training.steps, costs_in).plan;
        return metrics_of(simulate(plan, costs_in(plan.shape), problem.mode));
    } catch (const Error&) {
        return std::nullopt;
    }
}

bool fits(const Metrics& metrics, const Setup& config) {
    for (std::size_t device = 0; device < metrics.devices.size(); ++device)
        if (*metrics.devices[device].reserved_memory > config.cluster.devices[device].memory)
            return false;
    return true;
}

std::vector<std::string> placed_as(const std::string& name, int stages, int devices) {
    const auto place = [&](const Schedule& schedule) {
        Shape shape;
        shape.devices = devices;
        shape.stages = stages;
        const bool placed = place_stages(schedule, shape);
        std::vector<std::vector<int>> holders;
        for (int stage = 0; placed && stage < stages; ++stage)
            holders.push_back(shape.devices_of(stage));
        return holders;
    };
    std::vector<std::string> names;
    for (const Schedule& schedule : schedules())
        if (schedule.trains && !schedule.asynchronous() && !schedule.cuts_sequences() &&
            place(schedule) == place(schedule_named(name)))
            names.emplace_back(schedule.name);
    return names;
}

class OrdersByCosts : public testing::TestWithParam<std::string> {};

TEST_P(OrdersByCosts, AreFoundWithinBoundsOfAnyOrder) {
    Random random(GetParam() == "auto" ? 26u : 27u);
    int compared = 0;
    for (int round = 0; round < (soaks() ? 60 : GetParam() == "auto-bidirectional" ? 6 : 2); ++round) {
        const Model model = random_model(random);
        const Profile profile = random_profile(model, random);
        Config config = random_config(random, GetParam());
        if (round % 2 == 1)
            config.search.recompute = SearchConfig::Recompute::Auto;
        config.search.recompute_layers.clear();
        config.pipeline.options.effort = soaks() ? 1 : 0.2;
        const SearchProblem problem{config, model, [&profile](int) { return profile; }, {}};
        SearchResult result;
        try {
            result = search_plans(problem, {.tasks = 2'000'000});
        } catch (const Error&) {
            continue;
        }
        for (const FoundPlan& plan : result.plans) {
            const pw::Setup chosen = setup_of(config, plan.choice);
            const std::optional<Metrics> own =
                metrics_in(problem, setup_of(problem, plan), plan.choice.schedule, plan.split);
            ASSERT_TRUE(own) << print(plan.choice);
            EXPECT_EQ(plan.step_time, own->step_time) << print(plan.choice);
            EXPECT_EQ(plan.fits, fits(*own, chosen)) << print(plan.choice);
            ASSERT_EQ(plan.reserved.size(), own->devices.size());
            for (std::size_t device = 0; device < plan.reserved.size(); ++device)
                EXPECT_EQ(plan.reserved[device], *own->devices[device].reserved_memory) << print(plan.choice);
            int tried = 0;
            StageSplit split;
            const auto devices = static_cast<int>(plan.choice.devices.size());
            for_each_split(model.layers, plan.choice.stages, split, [&](const StageSplit& whole) {
                if (++tried > (soaks() ? 2000 : 10))
                    return;
                for (const std::string& schedule : placed_as(GetParam(), plan.choice.stages, devices))
                    if (const auto metrics = metrics_in(problem, chosen, schedule, whole);
                        metrics && fits(*metrics, chosen)) {
                        ++compared;
                        EXPECT_LE(plan.lower_bound, metrics->step_time)
                            << print(plan.choice) << " in the order of " << schedule << ", round " << round;
                    }
            });
        }
    }
    EXPECT_GT(compared, 100);
}

// The bound on the slowest device in any order, raised as far as that goes, against every split of small models with
// branches in the order of every schedule with the same placement.
class AnyOrder : public testing::TestWithParam<std::string> {};

TEST_P(AnyOrder, HasBoundsThatHoldForEverySplit) {
    Random random(29);
    int compared = 0;
    Ns all = 0, bounds = 0;
    const bool both_ways = GetParam() != "auto" && GetParam() != "auto-v";  // few random configs suit such schedules
    for (int round = 0; round < rounds(both_ways ? 240 : 40); ++round) {
        const Model model = random_model(random);
        const Profile profile = random_profile(model, random);
        Config config = random_config(random, GetParam());
        config.search.recompute_layers.clear();
        config.pipeline.options.effort = 0.05;
        if (pick(random, 0, 3) == 0)
            config.training.zero = pick(random, 1, 2);
        const SearchProblem problem{config, model, [&profile](int) { return profile; }, {}};
        const StageSpace space(model.layers, 1200);
        Deadline never(1e9);
        std::vector<PlanChoice> choices;
        try {
            choices = choices_of(config, static_cast<int>(num_vertices(model.layers)), {}).all;
        } catch (const Error&) {
            continue;
        }
        for (std::size_t number = 0; number < choices.size(); number += 1 + choices.size() / 6) {
            const PlanChoice& choice = choices[number];
            const SizedModel sized(problem, space, choice);
            Trial trial(problem, space, sized, choice);
            trial.open(never);
            if (trial.refused())
                continue;
            trial.sharpen(kNeverFits, 1, never);
            const pw::Setup chosen = setup_of(config, choice);
            Ns least = kNeverFits;
            int tried = 0;
            StageSplit split;
            for_each_split(model.layers, choice.stages, split, [&](const StageSplit& whole) {
                ++tried;
                for (const std::string& name :
                     placed_as(choice.schedule, choice.stages, static_cast<int>(choice.devices.size()))) {
                    if (schedule_named(name).needs_costs && tried % 32 != 0)
                        continue;
                    if (const auto metrics = metrics_in(problem, chosen, name, whole);
                        metrics && fits(*metrics, chosen)) {
                        ++compared;
                        least = std::min(least, metrics->step_time);
                        EXPECT_LE(trial.bound(), metrics->step_time)
                            << print(choice) << " in the order of " << name << ", round " << round;
                    }
                }
            });
            if (least < kNeverFits) {
                all += least;
                bounds += trial.bound();
            }
        }
    }
    EXPECT_GT(compared, 500);
    EXPECT_GT(bounds, all * 2 / 3);
}

INSTANTIATE_TEST_SUITE_P(Schedules, AnyOrder,
                         testing::Values("auto", "auto-v", "auto-bidirectional", "chimera", "dualpipe"),
                         [](const auto& schedule) {
                             std::string name = schedule.param;
                             std::ranges::replace(name, '-', '_');
                             return name;
                         });

// R in idle time makes the order of a named schedule depend on the split, too.
TEST(RecomputesByCosts, AreFoundWithinBoundsOfAnySplit) {
    Random random(28);
    int compared = 0, shorter = 0;
    for (int round = 0; round < (soaks() ? 60 : 12); ++round) {
        const char* const names[] = {"1f1b", "v-half", "zb-h1", "hanayo"};
        const Model model = random_model(random);
        const Profile profile = random_profile(model, random);
        Config config = random_config(random, names[round % 4]);
        config.search.recompute = SearchConfig::Recompute::All;
        config.search.recompute_ahead = {0, Recomputation::kByCosts};
        config.search.recompute_layers.clear();
        const SearchProblem problem{config, model, [&profile](int) { return profile; }, {}};
        SearchResult result;
        try {
            result = search_plans(problem, {.tasks = 2'000'000});
        } catch (const Error&) {
            continue;
        }
        for (const FoundPlan& plan : result.plans) {
            if (plan.choice.ahead != Recomputation::kByCosts)
                continue;
            const pw::Setup chosen = setup_of(config, plan.choice);
            const std::string& name = plan.choice.schedule;
            const std::optional<Metrics> own = metrics_in(problem, setup_of(problem, plan), name, plan.split);
            ASSERT_TRUE(own) << print(plan.choice);
            EXPECT_EQ(plan.step_time, own->step_time) << print(plan.choice);
            int tried = 0;
            StageSplit split;
            for_each_split(model.layers, plan.choice.stages, split, [&](const StageSplit& whole) {
                if (++tried > (soaks() ? 500 : 10))
                    return;
                const auto metrics = metrics_in(problem, chosen, name, whole);
                pw::Setup in_place = chosen;
                in_place.pipeline.recompute.ahead = 0;
                const auto before = metrics_in(problem, in_place, name, whole);
                if (!metrics || !before)
                    return;
                EXPECT_LE(metrics->step_time, before->step_time) << print(plan.choice);
                shorter += metrics->step_time < before->step_time ? 1 : 0;
                if (!fits(*metrics, chosen))
                    return;
                ++compared;
                EXPECT_LE(plan.lower_bound, metrics->step_time) << print(plan.choice) << ", round " << round;
            });
        }
    }
    EXPECT_GT(compared, 20);
    EXPECT_GT(shorter, 5);
}

std::string name_of_row(const testing::TestParamInfo<std::string>& schedule) {
    std::string name = schedule.param;
    std::ranges::replace(name, '-', '_');
    return name;
}

INSTANTIATE_TEST_SUITE_P(Schedules, OrdersByCosts, testing::Values("auto", "auto-v", "auto-bidirectional"),
                         name_of_row);

}  // namespace
}  // namespace pw

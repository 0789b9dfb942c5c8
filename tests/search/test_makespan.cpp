// The search by simulated step time against trying everything.
#include "job/build.h"
#include "job/plan.h"
#include "schedules/orders/schedule.h"
#include "schedules/plan/gradient_sums.h"
#include "search//plans/makespan.h"
#include "search/plans/choice_list.h"
#include "search/plans/trial.h"
#include "sim/metrics.h"
#include "tests/search/random_problem.h"
#include "tests/support/every_split.h"
#include "tests/support/thoroughness.h"
#include "workloads/error.h"
#include "workloads/models/frozen_layers.h"
#include "workloads/models/recomputed_layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <random>

namespace pw {
namespace {

struct Best {
    std::optional<Ns> time;
    std::map<StageLinks, Plan> plans;  // by the edges of the splits so far
};

Metrics simulated(const SearchProblem& problem, const pw::Setup& config, const Profile& profile, StageSplit split,
                  const Plan& plan) {
    group_readers(split, config.run);
    Model model = problem.model;
    set_recomputed(model.layers, config.pipeline.recompute_layers);
    Costs costs = costs_of(model, split, profile, config.pipeline.micro_batch_size);
    costs.lengths = config.pipeline.micro_batch_lengths;
    costs.cluster = cluster_of(config, profile);
    add_settings(costs, config);
    add_gradient_sums(costs, plan.shape, {}, config.sums);
    return metrics_of(simulate(plan, costs, problem.mode));
}

void judge(const SearchProblem& problem, const pw::Setup& config, const Profile& profile, const StageSplit& split,
           Best& best) {
    const StageLinks links = links_of(problem.model.layers, split);
    if (!best.plans.contains(links))
        best.plans[links] = make_plan(config, links, config.training.steps);
    const Metrics metrics = simulated(problem, config, profile, split, best.plans[links]);
    for (std::size_t device = 0; device < metrics.devices.size(); ++device)
        if (*metrics.devices[device].reserved_memory > config.cluster.devices[device].memory)
            return;
    best.time = std::min(best.time.value_or(metrics.step_time), metrics.step_time);
}

Best try_everything(const SearchProblem& problem, const PlanChoice& choice) {
    Best best;
    const pw::Setup config = setup_of(problem.setup, choice);
    const Profile profile = problem.profile_at(choice.micro_batch_size);
    StageSplit split;
    try {
        for_each_split(problem.model.layers, choice.stages, split,
                       [&](const StageSplit& whole) { judge(problem, config, profile, whole, best); });
    } catch (const Error&) {  // the schedule is not defined for the choice
    }
    return best;
}

// The bound of a choice, raised as far as that goes, whatever has been found.
Ns sharpest_bound(const SearchProblem& problem, const PlanChoice& choice) {
    const StageSpace space(problem.model.layers, 1200);
    const SizedModel sized(problem, space, choice);
    Trial trial(problem, space, sized, choice);
    Deadline never(1e9);
    trial.open(never);
    trial.sharpen(kNeverFits, 1, never);
    return trial.bound();
}

void expect_as_simulated(const SearchProblem& problem, const FoundPlan& found) {
    const pw::Setup config = setup_of(problem.setup, found.choice);
    const Plan plan = make_plan(config, links_of(problem.model.layers, found.split), config.training.steps);
    const Profile profile = problem.profile_at(found.choice.micro_batch_size);
    const Metrics metrics = simulated(problem, config, profile, found.split, plan);
    EXPECT_EQ(found.step_time, metrics.step_time) << print(found.choice);
    ASSERT_EQ(found.reserved.size(), metrics.devices.size());
    for (std::size_t device = 0; device < metrics.devices.size(); ++device)
        EXPECT_EQ(found.reserved[device], *metrics.devices[device].reserved_memory) << print(found.choice);
}

constexpr int kAnyNumber = std::numeric_limits<int>::max();

struct Round {
    Model model;
    Profile profile;
    Config config;
    Choices choices;  // none if none is legal
};

int splits_of(const Round& round) {
    int count = 0;
    StageSplit split;
    for (const PlanChoice& choice : round.choices.all)
        for_each_split(round.model.layers, choice.stages, split, [&](const StageSplit&) { ++count; });
    return count;
}

class Makespan : public testing::TestWithParam<std::string> {
protected:
    // `change`: to the random profile and config of each round.
    template <class Change>
    void expect_the_least(unsigned seed, int rounds, Change change);

    std::vector<Ns> least_;  // of the rounds that have a plan
    // Rounds with more splits of all choices are not tried: they are few, and would take most of the time.
    int most_splits_ = soaks() ? kAnyNumber : 200;
    bool freezes_ = false;  // some of the first layers

private:
    template <class Change>
    Round draw(Random& random, Change& change);
};

template <class Change>
Round Makespan::draw(Random& random, Change& change) {
    for (;;) {
        Model model = random_model(random);
        if (freezes_)
            freeze_layers(model, random);
        const Profile profile = random_profile(model, random);
        Round round{model, profile, random_config(random, GetParam()), {}};
        change(round.profile, round.config);
        try {
            round.choices = choices_of(round.config, static_cast<int>(num_vertices(model.layers)));
        } catch (const Error&) {
        }
        if (splits_of(round) <= most_splits_)
            return round;
    }
}

template <class Change>
void Makespan::expect_the_least(unsigned seed, int rounds, Change change) {
    Random random(seed + static_cast<unsigned>(std::hash<std::string>{}(GetParam()) % 1000));
    least_.clear();
    // More rounds where none of them has a plan.
    for (int round = 0; round < rounds || (least_.empty() && round < 6 * rounds); ++round) {
        const auto [model, profile, config, choices] = draw(random, change);
        const SearchProblem problem{config, model, [&profile = profile](int) { return profile; }, {}};
        SearchResult result;
        try {
            result = search_plans(problem, {.tasks = std::int64_t{1} << 60});
        } catch (const Error&) {
            continue;  // no choice is legal
        }
        std::optional<Ns> best;
        for (const PlanChoice& choice : choices.all) {
            const Best all = try_everything(problem, choice);
            if (all.time) {
                best = std::min(best.value_or(*all.time), *all.time);
                EXPECT_LE(sharpest_bound(problem, choice), *all.time) << print(choice) << " round " << round;
            }
            for (const FoundPlan& plan : result.plans)
                if (plan.choice == choice && all.time) {
                    EXPECT_LE(plan.lower_bound, *all.time) << print(choice) << " round " << round;
                    EXPECT_TRUE(!plan.fits || plan.step_time >= *all.time) << print(choice) << " round " << round;
                }
        }
        ASSERT_EQ(result.best() != nullptr, best.has_value()) << "round " << round;
        EXPECT_EQ(result.shortage.has_value(), !best.has_value());
        if (!best) {
            EXPECT_GT(result.shortage->needs, result.shortage->has);
            continue;
        }
        least_.push_back(*best);
        EXPECT_EQ(result.best()->step_time, *best) << print(result.best()->choice) << " round " << round;
        EXPECT_EQ(result.lower_bound, *best) << "a search without a limit proves its answer";
        expect_as_simulated(problem, *result.best());
    }
    EXPECT_GT(std::ssize(least_), rounds / 6);
}

TEST_P(Makespan, IsTheLeastOfAllPlans) {
    expect_the_least(20260u, soaks() ? 12 : 2, [](const Profile&, const Config&) {});
}

// Splits differ in which of their stages run forwards only.
TEST_P(Makespan, IsTheLeastWhereLayersAreFrozen) {
    if (GetParam() != kBidirectional.name && schedule_named(GetParam()).asynchronous())
        return;  // refuses frozen layers
    freezes_ = true;
    expect_the_least(20266u, soaks() ? 40 : 2, [](const Profile&, const Config&) {});
    expect_the_least(20267u, soaks() ? 12 : 1, [](Profile& profile, Config& config) {
        profile.dispatch.median = 30;
        config.cluster.dispatcher = ClusterConfig::Dispatcher::PerHost;
    });
}

// The work after the last backward may overlap the way back, and the other way round.
TEST_P(Makespan, IsTheLeastWhereOnePassOutweighsTheOther) {
    for (const bool input : {true, false})
        expect_the_least(20261u, soaks() ? 3 : 1, [&](Profile& profile, const Config&) {
            for (LayerProfile& layer : profile.layers)
                for (auto& [samples, times] : layer.times) {
                    (input ? times.backward_input : times.backward_weight).median *= 20;
                    times.backward.median = times.backward_input.median + times.backward_weight.median;
                }
        });
}

// The times are too long for rounded lengths to matter, and differ by operation.
TEST_P(Makespan, IsTheLeastWhereMicroBatchesAreOfUnequalLength) {
    Random random(77);
    expect_the_least(20265u, soaks() ? 12 : 1, [&](Profile& profile, Config& config) {
        for (LayerProfile& layer : profile.layers)
            for (auto& [samples, times] : layer.times)
                for (Measured* pass :
                     {&times.forward, &times.backward_input, &times.backward_weight, &times.backward, &times.recompute})
                    pass->median *= 100;
        const auto any = [&] { return pick(random, 1, 40) * 0.1; };
        config.search.micro_batch_sizes = {1};
        const bool alike = pick(random, 0, 1) != 0;
        for (std::int64_t microbatch = 0; microbatch < config.search.mini_batch; ++microbatch) {
            const double all = any();
            config.pipeline.micro_batch_lengths.push_back(alike ? MicroBatchLength{all, all, all, all}
                                                                : MicroBatchLength{any(), any(), any(), any()});
        }
    });
}

TEST_P(Makespan, IsTheLeastWhereDevicesShareADispatcher) {
    Random random(78);
    expect_the_least(20264u, soaks() ? 12 : 1, [&](Profile& profile, Config& config) {
        profile.dispatch.median = pick(random, 0, 1) ? pick(random, 1, 40) : pick(random, 100, 400);
        config.cluster.dispatcher = ClusterConfig::Dispatcher::PerHost;
        for (DeviceConfig& device : config.cluster.devices)
            device.host = pick(random, 0, 2) ? "a" : "b";
    });
}

using MakespanOfPairs = Makespan;

// A pair takes as long as its longer task, or a share of the shorter one more.
TEST_P(MakespanOfPairs, IsTheLeastWhereTasksOverlap) {
    Random random(80);
    expect_the_least(20266u, soaks() ? 12 : 3, [&](Profile& profile, Config& config) {
        config.pipeline.pair_exposed = 0.25 * pick(random, 0, 3);
        const int longer = pick(random, 1, 4);  // F may be the longer one
        for (LayerProfile& layer : profile.layers)
            for (auto& [samples, times] : layer.times)
                times.forward.median *= longer;
    });
}

INSTANTIATE_TEST_SUITE_P(Schedules, MakespanOfPairs, testing::Values("dualpipe", "dualpipe-v"),
                         [](const auto& schedule) { return schedule.param == "dualpipe" ? "whole" : "half"; });

// Without PIPEWRIGHT_SOAK=1 all but v-min, which takes 40 s.
std::vector<std::string> all_schedules() {
    std::vector<std::string> names;
    for (const Schedule& schedule : schedules())
        if (!schedule.needs_costs && !schedule.cuts_sequences() && (soaks() || schedule.name != "v-min"))
            names.emplace_back(schedule.name);
    return names;
}

std::string name_of_test(const testing::TestParamInfo<std::string>& schedule) {
    std::string name = schedule.param;
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
}

INSTANTIATE_TEST_SUITE_P(Schedules, Makespan, testing::ValuesIn(all_schedules()), name_of_test);

INSTANTIATE_TEST_SUITE_P(OfTheCaller, Makespan, testing::Values(std::string(kBidirectional.name)), name_of_test);

// Four devices alike on two hosts, stages with replicas, and updates, weights and sums that outweigh the passes.
class MakespanOfReplicas : public Makespan {
protected:
    std::vector<Ns> least_with(Bytes sum_bucket, bool shard_optimizer, SumAlgorithm sums) {
        expect_the_least(20262u + static_cast<unsigned>(sums), soaks() ? 9 : 2, [&](Profile& profile, Config& config) {
            for (LayerProfile& layer : profile.layers) {
                layer.update.median *= 20;
                for (auto& [samples, times] : layer.times)
                    for (Measured* pass :
                         {&times.forward, &times.backward, &times.backward_input, &times.backward_weight})
                        pass->median *= 10;
                for (auto& [samples, bytes] : layer.bytes)
                    bytes.weights *= 8;
            }
            DeviceConfig device = config.cluster.devices.front();
            device.memory = device.memory == kUnlimited ? kUnlimited : 3 * device.memory;
            config.cluster.devices.assign(4, device);
            config.cluster.devices[2].host = config.cluster.devices[3].host = "other";
            config.cluster.link = {.latency = 1, .bandwidth = 60e9};
            config.cluster.between_hosts = Link{.latency = 3, .bandwidth = 20e9};
            config.search.replicas = SearchConfig::Replicas::Yes;
            config.search.recompute = SearchConfig::Recompute::None;
            config.sums = sums;
            config.sum_bucket = sum_bucket;
            config.training.zero = shard_optimizer ? 1 : 0;
        });
        return least_;
    }
};

TEST_P(MakespanOfReplicas, IsTheLeastWithSumsInBucketsAndOptimizersInShards) {
    int other_answers = 0, faster = 0;
    for (const auto [name, sums] : kChoices<SumAlgorithm>) {
        const std::vector<Ns> plain = least_with(0, false, sums);
        for (const Bytes bucket : {0, 700})
            for (const bool shards : {false, true}) {
                if ((bucket == 0 && !shards) || (shards && sums == SumAlgorithm::Tree))
                    continue;
                const std::vector<Ns> least = least_with(bucket, shards, sums);
                other_answers += least != plain;
                for (std::size_t round = 0; round < plain.size() && least.size() == plain.size(); ++round)
                    faster += least[round] < plain[round];
            }
    }
    EXPECT_GT(other_answers, 5) << "of seven";
    EXPECT_GT(faster, 5);
}

// Without PIPEWRIGHT_SOAK=1 only 1f1b; zb-h1 takes 9 s.
std::vector<std::string> schedules_with_replicas() {
    if (!soaks())
        return {"1f1b"};
    std::vector<std::string> names;
    for (const Schedule& schedule : schedules())
        if (schedule.takes_replicas() && !schedule.asynchronous() && schedule.trains)
            names.emplace_back(schedule.name);
    return names;
}

INSTANTIATE_TEST_SUITE_P(Schedules, MakespanOfReplicas, testing::ValuesIn(schedules_with_replicas()), name_of_test);

// Pipelines whose devices hold several stages, on four devices that differ in speed in half of the rounds.
class MakespanOfCopies : public Makespan {
protected:
    std::vector<Ns> least_with(SearchConfig::Replicas replicas, bool shard_optimizer, Bytes sum_bucket) {
        Random random(79);
        most_splits_ = kAnyNumber;  // the same rounds with and without replicas
        expect_the_least(20265u, soaks() ? 12 : 1, [&](const Profile&, Config& config) {
            config.cluster.devices.assign(4, config.cluster.devices.front());
            if (pick(random, 0, 1))
                config.cluster.devices[1].speed = 0.7, config.cluster.devices[2].speed = 1.4;
            config.search.replicas = replicas;
            config.sum_bucket = sum_bucket;
            config.search.recompute = SearchConfig::Recompute::None;
            config.training.zero = shard_optimizer ? 1 : 0;
            if (shard_optimizer)
                config.training.types = {
                    .weights = NumberType::Bf16, .gradients = NumberType::Fp32, .momentum = NumberType::Int8};
        });
        return least_;
    }
};

TEST_P(MakespanOfCopies, IsTheLeastOfAllPlans) {
    int faster = 0;
    for (const auto& [shards, bucket] : {std::pair(false, 700), std::pair(true, 0)}) {
        const std::vector<Ns> alone = least_with(SearchConfig::Replicas::No, shards, bucket),
                              copies = least_with(SearchConfig::Replicas::Equal, shards, bucket);
        for (std::size_t round = 0; round < alone.size() && copies.size() == alone.size(); ++round)
            faster += copies[round] < alone[round];
    }
    EXPECT_GT(faster, 0);
}

// Without PIPEWRIGHT_SOAK=1 neither bfs nor zb1p, which take 4 and 12 s.
std::vector<std::string> schedules_of_copies() {
    std::vector<std::string> names{"interleaved", "zb-v"};
    if (soaks())
        names.insert(names.end(), {"bfs", "zb1p"});
    return names;
}

INSTANTIATE_TEST_SUITE_P(Schedules, MakespanOfCopies, testing::ValuesIn(schedules_of_copies()), name_of_test);

}  // namespace
}  // namespace pw

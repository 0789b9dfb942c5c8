// The search by simulated step time against trying everything.
#include "schedules/durations.h"
#include "schedules/schedule.h"
#include "search/makespan.h"
#include "search/trial.h"
#include "sim/metrics.h"
#include "workloads/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <new>
#include <optional>
#include <random>

namespace pw {
namespace {

using Random = std::mt19937;

int pick(Random& random, int least, int most) {
    return least + static_cast<int>(random() % static_cast<unsigned>(most - least + 1));
}

// Up to ten layers: chains with branches that meet again.
Model random_model(Random& random) {
    Model model{"random", {8, 1, 1}, 8, {}};
    const auto add = [&](LayerKind kind, const std::vector<int>& inputs) {
        Layer layer{"layer" + std::to_string(num_vertices(model.layers)), kind, {8, 1, 1}, {8, 1, 1}};
        return add_layer(model.layers, layer, inputs);
    };
    std::vector<int> open = {add(LayerKind::Linear, {})};
    const int middle = pick(random, 1, 5);
    for (int made = 0; made < middle; ++made) {
        const int input = pick(random, 0, static_cast<int>(num_vertices(model.layers)) - 1);
        const int next = add(pick(random, 0, 1) ? LayerKind::Linear : LayerKind::Relu,
                             {pick(random, 0, 2) ? open.back() : input});
        std::erase(open, inputs_of_layer(model.layers, next).front());
        open.push_back(next);
    }
    while (open.size() > 1) {
        const int sum = add(LayerKind::Add, {open[open.size() - 2], open.back()});
        open.resize(open.size() - 2);
        open.push_back(sum);
    }
    add(LayerKind::CrossEntropy, open);
    return model;
}

Profile random_profile(const Model& model, Random& random) {
    Profile profile = analytic_profile(model, 1, {});
    profile.backend = "random";
    const int dispatch = pick(random, 0, 1);
    profile.dispatch.median = dispatch * pick(random, 0, 5);
    for (LayerProfile& layer : profile.layers)
        for (const int samples : {1, 2, 4}) {
            LayerTimes& times = layer.times[samples];
            times.forward.median = pick(random, 0, 40) * samples;
            times.backward_input.median = pick(random, 0, 40) * samples;
            times.backward_weight.median = pick(random, 0, 40) * samples;
            times.backward.median = times.backward_input.median + times.backward_weight.median - pick(random, 0, 3);
            times.backward.median = std::max<Ns>(1, times.backward.median);
            times.recompute = times.forward;
            times.accumulate.median = pick(random, 0, 4);
            layer.update.median = pick(random, 0, 10);
            const auto size = [&](int most) { return Bytes{64} * pick(random, 0, most); };
            const bool weighted = has_weight_pass(LayerKind::Linear);
            layer.bytes[samples] = {weighted ? size(6) : 0, 0, 64 + size(8) * samples, size(4) * samples,
                                    size(4) * samples, size(3)};
        }
    for (LayerProfile& layer : profile.layers)
        for (const int samples : {2, 4})
            layer.bytes[samples].weights = layer.bytes[1].weights;
    for (const int samples : {2, 4}) {
        profile.data[samples] = profile.data[1];
        profile.data_bytes[samples] = profile.data_bytes[1] * samples;
    }
    return profile;
}

Config random_config(Random& random, const std::string& schedule) {
    Config config;
    config.workload.model = "random";
    config.pipeline.schedule = schedule;
    config.cluster.devices.resize(static_cast<std::size_t>(pick(random, 1, 4)));
    if (pick(random, 0, 1))
        for (DeviceConfig& device : config.cluster.devices)
            device.memory = pick(random, 2, 60) * 512;
    config.cluster.link_given = true;
    config.cluster.link_latency = pick(random, 0, 1) * pick(random, 0, 60);
    if (pick(random, 0, 1))
        config.cluster.link_bandwidth = 1e9 * pick(random, 1, 40);
    config.search.mini_batch = schedule == "pipedream" ? pick(random, 1, 2) : 4;
    config.search.micro_batch_sizes = {1, 2};
    config.search.schedules = {schedule};
    // one of the dimensions that multiply the choices
    const int more = pick(random, 0, 5);
    config.search.recompute = more == 0 ? "auto" : "none";
    config.search.replicas = more == 1;
    if (more == 2)
        for (DeviceConfig& device : config.cluster.devices)
            device.speed = std::vector<double>{0.3, 0.7, 1, 1.4}[static_cast<std::size_t>(pick(random, 0, 3))];
    if (pick(random, 0, 2) == 0)
        config.run.transport = "link";  // senders keep copies, and lists wait for them
    config.training.steps = 6;
    return config;
}

struct Best {
    std::optional<Ns> time;
    std::map<StageLinks, Plan> plans;  // by the edges of the splits so far
};

// Every assignment of layers to stages that runs forward and leaves no stage empty.
template <class Visit>
void for_each_split(const LayerGraph& graph, int stages, StageSplit& split, Visit visit) {
    const int layer = static_cast<int>(split.stage_of.size());
    if (layer == static_cast<int>(num_vertices(graph))) {
        split.layers.assign(static_cast<std::size_t>(stages), {});
        for (int number = 0; number < layer; ++number)
            split.layers[split.stage_of[number]].push_back(number);
        const auto empty = [](const std::vector<int>& layers) { return layers.empty(); };
        if (std::none_of(split.layers.begin(), split.layers.end(), empty))
            visit(split);
        return;
    }
    int least = 0;
    for (const int input : inputs_of_layer(graph, layer))
        least = std::max(least, split.stage_of[input]);
    for (int stage = least; stage < stages; ++stage) {
        split.stage_of.push_back(stage);
        for_each_split(graph, stages, split, visit);
        split.stage_of.pop_back();
    }
}

void judge(const SearchProblem& problem, const Config& config, const Profile& profile, const StageSplit& split,
           Best& best) {
    const StageLinks links = links_of(problem.model.layers, split);
    if (!best.plans.contains(links))
        best.plans[links] = make_plan(config, links, config.training.steps);
    const Plan& plan = best.plans[links];
    Costs costs = costs_of(problem.model, split, profile, config.pipeline.micro_batch_size);
    add_cluster(costs, config, profile);
    add_gradient_sums(costs, plan.shape);
    const Metrics metrics = metrics_of(simulate(plan, costs, problem.mode));
    for (std::size_t device = 0; device < metrics.devices.size(); ++device)
        if (*metrics.devices[device].reserved_memory > config.cluster.devices[device].memory)
            return;
    best.time = std::min(best.time.value_or(metrics.step_time), metrics.step_time);
}

Best try_everything(const SearchProblem& problem, const PlanChoice& choice) {
    Best best;
    const Config config = config_of(problem.config, choice);
    const Profile profile = problem.profile_at(choice.micro_batch_size);
    StageSplit split;
    try {
        for_each_split(problem.model.layers, choice.stages, split,
                       [&](const StageSplit& whole) { judge(problem, config, profile, whole, best); });
    } catch (const Error&) {  // the schedule is not defined for the choice
    }
    return best;
}

class Makespan : public testing::TestWithParam<std::string> {
protected:
    // `change`: to each random profile.
    template <class Change>
    void expect_the_least(unsigned seed, int rounds, Change change);
};

template <class Change>
void Makespan::expect_the_least(unsigned seed, int rounds, Change change) {
    Random random(seed + static_cast<unsigned>(std::hash<std::string>{}(GetParam()) % 1000));
    int solved = 0, infeasible = 0;
    for (int round = 0; round < rounds; ++round) {
        const Model model = random_model(random);
        Profile profile = random_profile(model, random);
        change(profile);
        const Config config = random_config(random, GetParam());
        const SearchProblem problem{config, model, [&](int) { return profile; }, {}};
        Choices choices;
        SearchResult result;
        try {
            choices = choices_of(config, static_cast<int>(num_vertices(model.layers)));
            result = search_plans(problem, {.tasks = std::int64_t{1} << 60});
        } catch (const Error&) {
            continue;  // no choice is legal
        }
        std::optional<Ns> best;
        for (const PlanChoice& choice : choices.all) {
            const Best all = try_everything(problem, choice);
            if (all.time)
                best = std::min(best.value_or(*all.time), *all.time);
            for (const FoundPlan& plan : result.plans)
                if (plan.choice == choice && all.time) {
                    EXPECT_LE(plan.lower_bound, *all.time) << print(choice) << " round " << round;
                    EXPECT_TRUE(!plan.fits || plan.step_time >= *all.time) << print(choice) << " round " << round;
                }
        }
        ASSERT_EQ(result.best() != nullptr, best.has_value()) << "round " << round;
        EXPECT_EQ(result.shortage.has_value(), !best.has_value());
        if (!best) {
            ++infeasible;
            EXPECT_GT(result.shortage->needs, result.shortage->has);
            continue;
        }
        ++solved;
        EXPECT_EQ(result.best()->step_time, *best) << print(result.best()->choice) << " round " << round;
        EXPECT_EQ(result.lower_bound, *best) << "a search without a limit proves its answer";
    }
    EXPECT_GT(solved, rounds / 6);
}

TEST_P(Makespan, IsTheLeastOfAllPlans) {
    expect_the_least(20260u, 24, [](const Profile&) {});
}

// What lies behind the last backward may hide in the way back, and the other way round.
TEST_P(Makespan, IsTheLeastWhereOnePassOutweighsTheOther) {
    for (const bool input : {true, false})
        expect_the_least(20261u, 5, [&](Profile& profile) {
            for (LayerProfile& layer : profile.layers)
                for (auto& [samples, times] : layer.times) {
                    (input ? times.backward_input : times.backward_weight).median *= 20;
                    times.backward.median = times.backward_input.median + times.backward_weight.median;
                }
        });
}

std::vector<std::string> all_schedules() {
    std::vector<std::string> names;
    for (const Schedule& schedule : schedules())
        names.emplace_back(schedule.name);
    return names;
}

INSTANTIATE_TEST_SUITE_P(Schedules, Makespan, testing::ValuesIn(all_schedules()), [](const auto& schedule) {
    std::string name = schedule.param;
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
});

// Layers of 11 + 11 and 8 + 8 ns on devices of speed 1 and 0.7: 100 rounds of 22 ns and a bit, although 38 ns of work
// shared by speeds that add up to 1.7 are 22.35 ns.
TEST(MakespanSearch, BoundsNoMoreThanRoundedTimes) {
    Model model{"two", {8, 1, 1}, 8, {}};
    for (const char* name : {"a", "b"})
        add_layer(model.layers, Layer{name, LayerKind::Profiled, {8, 1, 1}, {8, 1, 1}},
                  name[0] == 'a' ? std::vector<int>{} : std::vector<int>{0});
    Profile profile = analytic_profile(model, 1, {});
    profile.data[1].median = 0;
    for (LayerProfile& layer : profile.layers) {
        const Ns time = layer.name == "a" ? 11 : 8;
        layer.update.median = 0;
        layer.times[1] = {};
        layer.times[1].forward.median = layer.times[1].backward_input.median = layer.times[1].backward.median = time;
    }
    Config config;
    config.pipeline.schedule = "1f1b";
    config.cluster.link_given = true;
    config.cluster.devices.resize(2);
    config.cluster.devices[1].speed = 0.7;
    config.search.mini_batch = 100;
    config.search.stages = {2};
    const SearchResult result = search_plans({config, model, [&](int) { return profile; }, {}});
    ASSERT_NE(result.best(), nullptr);
    EXPECT_LE(result.best()->step_time, 2222);
    for (const FoundPlan& plan : result.plans)
        EXPECT_LE(plan.lower_bound, plan.step_time);
}

TEST(MakespanSearch, DoesNotDependOnThreads) {
    Random random(7);
    for (int round = 0; round < 6; ++round) {
        const Model model = random_model(random);
        const Profile profile = random_profile(model, random);
        Config config = random_config(random, "1f1b");
        config.search.schedules = {"1f1b", "gpipe", "zb-h1", "interleaved"};
        const SearchProblem problem{config, model, [&](int) { return profile; }, {}};
        const SearchResult one = search_plans(problem, {.tasks = 20'000, .threads = 1});
        const SearchResult many = search_plans(problem, {.tasks = 20'000, .threads = 3});
        EXPECT_EQ(one.candidates, many.candidates);
        EXPECT_EQ(one.lower_bound, many.lower_bound);
        ASSERT_EQ(one.plans.size(), many.plans.size());
        for (std::size_t i = 0; i < one.plans.size(); ++i) {
            EXPECT_EQ(one.plans[i].choice, many.plans[i].choice);
            EXPECT_EQ(one.plans[i].split.layers, many.plans[i].split.layers);
            EXPECT_EQ(one.plans[i].step_time, many.plans[i].step_time);
        }
    }
}

// Equal layers, so that equal shares are best.
struct EqualLayers {
    Model model{"equal", {8, 1, 1}, 8, {}};
    Profile profile;
    Config config;
    explicit EqualLayers(int layers, int devices) {
        for (int layer = 0; layer < layers; ++layer)
            add_layer(model.layers, Layer{"layer" + std::to_string(layer), LayerKind::Profiled, {8, 1, 1}, {8, 1, 1}},
                      layer == 0 ? std::vector<int>{} : std::vector<int>{layer - 1});
        profile = analytic_profile(model, 1, {});
        for (LayerProfile& layer : profile.layers) {
            layer.times[1] = {};
            layer.times[1].forward.median = layer.times[1].backward_input.median = 1000;
            layer.times[1].backward.median = 1000;
        }
        config.pipeline.schedule = "1f1b";
        config.cluster.link_given = true;
        config.cluster.devices.resize(static_cast<std::size_t>(devices));
        config.search.replicas = true;
        config.search.mini_batch = 64;
        config.search.stages = {4};
    }
    SearchProblem problem() {
        return {config, model, [this](int) { return profile; }, {}};
    }
};

// Times of a few nanoseconds, so that rounding weighs.
TEST(MakespanSearch, BoundIsNeverAboveAPlanWhateverTheSpeeds) {
    Random random(12);
    for (int round = 0; round < 200; ++round) {
        EqualLayers chain(pick(random, 2, 4), 2);
        for (LayerProfile& layer : chain.profile.layers) {
            LayerTimes& times = layer.times[1];
            times.forward.median = pick(random, 1, 12);
            times.backward_input.median = pick(random, 1, 12);
            times.backward_weight.median = pick(random, 0, 12);
            times.backward.median = times.backward_input.median + times.backward_weight.median;
            layer.update.median = 0;
        }
        chain.profile.data[1].median = 0;
        for (DeviceConfig& device : chain.config.cluster.devices)
            device.speed = pick(random, 0, 1) ? 1 : pick(random, 1, 19) * 0.1;
        chain.config.search.replicas = round % 2 == 0;
        chain.config.search.schedules = {"1f1b", "interleaved", "zb-h1", "gpipe"};
        chain.config.search.stages = {1, 2, 4};
        chain.config.search.mini_batch = 40;
        const SearchResult result = search_plans(chain.problem(), {.tasks = 40'000});
        for (const FoundPlan& plan : result.plans)
            EXPECT_LE(plan.lower_bound, plan.step_time) << print(plan.choice) << " round " << round;
    }
}

// A proposal covers every layer: half a model that fits is no plan.
TEST(MakespanSearch, LeavesNoLayerOutWhereTheModelDoesNotFit) {
    EqualLayers large(4, 1);
    large.config.search.stages = {1};
    large.config.search.mini_batch = 1;
    large.config.pipeline.schedule = "forward-only";  // nothing comes back from the layers behind
    for (LayerProfile& layer : large.profile.layers)
        layer.bytes[1] = {6400, 0, 64, 64, 0, 0};
    large.config.cluster.devices[0].memory = 3 * 6400 + 1000;  // three layers fit
    const SearchResult result = search_plans(large.problem());
    EXPECT_EQ(result.best(), nullptr);
    EXPECT_TRUE(result.none_fits);
    ASSERT_TRUE(result.shortage.has_value());
    EXPECT_GT(result.shortage->needs, 4 * 6400);
}

// 10.7 million ways to share out 128 devices among 4 stages.
TEST(MakespanSearch, SharesOutManyDevicesWithoutTryingEveryWay) {
    EqualLayers equal(16, 128);
    EXPECT_LT(choices_of(equal.config, 16).all.size(), 100u);
    EXPECT_FALSE(choices_of(equal.config, 16).complete());
    const SearchResult result = search_plans(equal.problem(), {.tasks = 300'000});
    ASSERT_NE(result.best(), nullptr);
    EXPECT_FALSE(result.every_choice);
    EXPECT_EQ(result.best()->choice.replicas, (std::vector<int>{32, 32, 32, 32}));
    EXPECT_LE(result.lower_bound, result.best()->step_time);
    EXPECT_GT(result.lower_bound, result.best()->step_time / 4);
}

// 5 + 4 + 4 + 4 layers on 17 devices: equal shares leave one of them out.
TEST(MakespanSearch, SharesOutDevicesByWork) {
    EqualLayers uneven(4, 17);
    uneven.profile.layers[2].times[1].forward.median = 2000;
    uneven.profile.layers[2].times[1].backward.median = uneven.profile.layers[2].times[1].backward_input.median = 2000;
    const SearchResult result = search_plans(uneven.problem(), {.tasks = 300'000});
    ASSERT_NE(result.best(), nullptr);
    const std::vector<int>& replicas = result.best()->choice.replicas;
    ASSERT_EQ(replicas.size(), 4u);
    EXPECT_GT(replicas[2], replicas[0]);
    EXPECT_GT(replicas[2], replicas[3]);
    for (const FoundPlan& plan : result.plans)
        EXPECT_LE(result.best()->step_time, plan.step_time);
}

// The bound on all ways of sharing is one: no composition that is tried by itself undercuts it.
TEST(MakespanSearch, BoundsEveryWayToShareOutDevices) {
    Random random(5);
    for (int round = 0; round < 12; ++round) {
        const Model model = random_model(random);
        const Profile profile = random_profile(model, random);
        Config config = random_config(random, "1f1b");
        config.cluster.devices.assign(6, {});
        config.search.replicas = true;
        config.search.recompute = "none";
        config.search.stages = {3};
        config.search.mini_batch = 8;
        const SearchProblem problem{config, model, [&](int) { return profile; }, {}};
        if (num_vertices(model.layers) < 3)
            continue;
        const StageSpace space(model.layers, 1200);
        const SizedModel sized(problem, space, 1);
        Deadline never(1e9);
        Trial any(problem, space, sized, {"1f1b", {0, 1, 2}, 3, 8, 1});
        any.open(never);
        const Ns bound = any.bound_of_any_shares(never);
        config.search.micro_batch_sizes = {1};
        const SearchResult result = search_plans(problem, {.tasks = 1'000'000});
        ASSERT_NE(result.best(), nullptr);
        EXPECT_LE(bound, result.best()->step_time) << "round " << round;
    }
}

TEST(MakespanSearch, AnswersWithWhatItFoundWhenMemoryEnds) {
    EqualLayers equal(6, 2);
    equal.config.search.replicas = false;
    equal.config.search.stages = {2};
    equal.config.search.micro_batch_sizes = {1, 2};
    const SearchProblem problem{equal.config, equal.model,
                                [&](int samples) {
                                    if (samples == 2)
                                        throw std::bad_alloc();
                                    return equal.profile;
                                },
                                {}};
    const SearchResult result = search_plans(problem);
    ASSERT_NE(result.best(), nullptr);
    EXPECT_EQ(result.stop, SearchStop::Memory);
    EXPECT_EQ(result.left_out, 1);
    EXPECT_EQ(result.choices, 2);
    EXPECT_EQ(result.lower_bound, 0) << "of what is left out nothing is known";
}

TEST(MakespanSearch, TriesNothingWhenTheTimeIsUp) {
    EqualLayers equal(6, 4);
    const SearchResult result = search_plans(equal.problem(), {.seconds = 0});
    EXPECT_EQ(result.best(), nullptr);
    EXPECT_EQ(result.stop, SearchStop::Time);
    EXPECT_FALSE(result.none_fits);
}

}  // namespace
}  // namespace pw

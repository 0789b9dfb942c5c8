// The answer of a search against all plans that it could have found: the plan, its bounds and its proof.
#include "job/build.h"
#include "job/job.h"
#include "job/load.h"
#include "job/plan.h"
#include "report/predict.h"
#include "schedules/memory/buffers.h"
#include "schedules/orders/schedule.h"
#include "schedules/plan/versions.h"
#include "search//plans/makespan.h"
#include "search/plans/choice_list.h"
#include "search/plans/trial.h"
#include "sim/metrics.h"
#include "tests/support/every_split.h"
#include "tests/support/random_searches.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thoroughness.h"
#include "workloads/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <tuple>

namespace pw {
namespace {

// A plan that fits, and takes as long as no other one of its choice, or of all.
struct Witness {
    PlanChoice choice;
    StageSplit split;
    Ns time = 0;
};

// All plans of a random search, tried one by one by the rules of docs/search.md.
class EveryPlan {
public:
    EveryPlan(const RandomSearch& search, const Config& config, const Model& model, const Profile& profile)
        : search_(search),
          config_(config),
          model_(model),
          profile_(profile),
          schedule_(schedule_named(search.schedule)) {
        for (const int stages : search.stages) {
            StageSplit empty;
            if (stages <= static_cast<int>(num_vertices(model.layers)))
                for_each_split(model.layers, stages, empty,
                               [&](const StageSplit& split) { splits_[stages].push_back(split); });
        }
        for (const int size : search.sizes)
            for (const auto& [stages, splits] : splits_)
                list(stages, size);
    }

    std::size_t plans() const {
        std::size_t plans = 0;
        for (const PlanChoice& choice : choices_)
            plans += splits_.at(choice.stages).size();
        return plans;
    }

    void try_all() {
        for (const PlanChoice& choice : choices_) {
            const std::optional<Witness> found = best_of_splits(choice);
            if (found && (!best_ || found->time < best_->time))
                best_ = found;
            times_[key_of(choice)] = found ? std::optional(found->time) : std::nullopt;
        }
    }

    const std::optional<Witness>& best() const { return best_; }
    // Returns the time of the best plan of a choice, or nothing where none fits.
    std::optional<Ns> best_of(const PlanChoice& choice) const {
        const auto found = times_.find(key_of(choice));
        EXPECT_NE(found, times_.end()) << print(choice);
        return found == times_.end() ? std::nullopt : found->second;
    }

private:
    using Key = std::tuple<int, int, int, int, int, int, int, int, SliceLengths, std::vector<int>, std::vector<int>>;

    // Without a network devices with the same speed and memory are the same.
    Key key_of(const PlanChoice& choice) const {
        std::vector<int> devices = choice.devices;
        if (!search_.has_network())
            for (int& device : devices)
                device = static_cast<int>(
                    std::find(search_.devices.begin(), search_.devices.end(), search_.devices[device]) -
                    search_.devices.begin());
        return {choice.stages,    choice.micro_batch_size, choice.recomputed, choice.saved,         choice.ahead,
                choice.offloaded, choice.offload_ahead,    choice.slices,     choice.slice_lengths, choice.replicas,
                devices};
    }

    void list(int stages, int size) {
        for (const int slices : search_.slices)
            for (const std::string& lengths : search_.slice_lengths) {
                PlanChoice choice{search_.schedule, {}, stages, search_.mini_batch / size, size};
                choice.slices = slices;
                choice.slice_lengths = lengths == "time" ? SliceLengths::Time : SliceLengths::Even;
                list(choice);
            }
    }

    void list(const PlanChoice& choice) {
        const int all = static_cast<int>(search_.devices.size()), stages = choice.stages;
        int plain = stages;
        if (schedule_.placement.name == "V")
            plain = stages % 2 == 0 ? stages / 2 : 0;
        else if (schedule_.placement.name == "any")
            plain = std::min(stages, all);
        else if (schedule_.placement.name == "looped")
            for (plain = std::min(stages / 2, all); plain > 1 && stages % plain != 0;)
                --plain;
        if (plain > 0 && plain <= all)
            list_orders(choice, plain);
        const bool has_cache = choice.slices > 1 && !schedule_.trains;  // keys and values are on one device
        if (search_.replicas && schedule_.takes_replicas() && !schedule_.asynchronous() && !has_cache)
            list_shares(choice, all);
    }

    void list_shares(PlanChoice choice, int left) {
        if (std::ssize(choice.replicas) == choice.stages) {
            const int devices = std::accumulate(choice.replicas.begin(), choice.replicas.end(), 0);
            if (devices > choice.stages)
                list_orders(choice, devices);
            return;
        }
        for (int share = 1; share <= left; ++share) {
            choice.replicas.push_back(share);
            list_shares(choice, left - share);
            choice.replicas.pop_back();
        }
    }

    void list_orders(PlanChoice choice, int devices) {
        if (std::ssize(choice.devices) < devices) {
            for (int device = 0; device < std::ssize(search_.devices); ++device)
                if (std::find(choice.devices.begin(), choice.devices.end(), device) == choice.devices.end()) {
                    choice.devices.push_back(device);
                    list_orders(choice, devices);
                    choice.devices.pop_back();
                }
            return;
        }
        for (int recomputed = 0; recomputed <= (choice.slices > 1 ? 0 : choice.stages); ++recomputed) {
            choice.recomputed = recomputed;
            if ((recomputed == 0 && search_.recompute != "all") || search_.recompute == "auto" ||
                (recomputed == choice.stages && search_.recompute == "all"))
                list_recomputation(choice);
        }
    }

    void list_recomputation(PlanChoice choice) {
        for (const int saved : search_.saved)
            for (const int ahead : search_.ahead) {
                choice.saved = choice.recomputed > 0 ? saved : 0;
                choice.ahead = choice.recomputed > 0 ? ahead : 0;
                list_offload(choice);
            }
    }

    void list_offload(PlanChoice choice) {
        const bool none_leaves = choice.recomputed > 0 || choice.slices > 1;
        for (int offloaded = 0; offloaded <= (none_leaves ? 0 : choice.stages); ++offloaded)
            for (const int ahead : search_.offload_ahead) {
                const bool none = offloaded == 0 && (search_.offload != "all" || choice.recomputed > 0);
                if (!none && search_.offload != "auto" && !(search_.offload == "all" && offloaded == choice.stages))
                    continue;
                choice.offloaded = offloaded;
                choice.offload_ahead = offloaded > 0 ? ahead : 1;
                if (times_.try_emplace(key_of(choice)).second)
                    choices_.push_back(choice);
            }
    }

    Config config_of_choice(const PlanChoice& choice) const {
        Config config = config_;
        std::vector<int> number(config_.cluster.devices.size(), -1);
        config.cluster.devices.clear();
        config.cluster.links.clear();
        config.cluster.shared.clear();
        for (const int device : choice.devices) {
            number[device] = static_cast<int>(config.cluster.devices.size());
            config.cluster.devices.push_back(config_.cluster.devices[device]);
        }
        for (const ClusterConfig::PairLink& pair : config_.cluster.links)
            if (number[pair.from] >= 0 && number[pair.to] >= 0)
                config.cluster.links.push_back({number[pair.from], number[pair.to], pair.link});
        for (const ClusterConfig::Shared& bus : config_.cluster.shared) {
            ClusterConfig::Shared used{{}, bus.bandwidth};
            for (const int device : bus.devices)
                if (number[device] >= 0)
                    used.devices.push_back(number[device]);
            std::sort(used.devices.begin(), used.devices.end());
            if (!used.devices.empty())
                config.cluster.shared.push_back(used);
        }
        config.pipeline.schedule = choice.schedule;
        config.pipeline.stages = choice.stages;
        config.pipeline.micro_batches = choice.micro_batches;
        config.pipeline.micro_batch_size = choice.micro_batch_size;
        config.pipeline.mini_batch = search_.mini_batch;
        config.pipeline.slices = choice.slices > 1 ? choice.slices : 0;
        config.pipeline.slice_lengths = choice.slice_lengths;
        config.pipeline.replicas = choice.replicas;
        config.pipeline.recompute.stages.resize(static_cast<std::size_t>(choice.recomputed));
        std::iota(config.pipeline.recompute.stages.begin(), config.pipeline.recompute.stages.end(), 0);
        config.pipeline.recompute.saved = choice.saved;
        config.pipeline.recompute.ahead = choice.ahead;
        config.pipeline.offload.stages.resize(static_cast<std::size_t>(choice.offloaded));
        std::iota(config.pipeline.offload.stages.begin(), config.pipeline.offload.stages.end(), 0);
        config.pipeline.offload.ahead = choice.offload_ahead;
        config.pipeline.offload.states.resize(static_cast<std::size_t>(search_.offloads_states ? choice.stages : 0));
        std::iota(config.pipeline.offload.states.begin(), config.pipeline.offload.states.end(), 0);
        return config;
    }

    struct Made {
        ProvenPlan proven;
        std::shared_ptr<const VersionTable> versions;
        std::unique_ptr<Simulator> simulator;
    };

    // Returns nothing where the schedule is not defined for the choice, or refuses the edges of the split.
    const Made* made_for(const PlanChoice& choice, const Config& config, const StageSplit& split, TransferMode mode) {
        const StageLinks links = links_of(model_.layers, split);
        const auto [place, is_new] = made_.try_emplace(
            {choice.stages, choice.micro_batch_size, choice.recomputed, choice.saved, choice.ahead, choice.offloaded,
             choice.offload_ahead, choice.slices, choice.replicas, std::ssize(choice.devices), links});
        if (!is_new)
            return place->second.get();
        try {
            auto made = std::make_unique<Made>();
            made->proven = proven_plan(config, links, config.training.steps);
            made->versions = std::make_shared<const VersionTable>(versions_of(made->proven.plan));
            made->simulator = std::make_unique<Simulator>(std::make_shared<const Plan>(made->proven.plan),
                                                          made->proven.proof, made->versions, mode);
            place->second = std::move(made);
        } catch (const Error&) {
        }
        return place->second.get();
    }

    std::optional<Witness> best_of_splits(const PlanChoice& choice) {
        const Config config = config_of_choice(choice);
        Model model = model_;
        if (choice.offloaded > 0)
            for (std::size_t layer = 0; layer < num_vertices(model.layers); ++layer)
                model.layers[layer].offloaded = true;
        const CostTable table(model, profile_, choice.micro_batch_size);
        TransferMode mode = executed_mode(config);
        mode.sent_copies = profile_.sent_copies || !mode.early_receive();
        const std::vector<StageSplit>& splits = splits_[choice.stages];
        const auto costs_of_split = [&](Costs costs, const StageSplit& split, const Made& made) {
            return complete_costs(std::move(costs), config, cluster_of(config, profile_), model_.layers, split,
                                  made.proven.plan.shape);
        };
        std::vector<std::pair<Ns, std::size_t>> times;
        for (std::size_t number = 0; number < splits.size(); ++number)
            if (const Made* made = made_for(choice, config, splits[number], mode))
                times.emplace_back(
                    made->simulator->step_time(costs_of_split(table.costs_of(splits[number]), splits[number], *made)),
                    number);
        std::sort(times.begin(), times.end());
        for (const auto& [time, number] : times) {
            const Made& made = *made_for(choice, config, splits[number], mode);
            const std::vector<Bytes> reserved =
                reserved_of(made.proven.plan, costs_of_split(table.costs_of(splits[number]), splits[number], made),
                            *made.versions, mode);
            bool fits = true;
            for (std::size_t device = 0; device < reserved.size(); ++device)
                fits = fits && reserved[device] <= config.cluster.devices[device].memory;
            if (fits)
                return Witness{choice, splits[number], time};
        }
        return std::nullopt;
    }

    const RandomSearch& search_;
    const Config& config_;
    const Model& model_;
    const Profile& profile_;
    const Schedule& schedule_;
    std::map<int, std::vector<StageSplit>> splits_;  // by number of stages
    std::vector<PlanChoice> choices_;
    std::map<Key, std::optional<Ns>> times_;
    std::map<std::tuple<int, int, int, int, int, int, int, int, std::vector<int>, std::ptrdiff_t, StageLinks>,
             std::unique_ptr<Made>>
        made_;
    std::optional<Witness> best_;
};

// How often something was seen.
using Seen = std::map<std::string, int>;

class Checked {
public:
    explicit Checked(const RandomSearch& search) : search_(search) {
        folder_.write("layers.yaml", search.layers());
        folder_.write("second.yaml", search.layers(true));
        std::vector<int> listed(search.devices.size());
        std::iota(listed.begin(), listed.end(), 0);
        config_ = load_config(folder_.write("search.yaml", search.config(listed, search.search())), {});
        model_ = build_model(config_);
        profile_ = search.changed(profile_of(config_, model_));
    }

    // Returns false where there is nothing to try, or too much.
    bool check(Seen& seen) {
        EveryPlan every(search_, config_, model_, profile_);
        if (every.plans() > 2500)
            return false;
        const SearchProblem problem{config_, model_, [this](int) { return profile_; }, executed_mode(config_)};
        every.try_all();
        try {
            result_ = search_plans(problem, search_.limits);
        } catch (const Error&) {
            EXPECT_FALSE(every.best().has_value());
            return false;
        }
        if (every.best())
            expect_a_plan(*every.best());
        expect_the_truth(every);
        expect_bounds_of_choices(problem, every);
        if (result_.best() != nullptr)
            expect_as_written(problem, *result_.best());
        note(every, seen);
        return true;
    }

private:
    // Config files say what the plans are.
    void expect_a_plan(const Witness& witness) {
        std::vector<std::string> stages;
        for (const std::vector<int>& layers : witness.split.layers) {
            std::vector<std::string> names;
            for (const int layer : layers)
                names.push_back(fmt::format("l{}", layer));
            stages.push_back(fmt::format("[{}]", fmt::join(names, ", ")));
        }
        const PlanChoice& choice = witness.choice;
        const auto first_stages = [](int count) {
            std::vector<int> stages(static_cast<std::size_t>(count));
            std::iota(stages.begin(), stages.end(), 0);
            return stages.empty() ? "none" : fmt::format("[{}]", fmt::join(stages, ", "));
        };
        const std::string pipeline = fmt::format(
            "pipeline: {{schedule: {}, stages: {}, micro_batches: {}, micro_batch_size: {}, split: {{stages: [{}]}}, "
            "recompute: {}, recompute_saved: {}, recompute_ahead: {}, offload: {}, offload_ahead: {}{}{}{}{}}}\n",
            choice.schedule, choice.stages, choice.micro_batches, choice.micro_batch_size, fmt::join(stages, ", "),
            first_stages(choice.recomputed), choice.saved, choice.ahead, first_stages(choice.offloaded),
            choice.offload_ahead, search_.offloads_states ? ", offload_states: all" : "",
            choice.slices == 1
                ? ""
                : fmt::format(", slices: {}, slice_lengths: {}", choice.slices, name_of(choice.slice_lengths)),
            choice.replicas.empty() ? "" : fmt::format(", replicas: [{}]", fmt::join(choice.replicas, ", ")),
            search_.lengths.empty() ? "" : ", " + search_.lengths_of_micro_batches());
        const Metrics metrics = simulated(search_.config(choice.devices, pipeline));
        EXPECT_EQ(metrics.step_time, witness.time);
        for (std::size_t device = 0; device < metrics.devices.size(); ++device)
            EXPECT_LE(*metrics.devices[device].reserved_memory, search_.devices[choice.devices[device]].memory);
    }

    // The config that `search -o` writes takes the predicted time.
    void expect_as_written(const SearchProblem& problem, const FoundPlan& found) {
        const Metrics metrics = simulated(setup_of(problem, found).yaml);
        EXPECT_EQ(metrics.step_time, found.step_time);
        ASSERT_EQ(metrics.devices.size(), found.reserved.size());
        for (std::size_t device = 0; device < metrics.devices.size(); ++device) {
            EXPECT_EQ(*metrics.devices[device].reserved_memory, found.reserved[device]);
            EXPECT_LE(found.reserved[device], search_.devices[found.choice.devices[device]].memory);
        }
    }

    // The first device has the first make, so other orders of devices have other profiles.
    Metrics simulated(const std::string& text) {
        Notices notices;
        const Config config = load_config(folder_.write("plan.yaml", text), {});
        return metrics_of(predict(make_job(config, search_.changed(profile_of(config, model_)), notices)));
    }

    void expect_the_truth(const EveryPlan& every) {
        const std::optional<Ns> best = every.best() ? std::optional(every.best()->time) : std::nullopt;
        EXPECT_FALSE(result_.none_fits && best);
        EXPECT_TRUE(!best || result_.lower_bound <= *best) << result_.lower_bound << " and " << best.value_or(0);
        if (const FoundPlan* found = result_.best()) {
            ASSERT_TRUE(best.has_value());
            EXPECT_GE(found->step_time, *best);
            EXPECT_LE(result_.lower_bound, found->step_time);
            EXPECT_LE(found->lower_bound, found->step_time);
            EXPECT_TRUE(result_.gap() > 0 || found->lower_bound == found->step_time) << "the row of the best plan";
        }
        for (const FoundPlan& plan : result_.plans) {
            const std::optional<Ns> least = every.best_of(plan.choice);
            EXPECT_TRUE(plan.may_fit || !least) << print(plan.choice);
            EXPECT_TRUE(!least || plan.lower_bound <= *least) << print(plan.choice);
            EXPECT_TRUE(!plan.fits || (least && plan.step_time >= *least)) << print(plan.choice);
        }
    }

    // The bounds of single choices, raised as far as that goes, whatever has been found.
    void expect_bounds_of_choices(const SearchProblem& problem, const EveryPlan& every) {
        const std::vector<PlanChoice> choices =
            choices_of(config_, static_cast<int>(num_vertices(model_.layers)), search_.limits.choices).all;
        const StageSpace space(model_.layers, search_.limits.cuts);
        std::map<std::pair<int, bool>, std::unique_ptr<SizedModel>> sized;
        Deadline never(1e9);
        for (std::size_t number = 0; number < choices.size(); number += 1 + choices.size() / 8) {
            const PlanChoice& choice = choices[number];
            std::unique_ptr<SizedModel>& of_size = sized[{choice.micro_batch_size, choice.offloaded > 0}];
            if (!of_size)
                of_size = std::make_unique<SizedModel>(problem, space, choice);
            Trial trial(problem, space, *of_size, choice);
            trial.open(never);
            trial.sharpen(kNeverFits, never);
            const std::optional<Ns> least = every.best_of(choice);
            EXPECT_TRUE(!least || trial.bound() <= *least) << print(choice) << ": " << trial.bound();
        }
    }

    void note(const EveryPlan& every, Seen& seen) const {
        const bool proven = result_.best() != nullptr && result_.gap() == 0;
        const bool several = search_.stages.front() > std::ssize(search_.devices);
        ++seen[fmt::format("kind {}", static_cast<int>(search_.kind))];
        seen["proven"] += proven;
        seen["not proven"] += result_.best() != nullptr && !proven;
        seen["best found"] +=
            result_.best() != nullptr && every.best() && result_.best()->step_time == every.best()->time;
        seen["nothing fits, proven"] += result_.none_fits;
        seen["several stages on a device"] += several;
        seen["forward only, several stages on a device"] += several && search_.schedule == "forward-only";
        seen["cuts of the forward order"] += !result_.every_cut;
        seen["not every choice"] += !result_.every_choice;
        seen["unequal hosts"] += search_.devices.front().host != search_.devices.back().host;
        seen["replicas"] += search_.replicas;
        seen["slices"] += search_.has_slices();
        seen["slices of unequal micro-batches"] += search_.has_slices() && !search_.lengths.empty();
        seen["slices, proven"] += search_.has_slices() && proven;
        seen["slices of equal time in the best plan"] +=
            result_.best() != nullptr && result_.best()->choice.slice_lengths == SliceLengths::Time;
        seen["offload"] += search_.offload != "none";
        seen["offload in the best plan"] += result_.best() != nullptr && result_.best()->choice.offloaded > 0;
        seen["stopped by time"] += result_.stop == SearchStop::Time;
    }

    const RandomSearch& search_;
    TemporaryFolder folder_;
    Config config_;
    Model model_;
    Profile profile_;
    SearchResult result_;
};

// No plan refutes the answer, whatever the search was given to try and however soon it had to end.
TEST(SearchProofs, HoldForEveryPlan) {
    const int most = soaks() ? 20'000 : rounds(150);
    Seen seen;
    int left_out = 0;
    for (unsigned seed = 0; seed < static_cast<unsigned>(most + left_out); ++seed) {
        RandomSearch search = RandomSearches(seed).draw();
        SCOPED_TRACE(fmt::format("seed {}\n{}", seed, search.search()));
        left_out += !Checked(search).check(seen);
        if (HasFatalFailure())
            return;
    }
    for (const auto& [what, times] : seen) {
        RecordProperty(what, times);
        if (soaks())
            fmt::print("{}: {}\n", what, times);
        EXPECT_GE(times, what == "stopped by time" ? 0 : most / 50) << what;
    }
    EXPECT_LT(left_out, most / 3);
}

}  // namespace
}  // namespace pw

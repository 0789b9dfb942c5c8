// The answer of a search against all plans that it could have found: the plan, its bounds and its proof.
#include "job/build.h"
#include "job/job.h"
#include "job/load.h"
#include "job/plan.h"
#include "report/predict.h"
#include "schedules/memory/buffers.h"
#include "schedules/orders/schedule.h"
#include "schedules/plan/versions.h"
#include "search/plans/choice_list.h"
#include "search/plans/makespan.h"
#include "search/plans/trial.h"
#include "sim/metrics.h"
#include "tests/search/every_plan.h"
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
            trial.sharpen(kNeverFits, 1, never);
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

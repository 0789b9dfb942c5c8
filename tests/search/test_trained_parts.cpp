// Searches of transformers with an encoder, frozen layers or adapters, against every choice and every division of the
// blocks, simulated one by one.
#include "job/job.h"
#include "report/plan_search.h"
#include "report/report.h"
#include "search/clusters/choice_bounds.h"
#include "search/clusters/choice_list.h"
#include "search/clusters/cluster_bounds.h"
#include "search/clusters/cluster_search.h"
#include "tests/search/cluster_spaces.h"
#include "tests/search/divisions.h"
#include "tests/search/small_cluster.h"
#include "tests/search/trained_parts.h"
#include "tests/support/config_text.h"
#include "tests/support/dice.h"
#include "tests/support/refusal.h"
#include "tests/support/thoroughness.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace pw {
namespace {

constexpr Ns kNothingFits = std::numeric_limits<Ns>::max();

// The space of small_cluster.h with blocks of an encoder, frozen parts or adapters.
Space space_trained_with(const std::string& trained, const std::string& memory) {
    Space space{kSmall,
                8,
                16,
                {1, 2, 4},
                {1, 2, 4},
                {1},
                {1},
                {1, 2},
                {0, 1, 3},
                {"none", "full"},
                {{"1f1b", 1}, {"zb-h1", 1}, {"interleaved", 2}, {"interleaved", 4}}};
    const auto replace = [&](const std::string& from, const std::string& to) {
        space.base.replace(space.base.find(from), from.size(), to);
    };
    replace("sequence_length: 4096", "sequence_length: 4096, " + trained);
    replace("24 GB", memory);
    replace("unequal_blocks",
            "zero: [0, 1, 3], recompute: [none, full], context: [1], pipeline: [1, 2, 4], unequal_blocks");
    return space;
}

TEST(TrainedParts, HaveTheBestOfEveryConfig) {
    const std::string encoder =
        "encoder: {images: 4, tokens: 576, hidden: 1024, layers: 8, heads: 16, inner: 4096, inputs: 588}";
    OneIn some(2);
    for (const auto& [trained, memory] : {std::pair{encoder + ", frozen: [encoder]", "14 GB"},
                                          {"lora: {rank: 8}", "6 GB"},
                                          {"frozen: [embedding, head, block.0-11]", "8 GB"},
                                          {encoder + ", lora: {rank: 8}", "6 GB"}}) {
        if (!some.picks())
            continue;
        SCOPED_TRACE(trained);
        expect_the_same(space_trained_with(trained, memory));
    }
}

struct DivisionCounts {
    int bounded = 0, sharp = 0, sharp_moved = 0, tight = 0, none_fits = 0, forwards_only = 0;
};

// Simulates every division of a choice, against the bounds of the choice and of its divisions. Returns the best step.
Ns best_of_divisions(const Config& config, const PlanChoice& choice, const ChoiceBounds& bounds,
                     DivisionCounts& counts) {
    std::map<std::vector<int>, Ns> bound_of;
    for (const BoundedDivision& division : bounded_divisions(config, choice, kNothingFits))
        bound_of[division.blocks] = division.step_time;
    Ns best = kNothingFits;
    const auto simulate = [&](const std::vector<int>& blocks) {
        PlanChoice own = choice;
        own.blocks = blocks;
        Notices notices;
        const Job job = make_job(setup_of(config, own), notices);
        const Report report = predicted_report(job, false);
        counts.forwards_only += !job.plan.shape.forwards_only.empty();
        if (!fits(report))
            return;
        const Ns step = report.metrics.step_time;
        best = std::min(best, step);
        if (blocks.empty()) {
            EXPECT_TRUE(bounds.fits) << print(own);
            EXPECT_LE(bounds.step_time, step) << print(own);
            return;
        }
        ASSERT_TRUE(bound_of.contains(blocks)) << print(own);
        EXPECT_LE(bound_of[blocks], step) << print(own);
        ++counts.bounded;
        counts.sharp += 10 * bound_of[blocks] > 8 * step;
    };
    simulate({});
    for_each_division(config.workload.all_blocks(), choice.stages, simulate);
    if (best == kNothingFits)
        return best;
    EXPECT_TRUE(bounds.may_fit_moved) << print(choice);
    EXPECT_LE(bounds.least_moved, best) << print(choice);
    counts.sharp_moved += 10 * bounds.least_moved > 8 * best;
    return best;
}

std::string random_trained_space(Random& random) {
    const auto one_of = [&](const std::vector<std::string>& all) {
        return all[static_cast<std::size_t>(pick(random, 0, static_cast<int>(all.size()) - 1))];
    };
    const bool is_looped = pick(random, 0, 2) == 0;
    const std::string trained = random_trained_parts(random, true);
    return fmt::format(
        R"(
workload: {{model: config.json, sequence_length: 1024{}}}
cluster: {{hosts: 1, devices_per_host: 4, device: h100-sxm-80, memory: {} MB, dispatch: {}}}
training: {{precision: bf16, optimizer: adamw}}
search: {{mini_batch: {}, tensor: [1], pipeline: [{}], context: [1], chunks: [{}], schedules: [{}], zero: [{}],
         recompute: [{}], micro_batch_sizes: [1]}}
)",
        trained, pick(random, 0, 2) == 0 ? 80'000 : 50 * pick(random, 12, 32), one_of({"0 us", "30 us"}),
        one_of({"4", "8", "12"}), is_looped ? "2" : "4, 2", is_looped ? "2" : "1",
        is_looped ? one_of({"interleaved", "zb-v", "v-half"}) : one_of({"1f1b", "gpipe", "zb-h1", "chimera"}),
        one_of({"0", "1", "3"}), one_of({"none", "none", "full"}));
}

// Rounds in four parts, which run side by side.
constexpr int kTrainedParts = 4;

class TrainedInPart : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Part, TrainedInPart, testing::Range(0, kTrainedParts));

TEST_P(TrainedInPart, SearchFindsTheBestDivision) {
    const TemporaryFolder folder;
    folder.write("config.json", kTinyModel);
    DivisionCounts counts;
    int unequal = 0;
    for (int round = 0; round < rounds(15); ++round) {
        Random random(static_cast<unsigned>(kTrainedParts * round + GetParam()));
        const std::string text = random_trained_space(random);
        SCOPED_TRACE(fmt::format("round {}:\n{}", round, text));
        const Config config = load_config(folder.write("cfg.yaml", text), {});
        const std::vector<PlanChoice> choices = cluster_choices(config);
        const BoundsOfChoices bounds =
            bounds_of(config, choices, [](const std::string&, std::size_t count, const auto& work) {
                for (std::size_t k = 0; k < count; ++k)
                    work(k);
            });
        Ns best = kNothingFits;
        for (std::size_t k = 0; k < choices.size(); ++k)
            if (bounds.of[k].is_defined)
                best = std::min(best, best_of_divisions(config, choices[k], bounds.of[k], counts));
        const SearchResult result = search_cluster(config);
        ASSERT_EQ(result.best() == nullptr, best == kNothingFits);
        if (result.best() == nullptr) {
            ++counts.none_fits;
            continue;
        }
        EXPECT_EQ(result.best()->step_time, best);
        EXPECT_EQ(result.lower_bound, best) << "the space is small: the best plan is proven";
        unequal += !result.best()->choice.blocks.empty();
    }
    EXPECT_GT(counts.bounded, 30 * rounds(15));
    EXPECT_GT(2 * counts.sharp, counts.bounded);
    EXPECT_GT(counts.forwards_only, 0);
    EXPECT_GT(unequal, 0);
    EXPECT_LT(2 * counts.none_fits, rounds(15));
    for (const auto& [what, count] : {std::pair{"bounded", counts.bounded},
                                      {"sharp", counts.sharp},
                                      {"sharp_moved", counts.sharp_moved},
                                      {"none_fits", counts.none_fits},
                                      {"forwards_only", counts.forwards_only},
                                      {"unequal", unequal}})
        RecordProperty(what, count);
}

constexpr const char* kSmallWithEncoder = R"(
workload: {model: llama-3.2-1b, sequence_length: 4096, frozen: [encoder],
           encoder: {images: 4, tokens: 576, hidden: 1024, layers: 8, heads: 16, inner: 4096, inputs: 588}}
cluster: {hosts: 1, devices_per_host: 4, device: h100-sxm-80, memory: 14 GB}
training: {precision: bf16, optimizer: adamw}
search: {mini_batch: 16, tensor: [1], pipeline: [4], zero: [0], recompute: [none], micro_batch_sizes: [1]}
)";

TEST(TrainedParts, WriteAConfigWithTheSamePrediction) {
    const PlanSearch plans = search_best_plan(load(kSmallWithEncoder));
    ASSERT_TRUE(plans.best);
    const FoundPlan& best = *plans.result.best();
    EXPECT_FALSE(best.choice.blocks.empty()) << "the default split needs 14.5 GB";
    EXPECT_FALSE(plans.result.recipe) << "recipes are of models that are trained whole";
    Notices notices;
    const Job written = make_job(load(best_config_yaml(plans, "best.yaml")), notices);
    EXPECT_EQ(predicted_report(written, false).metrics.step_time, best.step_time);
}

TEST(TrainedParts, RefuseWhatIsNotCombined) {
    const auto refused = [](const std::vector<std::string>& set) {
        return refusal([&] { (void)search_cluster(load(kSmallWithEncoder, set)); });
    };
    expect_says(refused({"search.offload=all", "cluster.host_link={bandwidth: 25 GB/s}"}),
                {"search.offload", "offloads no stages of models with workload.encoder"});
    expect_says(refused({"search.tensor=[[2, 1, 1, 1]]"}), {"search.tensor", "have the same degrees"});
    expect_says(refused({"search.schedules=[seq1f1b]"}), {"search.schedules", "seq1f1b cuts sequences", "not cut"});
    expect_says(refused({"search.context=[2]"}), {"search.context", "has an encoder", "not divided", "list 1"});
    expect_says(refused({"search.tensor=[3]"}), {"the heads of llama-3.2-1b and of its encoder"});
    const std::string adapted = "workload={model: llama-3.2-1b, sequence_length: 4096, lora: {rank: 8}}";
    expect_says(refused({adapted, "search.offload=all", "cluster.host_link={bandwidth: 25 GB/s}"}),
                {"search.offload", "models with workload.lora"});
}

}  // namespace
}  // namespace pw

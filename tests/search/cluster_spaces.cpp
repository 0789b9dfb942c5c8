#include "tests/search/cluster_spaces.h"

#include "job/job.h"
#include "report/report.h"
#include "search/clusters/cluster_search.h"
#include "tests/support/config_text.h"
#include "workloads/error.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

namespace pw {

namespace {

// The keys of a plan, as the search and the loop both name it.
struct Numbers {
    int tensor, pipeline, context, expert, expert_tensor, size, zero;
    std::string recompute;
    Ordered order;

    std::string name() const {
        return fmt::format("{} x {}, {} {}, {} {} {} {} {}, {}, {} {}", order.schedule, order.chunks, order.slices,
                           order.lengths, tensor, pipeline, context, expert, expert_tensor, size, zero, recompute);
    }
};

// Returns the prediction of one config of the space; nothing if the config is a mistake.
std::optional<Tried> tried(const Numbers& own, const Space& space) {
    const std::vector<std::string> set = {
        fmt::format("parallel={{tensor: {}, pipeline: {}, context: {}, expert: {}, expert_tensor: {}, zero: {}, "
                    "recompute: {}}}",
                    own.tensor, own.pipeline, own.context, own.expert, own.expert_tensor, own.zero, own.recompute),
        fmt::format("pipeline={{schedule: {}, stages: {}, mini_batch: {}, micro_batch_size: {}{}{}}}",
                    own.order.schedule, own.pipeline * own.order.chunks, space.mini_batch, own.size,
                    space.pipeline_keys.empty() ? "" : ", " + space.pipeline_keys,
                    own.order.slices == 1
                        ? ""
                        : fmt::format(", slices: {}, slice_lengths: {}", own.order.slices, own.order.lengths))};
    try {
        Notices notices;
        const Report report = predicted_report(make_job(load(space.base, set), notices), false);
        return Tried{
            own.name(),
            fmt::format("{} {} {} {} {}", own.tensor, own.pipeline, own.context, own.expert, own.expert_tensor),
            report.metrics.step_time, largest_reserved(report), fits(report)};
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::BadInput) << error.what();
        return std::nullopt;
    }
}

// Predicts every config of the space with these degrees of tensor and pipeline.
void try_all(int tensor, int pipeline, const Space& space, std::vector<Tried>& all) {
    std::vector<std::pair<int, int>> divisions;
    for (const int expert : space.expert)
        for (const int parts : space.expert_tensor)
            divisions.emplace_back(expert, parts);
    for (const int context : space.context)
        for (const auto& [expert, parts] : divisions)
            for (const int size : space.sizes)
                for (const int zero : space.zero)
                    for (const std::string& recompute : space.recompute)
                        for (const Ordered& order : space.schedules) {
                            if (tensor * pipeline * context > space.devices)
                                continue;
                            if (pipeline * order.chunks > 16)  // blocks of the small model
                                continue;
                            const Numbers own{tensor, pipeline, context, expert, parts, size, zero, recompute, order};
                            if (const std::optional<Tried> one = tried(own, space))
                                all.push_back(*one);
                        }
}

std::string name_of_plan(const FoundPlan& plan) {
    const Parallel& own = plan.choice.degrees;
    return Numbers{own.tensor,
                   own.pipeline,
                   own.context,
                   own.expert,
                   own.expert_tensor,
                   plan.choice.micro_batch_size,
                   own.zero,
                   print_modules(own.recompute),
                   {plan.choice.schedule, plan.choice.chunks(), plan.choice.slices,
                    std::string(name_of(plan.choice.slice_lengths))}}
        .name();
}

}  // namespace

std::vector<Tried> every_plan(const Space& space) {
    std::vector<Tried> all;
    for (const int tensor : space.tensor)
        for (const int pipeline : space.pipeline)
            try_all(tensor, pipeline, space, all);
    std::stable_sort(all.begin(), all.end(), [](const Tried& a, const Tried& b) { return a.step_time < b.step_time; });
    return all;
}

void expect_the_same(const Space& space) {
    const SearchResult result = search_cluster(load(space.base, {fmt::format("pipeline={{{}}}", space.pipeline_keys)}));
    std::vector<Tried> all = every_plan(space);
    EXPECT_GT(all.size(), 100u);
    const std::size_t tried = all.size();
    std::erase_if(all, [](const Tried& plan) { return !plan.fits; });
    EXPECT_LT(all.size(), tried);
    ASSERT_FALSE(all.empty());
    EXPECT_EQ(result.lower_bound, all.front().step_time);
    std::vector<Ns> best;
    std::set<std::string> seen;
    for (const Tried& plan : all)
        if (seen.insert(plan.degrees).second)
            best.push_back(plan.step_time);
    const std::vector<const FoundPlan*> found = best_by_degrees(result, 10);
    ASSERT_EQ(found.size(), std::min<std::size_t>(10, best.size()));
    for (std::size_t place = 0; place < found.size(); ++place)
        EXPECT_EQ(found[place]->step_time, best[place]) << "place " << place;
    for (const FoundPlan& plan : result.plans) {
        const std::string name = name_of_plan(plan);
        const auto same = std::find_if(all.begin(), all.end(), [&](const Tried& one) { return one.name == name; });
        ASSERT_EQ(same != all.end(), plan.fits) << name;
        if (!plan.fits)
            continue;
        EXPECT_EQ(plan.step_time, same->step_time) << name;
        EXPECT_EQ(plan.most_reserved(), same->reserved) << name;
    }
}

}  // namespace pw

#include "search/clusters/choice_list.h"

#include "job/plan.h"
#include "job/slices.h"
#include "job/transformer_job.h"
#include "search/choice_ways.h"
#include "search/clusters/misfits.h"
#include "search/plan_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace pw {

namespace {

constexpr int kMostUsualChunks = 8;
constexpr int kMostUsualContext = 8, kLeastUsualTokens = 1024;  // of a device

template <class Fits>
std::vector<int> numbers_that(int most, Fits fits) {
    std::vector<int> numbers;
    for (int number = 1; number <= most; ++number)
        if (fits(number))
            numbers.push_back(number);
    return numbers;
}

bool is_power_of_two(int number) { return (number & (number - 1)) == 0; }

// Whether all stages have as many blocks, where the embedding and the head may count as blocks.
bool divides_blocks(const SearchSetup& setup, int stages) {
    return slots_of_stages(setup.workload.all_blocks(), stages) % stages == 0;
}

// Stages of equally many blocks, and powers of two, since few models have a number of blocks that clusters divide.
bool is_usual_pipeline(const SearchSetup& setup, int stages) {
    return divides_blocks(setup, stages) || (is_power_of_two(stages) && stages <= setup.workload.all_blocks());
}

// Stages of equally many blocks, unless the devices do not have equally many either.
bool are_usual_chunks(const SearchSetup& setup, int pipeline, int chunks) {
    return chunks == 1 || divides_blocks(setup, pipeline * chunks) ||
           (!divides_blocks(setup, pipeline) && is_usual_pipeline(setup, pipeline * chunks));
}

// Returns the values of the config, or the usual values if the config has none.
template <class T>
std::vector<T> listed_or(const std::vector<T>& listed, std::vector<T> usual) {
    return listed.empty() ? std::move(usual) : listed;
}

std::vector<int> usual_tensor(const SearchSetup& setup) {
    const auto devices = static_cast<int>(setup.parallel.ranks->devices.size());
    return numbers_that(std::min(devices, transformer_job_of(setup).fabric.domain), is_power_of_two);
}

std::vector<int> usual_pipeline(const SearchSetup& setup) {
    const auto devices = static_cast<int>(setup.parallel.ranks->devices.size());
    return numbers_that(std::min(devices, setup.workload.all_blocks() + 2),
                        [&](int stages) { return is_usual_pipeline(setup, stages); });
}

std::vector<int> usual_context(const SearchSetup& setup) {
    const int tokens = setup.workload.options.sequence_length;
    return numbers_that(kMostUsualContext, [&](int degree) {
        return is_power_of_two(degree) && (degree == 1 || tokens / degree >= kLeastUsualTokens);
    });
}

std::vector<int> usual_expert(const SearchSetup& setup) {
    const Transformer& model = *setup.workload.transformer;
    return numbers_that(model.experts ? model.experts->count : 1,
                        [&](int degree) { return degree == 1 || model.experts->count % degree == 0; });
}

std::vector<int> only_one(const SearchSetup&) { return {1}; }
std::vector<int> usual_zero(const SearchSetup&) { return {0, 1, 3}; }

std::vector<int> usual_recompute(const SearchSetup& setup) {
    std::vector<int> values;
    const bool saves_scores = setup.parallel.degrees.program().attention == AttentionKernels::Unfused;
    for (const Choice<ModuleSet>& word : kChoices<ModuleSet>)
        if (!has(word.value, BlockModule::Operators) &&
            (saves_scores || word.value != set_of(BlockModule::CoreAttention)))
            values.push_back(static_cast<int>(word.value));
    return values;
}

// A degree that a search chooses, and its usual values. The first rows change slowest.
struct SearchedDegree {
    Degree degree;
    std::vector<int> (*usual)(const SearchSetup& setup);
};
constexpr SearchedDegree kSearched[] = {
    {Degree::Pipeline, usual_pipeline}, {Degree::Tensor, usual_tensor},   {Degree::Context, usual_context},
    {Degree::Expert, usual_expert},     {Degree::ExpertTensor, only_one}, {Degree::Recompute, usual_recompute},
    {Degree::Zero, usual_zero},
};

const std::vector<std::vector<int>>& items_of(const DegreeLists& lists, Degree degree) {
    return lists[static_cast<std::size_t>(degree)];
}

// Returns the values to try of each degree: the config's values, or else the usual values.
DegreeLists lists_of(const SearchSetup& setup) {
    DegreeLists lists = setup.search.degrees;
    for (const SearchedDegree& searched : kSearched) {
        std::vector<std::vector<int>>& items = lists[static_cast<std::size_t>(searched.degree)];
        if (items.empty())
            for (const int value : searched.usual(setup))
                items.push_back({value});
    }
    return lists;
}

std::vector<int> sizes_to_try(const SearchSetup& setup) {
    return listed_or(setup.search.micro_batch_sizes, {1, 2, 4, 8});
}

// Returns the different values of all items.
std::set<int> values_in(const std::vector<std::vector<int>>& items) {
    std::set<int> values;
    for (const std::vector<int>& item : items)
        values.insert(item.begin(), item.end());
    return values;
}

// Whether the cluster has the ranks that such parts of experts need.
bool divides_experts(const SearchSetup& setup, const Parallel& degrees) {
    const Transformer& model = *setup.workload.transformer;
    return model.experts && model.experts->width % degrees.expert_tensor == 0 &&
           std::int64_t{degrees.expert} * degrees.expert_tensor <= std::ssize(setup.parallel.ranks->devices);
}

}  // namespace

std::vector<PlanChoice> ways_to_share_layers(const SearchSetup& setup) {
    const DegreeLists lists = lists_of(setup);
    PlanChoice way;
    way.degrees = setup.parallel.degrees;
    way.degrees.pipeline = 1;
    way.degrees.zero = 0;
    way.degrees.recompute = {};
    std::vector<PlanChoice> ways = {way};
    for (const DegreeFacts& facts : kDegrees) {
        if (!facts.divides_layers)
            continue;
        std::vector<PlanChoice> with_degree;
        for (PlanChoice& each : ways)
            for (const int value : values_in(items_of(lists, facts.degree))) {
                facts.set(each.degrees, value);
                with_degree.push_back(each);
            }
        ways = std::move(with_degree);
    }
    std::vector<PlanChoice> with_sizes;
    for (PlanChoice& each : ways) {
        Parallel& degrees = each.degrees;
        if (degrees.expert_tensor > 1 && !divides_experts(setup, degrees))
            continue;
        degrees.data = std::max(1, degrees.expert_ranks() / (degrees.tensor * degrees.context));
        degrees.sequence = takes_sequence(setup, degrees.tensor);
        if (setup.workload.most_tensor_ranks() % degrees.tensor == 0 && divides_sequences(setup, degrees.context))
            for (const int size : sizes_to_try(setup)) {
                each.micro_batch_size = size;
                with_sizes.push_back(each);
            }
    }
    return with_sizes;
}

namespace {

// Whether an item has a value for all stages, or a value for each device of the pipeline.
bool is_for(int pipeline, const std::vector<int>& item) { return item.size() == 1 || std::ssize(item) == pipeline; }

class ClusterChoiceList {
public:
    explicit ClusterChoiceList(const SearchSetup& setup) : setup_(setup), schedules_(searched_schedules(setup)) {}

    std::vector<PlanChoice> made() {
        PlanChoice choice;
        choice.degrees = setup_.parallel.degrees;
        choice.degrees.recomputed = {};
        add_degrees(choice, 0);
        if (choices_.empty())
            refuse_all();
        return std::move(choices_);
    }

private:
    // Tries all values of a row of kSearched, and of the rows after it.
    void add_degrees(const PlanChoice& choice, std::size_t row) {
        if (row == std::size(kSearched)) {
            add_schedules(choice);
            return;
        }
        const Degree degree = kSearched[row].degree;
        for (const std::vector<int>& item : items_of(lists_, degree)) {
            if (!is_for(choice.degrees.pipeline, item))
                continue;
            PlanChoice with_degree = choice;
            set_degree(with_degree, facts_of(degree), item);
            add_degrees(with_degree, row + 1);
        }
    }

    static void set_degree(PlanChoice& choice, const DegreeFacts& facts, const std::vector<int>& item) {
        if (item.size() > 1 && choice.of_stages.empty())
            choice.of_stages.assign(item.size(), choice.degrees);
        facts.set(choice.degrees, item.front());
        for (std::size_t device = 0; device < choice.of_stages.size(); ++device)
            facts.set(choice.of_stages[device], item[item.size() == 1 ? 0 : device]);
    }

    void add_schedules(PlanChoice choice) {
        const int pipeline = choice.degrees.pipeline;
        const std::vector<int> chunks = listed_or(
            setup_.search.chunks, numbers_that(pipeline == 1 ? 1 : kMostUsualChunks,
                                               [&](int each) { return are_usual_chunks(setup_, pipeline, each); }));
        for (const int size : sizes_)
            for (const std::string& schedule : schedules_)
                for (const int each : chunks) {
                    choice.micro_batch_size = size;
                    choice.schedule = schedule;
                    choice.stages = pipeline * each;
                    add_slicings(choice);
                }
    }

    void add_slicings(const PlanChoice& whole) {
        for (PlanChoice& choice : ways_to(WaysTo::CutSequences, setup_, whole)) {
            const Misfit misfit = complete_choice(setup_, choice);
            worst_ = std::max(worst_, misfit);
            if (misfit == Misfit::None)
                std::ranges::move(ways_to(WaysTo::SaveMemory, setup_, choice), std::back_inserter(choices_));
        }
    }

    [[noreturn]] void refuse_all() const { refuse_misfit(worst_, setup_); }

    const SearchSetup& setup_;
    DegreeLists lists_ = lists_of(setup_);
    std::vector<int> sizes_ = sizes_to_try(setup_);
    std::vector<std::string> schedules_;
    std::vector<PlanChoice> choices_;
    Misfit worst_ = Misfit::None;
};

// Every list of values by device must be as long as some pipeline.
void check_lengths(const SearchSetup& setup, const DegreeFacts& facts, const DegreeLists& lists) {
    const std::vector<std::vector<int>>& items = items_of(lists, facts.degree);
    const std::set<int> pipelines = values_in(items_of(lists, Degree::Pipeline));
    for (std::size_t k = 0; k < items.size(); ++k)
        if (std::ranges::none_of(pipelines, [&](int pipeline) { return is_for(pipeline, items[k]); }))
            setup.fail_at(fmt::format("search.{}[{}]", facts.name, k),
                          fmt::format("'search.{}[{}]' has {} values, and no pipeline of this search has {} devices",
                                      facts.name, k, items[k].size(), items[k].size()),
                          fmt::format("write a value for each device of a pipeline, of which there are {} "
                                      "(search.pipeline)",
                                      fmt::join(pipelines, ", ")));
}

// What is not combined with encoders, and with layers that are not trained. Offload is counted for stages that all
// go back.
void check_unlike_blocks(const SearchSetup& setup, const DegreeLists& lists) {
    for (const DegreeFacts& facts : kDegrees)
        for (const std::vector<int>& item : items_of(lists, facts.degree))
            if (setup.workload.encoder && item.size() > 1)
                setup.fail_at(fmt::format("search.{}", facts.name),
                              "stages of a model with an encoder have the same degrees in this version",
                              "list single values, or remove workload.encoder");
    const WorkloadConfig& workload = setup.workload;
    for (const std::string& name : setup.search.schedules)
        if (workload.encoder && !searches_all_schedules(setup.search) &&
            searched_schedule(setup, name).cuts_sequences())
            setup.fail_at("search.schedules",
                          fmt::format("schedule {} cuts sequences into slices, and sequences of a model with an "
                                      "encoder are not cut in this version",
                                      name),
                          "list other schedules, or remove workload.encoder");
    const struct {
        const char* key;
        bool is_set;
    } keys[] = {{"workload.encoder", workload.encoder.has_value()},
                {"workload.frozen", !workload.frozen.empty()},
                {"workload.lora", workload.lora.has_value()}};
    for (const auto& [key, is_set] : keys)
        if (is_set && setup.search.offload != SearchConfig::Recompute::None)
            setup.fail_at("search.offload",
                          fmt::format("a search offloads no stages of models with {} in this version", key),
                          "remove search.offload, and simulate plans with pipeline.offload");
}

void check_searched(const SearchSetup& setup) {
    const DegreeLists lists = lists_of(setup);
    for (const DegreeFacts& facts : kDegrees)
        if (facts.by_stage)
            check_lengths(setup, facts, lists);
    check_unlike_blocks(setup, lists);
    for (const std::string& name : searched_schedules(setup)) {
        const Schedule& schedule = searched_schedule(setup, name);
        if (schedule.asynchronous() || !schedule.trains)
            setup.fail_at("search.schedules",
                          fmt::format("schedule {} {}, and the search for a cluster compares whole steps", name,
                                      schedule.trains ? "updates without a flush" : "has no backward passes"),
                          "list schedules that flush, or all of them: schedules: all");
        for (const char* key : {"slices", "slice_lengths"})
            if (const std::string given = fmt::format("pipeline.{}", key);
                schedule.cuts_sequences() && setup.places.contains(given))
                setup.fail_at(given, fmt::format("the search for a cluster chooses how {} cuts sequences", name),
                              fmt::format("write what to try as search.{}, or remove the key", key));
    }
    if (!setup.pipeline.offload.stages.empty())
        setup.fail_at("pipeline.offload", "the search for a cluster chooses what it offloads",
                      "write search.offload: all, or auto, in place of the key");
    check_searched_offload(setup, {});
    if (!setup.pipeline.micro_batch_lengths.empty())
        setup.fail_at("pipeline.micro_batch_lengths", "the search for a cluster has micro-batches of equal length",
                      "remove the key");
}

}  // namespace

std::vector<PlanChoice> cluster_choices(const SearchSetup& setup) {
    check_searched(setup);
    return ClusterChoiceList(setup).made();
}

std::optional<PlanChoice> choice_of(const Recipe& recipe, const SearchSetup& setup) {
    PlanChoice choice;
    choice.degrees = setup.parallel.degrees;
    choice.degrees.tensor = recipe.tensor;
    choice.degrees.pipeline = recipe.pipeline;
    choice.degrees.context = recipe.context;
    choice.degrees.expert = recipe.expert;
    choice.degrees.expert_tensor = 1;
    choice.degrees.zero = recipe.zero;
    choice.degrees.zero_group = 0;
    choice.degrees.recompute = recipe.recompute;
    choice.degrees.recomputed = {};
    choice.stages = recipe.pipeline * recipe.chunks;
    choice.micro_batch_size = recipe.micro_batch_size;
    for (const Schedule& schedule : schedules())
        if (schedule.usual) {
            choice.schedule = schedule.name;
            if (complete_choice(setup, choice) == Misfit::None)
                return choice;
        }
    return std::nullopt;
}

}  // namespace pw

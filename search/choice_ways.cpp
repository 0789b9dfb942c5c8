#include "search/choice_ways.h"

#include "job/plan.h"
#include "job/slices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace pw {

namespace {

// A member of PlanChoice.
struct Way {
    WaysTo part;
    void (*add)(const SearchSetup& setup, PlanChoice choice, std::vector<PlanChoice>& choices);  // with each value
    bool (*is_same)(const PlanChoice& a, const PlanChoice& b);
    void (*set)(const PlanChoice& choice, Setup& chosen);
    std::string (*words)(const PlanChoice& choice);  // empty if as usual (null: words of another row have it)

    constexpr Way set_by(void (*function)(const PlanChoice&, Setup&)) const {
        Way way = *this;
        way.set = function;
        return way;
    }
};

template <class Value>
void put_value(const Value& value, Value& place) {
    place = value;
}
void put_value(int count, std::vector<int>& stages) { stages = first_stages(count); }

// `values` returns what to try for the member with the values of the rows before. `place` leads from the block
// `pipeline` to the member of a setup.
template <auto member, auto values, auto... place>
constexpr Way way_to(WaysTo part, std::string (*words)(const PlanChoice&) = nullptr) {
    return {part,
            [](const SearchSetup& setup, PlanChoice choice, std::vector<PlanChoice>& choices) {
                for (auto& value : values(setup, choice)) {
                    choice.*member = std::move(value);
                    choices.push_back(choice);
                }
            },
            [](const PlanChoice& a, const PlanChoice& b) { return a.*member == b.*member; },
            [](const PlanChoice& choice, Setup& chosen) { put_value(choice.*member, (chosen.pipeline.*....*place)); },
            words};
}

template <class Value>
std::vector<Value> listed_or_usual(const std::vector<Value>& listed, std::vector<Value> usual) {
    return listed.empty() ? std::move(usual) : listed;
}

std::vector<int> slices_to_try(const SearchSetup& setup, const PlanChoice& choice) {
    const Schedule& schedule = searched_schedule(setup, choice.schedule);
    if (!schedule.cuts_sequences())
        return {1};
    return listed_or_usual(setup.search.slices,
                           searches_cluster(setup) ? std::vector{2, 4, 8} : std::vector{slices_of(setup, schedule)});
}

std::vector<SliceLengths> lengths_to_try(const SearchSetup& setup, const PlanChoice& choice) {
    using enum SliceLengths;
    if (choice.slices == 1)
        return {Even};
    return listed_or_usual(setup.search.slice_lengths, searches_cluster(setup)
                                                           ? std::vector{Even, Time}
                                                           : std::vector{setup.pipeline.slice_lengths});
}

// The tokens of slices hold for as many slices: of a search that has no numbers of slices.
void set_slices(const PlanChoice& choice, Setup& chosen) {
    PipelineConfig& pipeline = chosen.pipeline;
    pipeline.slices = schedule_named(chosen, choice.schedule).cuts_sequences() ? choice.slices : 0;
    if (std::ssize(pipeline.slice_tokens) != choice.slices)
        pipeline.slice_tokens.clear();
}

std::string words_of_slices(const PlanChoice& choice) {
    return choice.slices == 1 ? ""
                              : fmt::format("{} slices{}", choice.slices,
                                            choice.slice_lengths == SliceLengths::Time ? " of equal time" : "");
}

// Returns the numbers of first stages that are recomputed, or offloaded.
std::vector<int> counts_of_first(SearchConfig::Recompute which, int stages) {
    if (which == SearchConfig::Recompute::None)
        return {0};
    if (which == SearchConfig::Recompute::All)
        return {stages};
    std::vector<int> counts(static_cast<std::size_t>(stages) + 1);
    std::iota(counts.begin(), counts.end(), 0);
    return counts;
}

// Later slices read what stages that recompute or offload would not keep.
std::vector<int> recomputed_to_try(const SearchSetup& setup, const PlanChoice& choice) {
    std::vector<int> counts = counts_of_first(setup.search.recompute, choice.stages);
    if (choice.slices > 1)
        std::erase_if(counts, [](int count) { return count > 0; });
    return counts;
}

std::string words_of_recomputed(const PlanChoice& choice) {
    if (choice.recomputed == 0)
        return "";
    const std::string text = fmt::format("{} of the stages recomputed", choice.recomputed);
    return choice.layers.empty()      ? text
           : choice.layers.size() > 3 ? fmt::format("{} in {} layers", text, choice.layers.size())
                                      : fmt::format("{} in {}", text, fmt::join(choice.layers, " "));
}

using LayerNames = std::vector<std::string>;

std::vector<LayerNames> layers_to_try(const SearchSetup& setup, const PlanChoice& choice) {
    if (choice.recomputed == 0)
        return {LayerNames{}};
    return listed_or_usual(setup.search.recompute_layers, {setup.pipeline.recompute_layers});
}

void set_layers(const PlanChoice& choice, Setup& chosen) {
    if (!choice.is_of_transformer())
        chosen.pipeline.recompute_layers = choice.layers;
}

// Values of the search's key if any stage is recomputed.
template <std::vector<int> SearchConfig::*key>
std::vector<int> if_recomputed(const SearchSetup& setup, const PlanChoice& choice) {
    return choice.recomputed == 0 ? std::vector{0} : listed_or_usual(setup.search.*key, {0});
}

std::string words_of_saved(const PlanChoice& choice) {
    return choice.saved == 0
               ? ""
               : fmt::format("{} micro-batch{} of each window saved", choice.saved, choice.saved == 1 ? "" : "es");
}

std::string words_of_ahead(const PlanChoice& choice) {
    return choice.ahead == Recomputation::kByCosts ? "in idle time"
           : choice.ahead == 0                     ? ""
                                                   : fmt::format("{} recomputed ahead", choice.ahead);
}

// No plan recomputes and offloads.
std::vector<int> offloaded_to_try(const SearchSetup& setup, const PlanChoice& choice) {
    const bool may_offload = choice.recomputed == 0 && choice.slices == 1;
    return counts_of_first(may_offload ? setup.search.offload : SearchConfig::Recompute::None, choice.stages);
}

std::vector<int> copies_ahead_to_try(const SearchSetup& setup, const PlanChoice& choice) {
    return choice.offloaded == 0 ? std::vector{1} : listed_or_usual(setup.search.offload_ahead, {1});
}

std::string words_of_offloaded(const PlanChoice& choice) {
    if (choice.offloaded == 0)
        return "";
    return fmt::format("{} of the stages offloaded", choice.offloaded) +
           (choice.offload_ahead > 1 ? fmt::format(", copies of {} tasks", choice.offload_ahead) : "");
}

using Pipeline = PipelineConfig;
using enum WaysTo;

constexpr Way kWays[] = {
    way_to<&PlanChoice::slices, slices_to_try, &Pipeline::slices>(CutSequences, words_of_slices).set_by(set_slices),
    way_to<&PlanChoice::slice_lengths, lengths_to_try, &Pipeline::slice_lengths>(CutSequences),
    way_to<&PlanChoice::recomputed, recomputed_to_try, &Pipeline::recompute, &Recomputation::stages>(
        SaveMemory, words_of_recomputed),
    way_to<&PlanChoice::layers, layers_to_try, &Pipeline::recompute_layers>(SaveMemory).set_by(set_layers),
    way_to<&PlanChoice::saved, if_recomputed<&SearchConfig::recompute_saved>, &Pipeline::recompute,
           &Recomputation::saved>(SaveMemory, words_of_saved),
    way_to<&PlanChoice::ahead, if_recomputed<&SearchConfig::recompute_ahead>, &Pipeline::recompute,
           &Recomputation::ahead>(SaveMemory, words_of_ahead),
    way_to<&PlanChoice::offloaded, offloaded_to_try, &Pipeline::offload, &Offloading::stages>(SaveMemory,
                                                                                              words_of_offloaded),
    way_to<&PlanChoice::offload_ahead, copies_ahead_to_try, &Pipeline::offload, &Offloading::ahead>(SaveMemory)};

}  // namespace

std::vector<PlanChoice> ways_to(WaysTo part, const SearchSetup& setup, PlanChoice choice) {
    std::vector<PlanChoice> choices{std::move(choice)};
    for (const Way& way : kWays) {
        if (way.part != part)
            continue;
        std::vector<PlanChoice> tried;
        for (PlanChoice& before : choices)
            way.add(setup, std::move(before), tried);
        choices = std::move(tried);
    }
    return choices;
}

bool are_same_ways(const PlanChoice& a, const PlanChoice& b) {
    return std::ranges::all_of(kWays, [&](const Way& way) { return way.is_same(a, b); });
}

void set_ways(const PlanChoice& choice, Setup& chosen) {
    for (const Way& way : kWays)
        way.set(choice, chosen);
}

std::vector<std::string> words_of_ways(WaysTo part, const PlanChoice& choice) {
    std::vector<std::string> words;
    for (const Way& way : kWays)
        if (way.part == part && way.words != nullptr)
            if (std::string text = way.words(choice); !text.empty())
                words.push_back(std::move(text));
    return words;
}

}  // namespace pw

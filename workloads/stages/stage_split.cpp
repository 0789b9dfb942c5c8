#include "workloads/stages/stage_split.h"

#include "workloads/error.h"
#include "workloads/stages/chain_partition.h"
#include "workloads/text/yaml.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <map>
#include <set>
#include <utility>

namespace pw {

namespace {

int layers_in(const LayerGraph& graph) { return static_cast<int>(num_vertices(graph)); }

// "layer3.0.conv1" has the prefixes "layer3" and "layer3.0".
bool starts_with_part(std::string_view name, std::string_view prefix) {
    return name.starts_with(prefix) && (name.size() == prefix.size() || name[prefix.size()] == '.');
}

std::string top_level_names(const LayerGraph& graph) {
    std::string text;
    std::string_view last;
    for (int layer = 0; layer < layers_in(graph); ++layer) {
        const std::string_view name = graph[layer].name;
        const std::string_view top = name.substr(0, name.find('.'));
        if (top != last)
            text += fmt::format("{}{}", text.empty() ? "" : ", ", top);
        last = top;
    }
    return text;
}

// Returns the nearest of the layers' names and their prefixes.
std::string nearest_name(const LayerGraph& graph, std::string_view word) {
    std::set<std::string_view> known;
    for (int layer = 0; layer < layers_in(graph); ++layer) {
        const std::string_view name = graph[layer].name;
        for (auto dot = name.find('.'); dot != name.npos; dot = name.find('.', dot + 1))
            known.insert(name.substr(0, dot));
        known.insert(name);
    }
    for (std::size_t dot = word.find('.'); dot != word.npos; dot = word.find('.', dot + 1))
        if (known.contains(word.substr(dot + 1)))  // "transformer.h.2"
            return fmt::format("did you mean '{}'? ", word.substr(dot + 1));
    const auto close = nearest(word, {known.begin(), known.end()});
    return close ? fmt::format("did you mean '{}'? ", *close) : "";
}

// "layers h.0 to h.3": the layers that differ from the word in its last number. Empty if there are none.
std::string numbered_like(const LayerGraph& graph, const std::string& word) {
    const std::size_t end = word.find_last_not_of("0123456789");
    if (end == std::string::npos || end + 1 == word.size())
        return {};
    const std::string front = word.substr(0, end + 1);
    int last = -1;
    for (int layer = 0; layer < layers_in(graph); ++layer)
        while (starts_with_part(graph[layer].name, fmt::format("{}{}", front, last + 1)))
            ++last;
    return last < 1 ? "" : fmt::format("there are {}0 to {}{}; ", front, front, last);
}

[[noreturn]] void fail_unknown(const LayerGraph& graph, int stage, const std::string& name) {
    const std::string numbered = numbered_like(graph, name);
    if (!name.empty() && name.find_first_not_of("0123456789") == std::string::npos)
        fail("stage {}: no layer '{}'; a split has names of layers, not how many a stage has; the model has {}", stage,
             name, top_level_names(graph));
    fail("stage {}: no layer '{}'; {}the model has {}", stage, name,
         numbered.empty() ? nearest_name(graph, name) : numbered, top_level_names(graph));
}

void check_stage_count(const LayerGraph& graph, int stages, const CutPlaces& places = {}) {
    const int most = places.empty() ? layers_in(graph) : static_cast<int>(places.size());
    const char* const each = places.empty() ? "layer" : "block";
    if (stages < 1 || stages > most)
        fail("{} stages for {} {}s; every stage needs a {}, so take 1 to {} stages", stages, most, each, each, most);
}

void check_all_placed(const LayerGraph& graph, const StageSplit& split) {
    const auto missing = std::find(split.stage_of.begin(), split.stage_of.end(), -1);
    if (missing == split.stage_of.end())
        return;
    const auto layer = static_cast<int>(missing - split.stage_of.begin());
    int least = 0;
    for (const int input : inputs_of_layer(graph, layer))
        least = std::max(least, split.stage_of[input]);
    fail(
        "layer '{}' is in no stage ({} of {} layers are); add it to stage {}, or to a later one that its readers allow",
        graph[layer].name, split.stage_of.size() - std::count(split.stage_of.begin(), split.stage_of.end(), -1),
        split.stage_of.size(), least);
}

void check_edges_run_forward(const LayerGraph& graph, const StageSplit& split) {
    for (int layer = 0; layer < layers_in(graph); ++layer)
        for (const int input : inputs_of_layer(graph, layer)) {
            const int stage = split.stage_of[layer];
            const int made = split.stage_of[input];
            if (made > stage)
                fail(
                    "layer '{}' of stage {} reads '{}' of the later stage {}; move '{}' to stage {} or later, or '{}' "
                    "to stage {} or earlier",
                    graph[layer].name, stage, graph[input].name, made, graph[layer].name, made, graph[input].name,
                    stage);
        }
}

}  // namespace

StageSplit split_at_layers(const LayerGraph& graph, const std::vector<int>& starts) {
    StageSplit split;
    split.layers.resize(starts.size());
    for (int layer = 0, stage = -1; layer < layers_in(graph); ++layer) {
        while (stage + 1 < static_cast<int>(starts.size()) && starts[stage + 1] == layer)
            ++stage;
        split.layers[stage].push_back(layer);
        split.stage_of.push_back(stage);
    }
    return split;
}

int first_empty_stage(const StageSplit& split) {
    const auto found = std::ranges::find_if(split.layers, &std::vector<int>::empty);
    return found == split.layers.end() ? -1 : static_cast<int>(found - split.layers.begin());
}

StageSplit split_by_lists(const LayerGraph& graph, const std::vector<std::vector<std::string>>& names) {
    StageSplit split;
    split.layers.resize(names.size());
    split.stage_of.assign(num_vertices(graph), -1);
    for (int stage = 0; stage < split.stages(); ++stage) {
        auto& layers = split.layers[stage];
        for (const std::string& name : names[stage]) {
            const int layer = find_layer(graph, name);
            if (layer < 0)
                fail_unknown(graph, stage, name);
            int& placed = split.stage_of[layer];
            if (placed >= 0)
                fail("layer '{}' is in stage {} and again in stage {}; list it once", name, placed, stage);
            placed = stage;
            layers.push_back(layer);
        }
        std::sort(layers.begin(), layers.end());
    }
    check_all_placed(graph, split);
    check_edges_run_forward(graph, split);
    return split;
}

StageSplit split_at(const LayerGraph& graph, const std::vector<std::string>& cuts) {
    std::vector<int> starts = {0};
    for (const std::string& cut : cuts) {
        const int stage = static_cast<int>(starts.size());
        int layer = 0;
        while (layer < layers_in(graph) && !starts_with_part(graph[layer].name, cut))
            ++layer;
        if (layer == layers_in(graph))
            fail_unknown(graph, stage, cut);
        if (layer == starts.back())
            fail(
                "stage {} gets no layer: the cut '{}' is where stage {} starts already; cuts name the first layer of "
                "each later stage",
                stage - 1, cut, stage - 1);
        if (layer < starts.back())
            fail("stage {}: the cut '{}' comes before the cut '{}'; list cuts in forward order", stage, cut,
                 cuts[stage - 2]);
        starts.push_back(layer);
    }
    return split_at_layers(graph, starts);
}

namespace {

// Returns the times of the ranges between places of cuts.
std::vector<Ns> times_between(const CutPlaces& places, const std::vector<Ns>& time) {
    if (places.empty())
        return time;
    std::vector<Ns> sums;
    for (std::size_t layer = 0, next = 0; layer < time.size(); ++layer) {
        if (next < places.size() && places[next] == static_cast<int>(layer)) {
            sums.push_back(0);
            ++next;
        }
        sums.back() += time[layer];
    }
    return sums;
}

// The same of stages that begin at these ranges.
StageSplit from_ranges(const LayerGraph& graph, std::vector<int> starts, const CutPlaces& places) {
    if (!places.empty())
        for (int& start : starts)
            start = places[static_cast<std::size_t>(start)];
    return split_at_layers(graph, starts);
}

}  // namespace

StageSplit split_even(const LayerGraph& graph, int stages, const CutPlaces& places) {
    check_stage_count(graph, stages, places);
    const std::int64_t ranges = places.empty() ? layers_in(graph) : std::ssize(places);
    std::vector<int> starts;
    for (std::int64_t stage = 0; stage < stages; ++stage)
        starts.push_back(static_cast<int>(stage * ranges / stages));
    return from_ranges(graph, std::move(starts), places);
}

StageSplit split_bottleneck(const LayerGraph& graph, const std::vector<double>& speeds, const std::vector<Ns>& time,
                            const CutPlaces& places) {
    check_stage_count(graph, static_cast<int>(speeds.size()), places);
    assert(time.size() == num_vertices(graph));
    std::vector<ChainDevice> devices;
    for (const double speed : speeds)
        devices.push_back({.speed = speed});
    return from_ranges(graph, partition_chain({.time = times_between(places, time)}, devices).starts, places);
}

StageSplit split_balanced(const LayerGraph& graph, const std::vector<Ns>& time, const StageHolders& holders,
                          const CutPlaces& places) {
    check_stage_count(graph, static_cast<int>(holders.device_of.size()), places);
    assert(time.size() == num_vertices(graph));
    return from_ranges(graph, balance_devices(times_between(places, time), holders), places);
}

namespace {

// Returns whether a stage's readers of a tensor add up to one piece of its gradient's sum.
bool send_one_gradient(const StageSplit& split, const std::vector<int>& readers, int stage) {
    int least = std::numeric_limits<int>::max(), most = -1, elsewhere = -1;  // groups
    for (const int reader : readers) {
        const int group = split.group_of(reader);
        if (split.stage_of[reader] == stage) {
            least = std::min(least, group);
            most = std::max(most, group);
        } else {
            elsewhere = std::max(elsewhere, group);
        }
    }
    return least == most || least > elsewhere;
}

bool is_read_elsewhere(const LayerGraph& graph, const StageSplit& split, int layer) {
    const auto read = out_edges(static_cast<std::size_t>(layer), graph);
    return std::any_of(read.first, read.second,
                       [&](const auto& edge) { return split.stage_of[target(edge, graph)] != split.stage_of[layer]; });
}

}  // namespace

int first_summed(const StageSplit& split, const std::vector<int>& readers) {
    return *std::max_element(readers.begin(), readers.end(), [&](int a, int b) {
        return std::pair(split.group_of(a), a) < std::pair(split.group_of(b), b);
    });
}

namespace {

// Returns the stages that receive a tensor on its way to stage `to`: empty stages, then `to`.
std::vector<int> way_between(const StageSplit& split, int from, int to) {
    std::vector<int> way;
    for (int stage = from + 1; stage <= to; ++stage)
        if (stage == to || split.layers[stage].empty())
            way.push_back(stage);
    return way;
}

}  // namespace

std::vector<Boundary> boundaries_of(const LayerGraph& graph, const StageSplit& split) {
    std::map<std::pair<int, int>, std::vector<BoundaryTensor>> tensors_between;  // stages
    for (int layer = 0; layer < layers_in(graph); ++layer) {
        const int from = split.stage_of[layer];
        if (!is_read_elsewhere(graph, split, layer))
            continue;
        const std::vector<int> readers = readers_of_layer(graph, layer);
        for (const int reader : readers) {
            const int to = split.stage_of[reader];
            if (to == from)
                continue;
            int last = from;
            for (const int next : way_between(split, from, to)) {
                std::vector<BoundaryTensor>& tensors = tensors_between[{last, next}];
                if (tensors.empty() || tensors.back().layer != layer)
                    tensors.push_back({layer, {}, send_one_gradient(split, readers, to)});
                tensors.back().readers.push_back(reader);
                last = next;
            }
        }
    }
    std::vector<Boundary> boundaries;
    for (auto& [stages, tensors] : tensors_between)
        boundaries.push_back({stages.first, stages.second, std::move(tensors)});
    return boundaries;
}

}  // namespace pw

#include "search/pipedream/pipedream.h"

#include "workloads/bounded.h"
#include "workloads/error.h"

#include <boost/range/iterator_range.hpp>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

namespace pw {
namespace {

constexpr std::size_t kMostStates = 60'000;
constexpr std::size_t kMostStatesOfLevels = 4'000;  // their tables are quadratic

// A way to cut: the layers before it.
struct State {
    Downset layers;
    double seconds = 0;
    double weights = 0, outputs = 0;  // bytes of all layers before it
    double crossing = 0;              // bytes that a cut here sends
};

enum class Aim { Time, Memory };  // Memory: the most that a stage needs, whatever the time

// The layers between two states on `devices` devices.
struct Stage {
    int from = 0, to = 0, devices = 0;
};

// Best partitions of the layers between a state and each later state, on each number of devices.
struct BestPartitions {
    std::vector<std::vector<double>> best;  // [state][devices]
    std::vector<std::vector<Stage>> last;   // the stage that ends there
};

class Planner {
public:
    Planner(const PipedreamGraph& graph, const PipedreamOptions& options) : graph_(graph), options_(options) {
        list_states(options.levels.size() > 1 ? kMostStatesOfLevels : kMostStates);
    }

    Partition plan() {
        Partition result;
        result.objective = solve(Aim::Time);
        result.candidates = candidates_;
        if (result.objective < kNever) {
            result.lower_bound =
                complete_ ? result.objective : states_[end()].seconds / static_cast<double>(total_devices());
            const int top = static_cast<int>(options_.levels.size()) - 1;
            append_stages(top, 0, end(), 1, result.stages);
            place_data_sources(result.stages);
            return result;
        }
        result.objective = 0;
        result.shortage = shortage();
        return result;
    }

private:
    int end() const { return static_cast<int>(states_.size()) - 1; }
    int devices(int level) const { return options_.levels[level].devices; }
    std::int64_t total_devices() const {
        std::int64_t total = 1;
        for (const PipedreamOptions::Level& level : options_.levels)
            total = bounded_product(total, level.devices);
        return total;
    }

    // State 0 has nothing before it. Ascending in time and, for equal times, in number of layers: no state comes
    // before a part of it.
    void list_states(std::size_t most);
    State state_of(const Downset& layers, const Downset& sent) const;

    bool before(int from, int to) const { return states_[from].layers.is_subset_of(states_[to].layers); }

    double need(int level, const Stage& stage, int used) const {
        const State &from = states_[stage.from], &to = states_[stage.to];
        const int ahead = devices(level) - used + (options_.count_own ? stage.devices : 0);
        const int in_flight = std::max(1, (ahead + stage.devices - 1) / stage.devices);
        return in_flight * (to.outputs - from.outputs + to.weights - from.weights);
    }

    // Returns the cost on a group, or device, of this level.
    double alone(int level, int from, int to) const {
        if (level > 0)
            return below_[level - 1][index(from, to)];
        return aim_ == Aim::Time ? states_[to].seconds - states_[from].seconds : 0;
    }

    double gradient_sum(int level, const Stage& stage) const {
        const double weights = states_[stage.to].weights - states_[stage.from].weights;
        const double sum = 4 * (stage.devices - 1) * weights / (stage.devices * options_.levels[level].bandwidth);
        return level > 0 ? sum / devices(level - 1) : sum;
    }

    double transfers(int level, const Stage& stage) const {
        if (!options_.charge_transfers || stage.from == 0)
            return 0;
        const double bytes = std::max(states_[stage.from].crossing, stage.to == end() ? 0 : states_[stage.to].crossing);
        return 2 * bytes / (options_.levels[level].bandwidth * stage.devices);
    }

    // `first` marks the first stage of the range that is partitioned, whose transfers count with the next stage. `used`
    // is the number of devices of this stage and all before it.
    double cost(int level, const Stage& stage, bool first, int used) const {
        if (aim_ == Aim::Memory)
            return std::max(need(level, stage, used), alone(level, stage.from, stage.to));
        if (options_.memory && need(level, stage, used) > static_cast<double>(*options_.memory))
            return kNever;
        const double work = (alone(level, stage.from, stage.to) + gradient_sum(level, stage)) / stage.devices;
        return first ? work : std::max(work, transfers(level, stage));
    }

    std::size_t index(int from, int to) const { return static_cast<std::size_t>(from) * states_.size() + to; }

    BestPartitions row_from(int level, int from, int to);
    void extend(int level, BestPartitions& row, int from, int to);
    bool hopeless(int level, const std::vector<double>& best, double work) const;
    double solve(Aim aim);
    void append_stages(int level, int from, int to, int replicas, std::vector<PlannedStage>& stages);
    void place_data_sources(std::vector<PlannedStage>& stages) const;
    std::vector<std::pair<Stage, int>> stages_of(const BestPartitions& row, int level, int to) const;
    Shortage shortage();

    const PipedreamGraph& graph_;
    const PipedreamOptions& options_;
    Aim aim_ = Aim::Time;
    bool complete_ = true;  // all ways to cut are states
    std::vector<State> states_;
    std::vector<std::vector<double>> below_;  // [level][index(from, to)]: on all devices of the level
    std::int64_t candidates_ = 0;
};

// The graph without data sources, and the numbers of its layers in the whole graph.
struct Core {
    Digraph graph;
    std::vector<int> layer;
};

Core core_of(const PipedreamGraph& whole) {
    Core core;
    std::vector<int> number(whole.layers.size(), -1);
    for (std::size_t layer = 0; layer < whole.layers.size(); ++layer)
        if (!whole.layers[layer].data_source) {
            number[layer] = static_cast<int>(core.layer.size());
            core.layer.push_back(static_cast<int>(layer));
        }
    core.graph = Digraph(core.layer.size());
    for (const auto& edge : boost::make_iterator_range(edges(whole.graph)))
        if (const int from = number[source(edge, whole.graph)], to = number[target(edge, whole.graph)];
            from >= 0 && to >= 0)
            add_edge(static_cast<std::size_t>(from), static_cast<std::size_t>(to), core.graph);
    return core;
}

int first_source(const Digraph& graph) {
    for (const auto layer : boost::make_iterator_range(vertices(graph)))
        if (in_degree(layer, graph) == 0)
            return static_cast<int>(layer);
    fail("the model has no layers to place");
}

// The layers whose outputs a cut after `layers` sends, as PipeDream counts them: the last layers, which no other layer
// of `layers` reads, and each ancestor of a last layer with a reader that is not an ancestor, even if no layer after
// the cut reads the output. That is more than necessary only if branches run in parallel.
Downset sent_after(const Digraph& graph, const std::vector<Downset>& ancestors, const Downset& layers) {
    Downset inner(layers.size());
    for (auto layer = layers.find_first(); layer != Downset::npos; layer = layers.find_next(layer))
        if (!inner.test(layer)) {
            inner |= ancestors[layer];
            inner.reset(layer);
        }
    Downset sent = layers - inner;
    const Downset last = sent;
    for (auto end = last.find_first(); end != Downset::npos; end = last.find_next(end))
        for (auto layer = ancestors[end].find_first(); layer != Downset::npos; layer = ancestors[end].find_next(layer))
            for (const auto reader : boost::make_iterator_range(adjacent_vertices(layer, graph)))
                if (!ancestors[end].test(reader))
                    sent.set(layer);
    return sent;
}

void Planner::list_states(std::size_t most) {
    const Core core = core_of(graph_);
    const std::size_t all = graph_.layers.size();
    states_.push_back({Downset(all)});
    const auto in_whole = [&](const Downset& set) {
        Downset layers(all);
        for (auto layer = set.find_first(); layer != Downset::npos; layer = set.find_next(layer))
            layers.set(static_cast<std::size_t>(core.layer[layer]));
        return layers;
    };
    const std::vector<Downset> ancestors = ancestors_of(core.graph);
    std::vector<Downset> sets = downsets_from(core.graph, first_source(core.graph), most);
    complete_ = !sets.empty();
    if (!complete_)
        sets = prefix_sets_of(core.graph);
    for (const Downset& set : sets)
        states_.push_back(state_of(in_whole(set), in_whole(sent_after(core.graph, ancestors, set))));
    std::sort(states_.begin() + 1, states_.end(), [](const State& a, const State& b) {
        const auto key = [](const State& state) { return std::pair(state.seconds, state.layers.count()); };
        return key(a) != key(b) ? key(a) < key(b) : a.layers < b.layers;
    });
    if (states_.back().layers.count() != core.layer.size())
        fail(
            "the layers make several graphs without a connection\n  help: PipeDream's search takes one; connect them, "
            "or choose another search.objective");
}

State Planner::state_of(const Downset& layers, const Downset& sent) const {
    State state{layers};
    for (auto layer = layers.find_first(); layer != Downset::npos; layer = layers.find_next(layer)) {
        const PipedreamLayer& load = graph_.layers[layer];
        state.seconds += load.seconds;
        state.weights += static_cast<double>(load.weights);
        state.outputs += static_cast<double>(load.output);
        if (sent.test(layer))
            state.crossing += static_cast<double>(load.output);
    }
    return state;
}

// Partitions whose last stage is [from, to), added to the best that end at `to`.
void Planner::extend(int level, BestPartitions& row, int from, int to) {
    const double least_work = aim_ == Aim::Time ? alone(level, from, to) : 0;
    for (int used = 2; used <= devices(level); ++used)
        for (int count = 1; count < used && !(options_.straight && count > 1); ++count) {
            const double before_it = row.best[from][used - count];
            double& best = row.best[to][used];
            if (before_it >= best || least_work >= best * count)
                continue;
            const Stage stage{from, to, count};
            ++candidates_;
            const double value = std::max(before_it, cost(level, stage, false, used));
            if (value < best) {
                best = value;
                row.last[to][used] = stage;
            }
        }
}

// Whether no last stage of this much work, or more, can be a part of something better.
bool Planner::hopeless(int level, const std::vector<double>& best, double work) const {
    if (aim_ == Aim::Memory || level > 0)
        return false;
    for (int used = 2; used <= devices(level); ++used)
        if (work < best[used] * (options_.straight ? 1 : used - 1))
            return false;
    return true;
}

// Fills in the states between `from` and `to`. All other states keep kNever.
BestPartitions Planner::row_from(int level, int from, int to) {
    const int most = devices(level);
    BestPartitions row;
    row.best.assign(states_.size(), {});
    row.last.assign(states_.size(), {});
    std::vector<int> inside;
    for (int state = from + 1; state <= to; ++state) {
        if (!before(from, state))
            continue;
        row.best[state].assign(static_cast<std::size_t>(most) + 1, kNever);
        row.last[state].resize(static_cast<std::size_t>(most) + 1);
        for (int count = 1; count <= (options_.straight ? 1 : most); ++count) {
            const Stage whole{from, state, count};
            row.best[state][count] = cost(level, whole, true, count);
            row.last[state][count] = whole;
        }
        for (auto cut = inside.rbegin(); cut != inside.rend(); ++cut) {  // in order of growing work
            if (hopeless(level, row.best[state], states_[state].seconds - states_[*cut].seconds))
                break;
            if (before(*cut, state))
                extend(level, row, *cut, state);
        }
        inside.push_back(state);
    }
    return row;
}

double Planner::solve(Aim aim) {
    aim_ = aim;
    below_.clear();
    const int top = static_cast<int>(options_.levels.size()) - 1;
    for (int level = 0; level < top; ++level) {
        std::vector<double> table(states_.size() * states_.size(), kNever);
        for (int from = 0; from < end(); ++from) {
            const BestPartitions row = row_from(level, from, end());
            for (int to = from + 1; to <= end(); ++to)
                if (!row.best[to].empty())
                    table[index(from, to)] = row.best[to].back();
        }
        below_.push_back(std::move(table));
    }
    return row_from(top, 0, end()).best[end()].back();
}

// Returns the stages in order, each with the devices used up to its end.
std::vector<std::pair<Stage, int>> Planner::stages_of(const BestPartitions& row, int level, int to) const {
    std::vector<std::pair<Stage, int>> stages;
    for (int used = devices(level); used > 0;) {
        const Stage& stage = row.last[to][used];
        stages.push_back({stage, used});
        to = stage.from;
        used -= stage.devices;
    }
    std::reverse(stages.begin(), stages.end());
    return stages;
}

void Planner::append_stages(int level, int from, int to, int replicas, std::vector<PlannedStage>& stages) {
    const BestPartitions row = row_from(level, from, to);
    for (const auto& [stage, used] : stages_of(row, level, to)) {
        if (level > 0) {
            const std::size_t first = stages.size();
            append_stages(level - 1, stage.from, stage.to, replicas * stage.devices, stages);
            for (std::size_t i = first; i < stages.size(); ++i)
                stages[i].time = std::max((stages[i].time + gradient_sum(level, stage)) / stage.devices,
                                          stage.from == from ? 0 : transfers(level, stage));
            continue;
        }
        PlannedStage& planned = stages.emplace_back();
        const Downset layers = states_[stage.to].layers - states_[stage.from].layers;
        for (auto layer = layers.find_first(); layer != Downset::npos; layer = layers.find_next(layer))
            planned.layers.push_back(static_cast<int>(layer));
        planned.replicas = replicas * stage.devices;
        planned.time = cost(level, stage, stage.from == from, used);
        planned.memory = bounded(need(level, stage, used));
    }
}

void Planner::place_data_sources(std::vector<PlannedStage>& stages) const {
    std::vector<std::size_t> stage_of(graph_.layers.size(), 0);
    for (std::size_t stage = 0; stage < stages.size(); ++stage)
        for (const int layer : stages[stage].layers)
            stage_of[layer] = stage;
    for (std::size_t layer = 0; layer < graph_.layers.size(); ++layer) {
        if (!graph_.layers[layer].data_source)
            continue;
        std::size_t first = out_degree(layer, graph_.graph) == 0 ? 0 : stages.size() - 1;
        for (const auto reader : boost::make_iterator_range(adjacent_vertices(layer, graph_.graph)))
            first = std::min(first, stage_of[reader]);
        stages[first].layers.push_back(static_cast<int>(layer));
    }
    for (PlannedStage& stage : stages)
        std::sort(stage.layers.begin(), stage.layers.end());
}

Shortage Planner::shortage() {
    const double least = solve(Aim::Memory);
    if (!options_.memory || least == kNever)
        fail_with(
            ExitCode::Infeasible,
            "{} layers make no pipeline of one device per stage on {} devices\n  help: every stage needs a layer; "
            "take fewer devices, or search.straight: false",
            states_[end()].layers.count(), total_devices());
    std::vector<PlannedStage> stages;
    append_stages(static_cast<int>(options_.levels.size()) - 1, 0, end(), 1, stages);
    const auto tightest = std::max_element(
        stages.begin(), stages.end(), [](const PlannedStage& a, const PlannedStage& b) { return a.memory < b.memory; });
    return {static_cast<int>(tightest - stages.begin()), bounded(least), *options_.memory};
}

}  // namespace

PipedreamGraph pipedream_graph(const Model& model, const Profile& profile, int samples) {
    PipedreamGraph result{Digraph(num_vertices(model.layers)), {}};
    const std::vector<Ns> times = layer_times(model.layers, profile, samples);
    for (std::size_t layer = 0; layer < times.size(); ++layer) {
        for (const int reader : readers_of_layer(model.layers, static_cast<int>(layer)))
            add_edge(layer, static_cast<std::size_t>(reader), result.graph);
        const LayerBytes bytes = raw_bytes(profile.layers[layer], samples);
        const bool free = times[layer] == 0 && bytes.output == 0 && bytes.weights == 0;
        result.layers.push_back({static_cast<double>(times[layer]) * 1e-9, bytes.output, bytes.weights,
                                 free && in_degree(layer, model.layers) == 0});
    }
    return result;
}

Partition plan_pipedream(const PipedreamGraph& graph, const PipedreamOptions& options) {
    assert(!options.levels.empty());
    return Planner(graph, options).plan();
}

}  // namespace pw

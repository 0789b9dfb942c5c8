#include "search/piper/piper_search.h"

#include "search/partition.h"
#include "workloads/rounding.h"

#include <algorithm>
#include <limits>
#include <set>

namespace pw {

namespace {

constexpr std::size_t kMostCells = 40'000'000;

}  // namespace

PiperSearch::PiperSearch(const PiperInstance& instance, bool data_parallel, const Downsets& sets, Deadline& deadline)
    : instance_(instance),
      sets_(sets),
      deadline_(deadline),
      most_replicas_(std::min(instance.devices, instance.microbatches)),
      work_(sets.count()),
      seen_(sets.count(), -1) {
    for (int replicas = 1; replicas <= (data_parallel ? most_replicas_ : 1); ++replicas)
        if (instance.microbatches % replicas == 0)
            replica_counts_.push_back(replicas);
    std::set<int> degrees;
    for (const PiperLayer& layer : instance.layers)
        for (const auto& [degree, options] : layer.options)
            if (degree <= instance.devices)
                degrees.insert(degree);
    degrees_.assign(degrees.begin(), degrees.end());
    std::vector<double> works(instance.layers.size(), kNever);
    for (const int degree : degrees_) {
        layers_.emplace_back();
        same_border_.push_back(true);
        for (std::size_t layer = 0; layer < works.size(); ++layer) {
            layers_.back().push_back(least_of(instance.layers[layer], degree));
            if (layers_.back().back().exists)
                works[layer] = std::min(works[layer], degree * layers_.back().back().own.time);
        }
    }
    for (int set = 0; set < sets_.count(); ++set)
        for (const auto& [layer, next] : sets_.steps_of(set))
            work_[next] = work_[set] + works[layer];
}

PiperSearch::Layer PiperSearch::least_of(const PiperLayer& layer, int degree) {
    Layer least;
    const auto found = layer.options.find(degree);
    if (found == layer.options.end() || found->second.empty())
        return least;
    const std::vector<PiperOption>& options = found->second;
    const PiperOption *fast = &options.front(), *slow = &options.back();
    if (slow->time < fast->time || (slow->time == fast->time && slow->recompute < fast->recompute))
        std::swap(fast, slow);
    least.exists = true;
    least.own = {.time = fast->time,
                 .parameters = std::min(fast->parameters, slow->parameters),
                 .memory_each = fast->memory_each,
                 .memory = fast->memory,
                 .least_memory_each = std::min(fast->memory_each, slow->memory_each),
                 .least_memory = std::min(fast->memory, slow->memory)};
    for (std::size_t i = 0; i < least.own.least_with.size(); ++i) {
        const double in_flight = static_cast<double>(i) + 1;
        least.own.least_with[i] =
            std::min(fast->memory_each * in_flight + fast->memory, slow->memory_each * in_flight + slow->memory);
    }
    for (std::size_t i = 0; i < layer.in.size(); ++i)
        least.sync_in.push_back(std::min(fast->sync_in[i], slow->sync_in[i]));
    for (std::size_t i = 0; i < layer.out.size(); ++i)
        least.sync_out.push_back(std::min(fast->sync_out[i], slow->sync_out[i]));
    if (fast->sync_in != slow->sync_in || fast->sync_out != slow->sync_out || fast->parameters != slow->parameters)
        same_border_.back() = false;
    return least;
}

bool PiperSearch::is_feasible_size() const {
    const std::size_t rows = static_cast<std::size_t>(sets_.count()) * (std::size_t(instance_.devices) + 1);
    return rows <= kMostCells / (std::size_t(most_replicas_) + 1);
}

std::size_t PiperSearch::state(int set, int devices, int replicas) const {
    return (static_cast<std::size_t>(set) * (instance_.devices + 1) + devices) * (most_replicas_ + 1) + replicas;
}

std::optional<PiperSplit> PiperSearch::below(double bound, PiperGoal goal) {
    bound_ = bound;
    goal_ = goal;
    states_.assign(static_cast<std::size_t>(sets_.count()) * (instance_.devices + 1) * (most_replicas_ + 1),
                   {kNever, -1, 0, 0});
    states_[0].most = 0;
    for (int set = 0; set + 1 < sets_.count() && !deadline_.passed(); ++set)
        extend_from(set);
    if (deadline_.passed())
        return {};
    collect(sets_.count() - 1);
    if (reached_.empty())
        return {};
    worst_ = *std::min_element(best_.begin(), best_.end());
    return split();
}

void PiperSearch::extend_from(int set) {
    first_ = set;
    collect(set);
    for (degree_ = 0; degree_ < degrees_.size() && !reached_.empty(); ++degree_) {
        ++stamp_;
        extend(set);
    }
}

// Collects the states of `set` that no state with no more devices and replicas equals.
void PiperSearch::collect(int set) {
    reached_.clear();
    best_.assign(static_cast<std::size_t>(instance_.devices) + 1, kNever);
    for (int replicas = 0; replicas <= most_replicas_; ++replicas) {
        double least = kNever;  // with these replicas or fewer, on fewer devices
        for (int devices = 0; devices <= instance_.devices; ++devices) {
            const double most = states_[state(set, devices, replicas)].most;
            if (most < std::min(least, best_[devices]))
                reached_.push_back({devices, replicas, most});
            best_[devices] = std::min(best_[devices], most);
            least = std::min(least, best_[devices]);
        }
    }
}

// Visits every set above `first` whose difference to it may still be a stage, depth first. It does so without
// recursion, since the path is as long as a stage has layers.
void PiperSearch::extend(int first) {
    way_.assign(1, {first, {}});
    while (!way_.empty()) {
        const auto steps = sets_.steps_of(way_.back().set);
        if (way_.back().next == steps.size()) {
            way_.pop_back();
            continue;
        }
        const auto& [layer, next] = steps[way_.back().next++];
        if (seen_[next] == stamp_)
            continue;
        seen_[next] = stamp_;
        if (!layers_[degree_][layer].exists)
            continue;
        const Load bigger = with(layer, way_.back().load);
        if (!may_grow(bigger))
            continue;
        ++stages_seen_;
        for (const int replicas : replica_counts_)
            if (can_be(bigger, replicas))
                offer(next, bigger, replicas);
        if (!deadline_.passed())
            way_.push_back({next, bigger});
    }
}

PiperSearch::Load PiperSearch::with(int number, Load load) const {
    const Layer& added = layers_[degree_][number];
    const PiperLayer& layer = instance_.layers[number];
    load.time += added.own.time;
    load.parameters += added.own.parameters;
    load.memory_each += added.own.memory_each;
    load.memory += added.own.memory;
    load.least_memory_each += added.own.least_memory_each;
    load.least_memory += added.own.least_memory;
    for (std::size_t i = 0; i < load.least_with.size(); ++i)
        load.least_with[i] += added.own.least_with[i];
    for (std::size_t i = 0; i < layer.in.size(); ++i)
        load.border += 2 * (instance_.edges[layer.in[i]].bytes + added.sync_in[i]);
    for (std::size_t i = 0; i < layer.out.size(); ++i) {
        const PiperEdge& edge = instance_.edges[layer.out[i]];
        if (sets_.contains(first_, edge.to)) {
            load.border += 2 * (edge.bytes + added.sync_out[i]);
            load.later += 2 * (edge.bytes + added.sync_out[i]);
            continue;
        }
        const auto& edges = instance_.layers[edge.to].in;
        const auto place = std::find(edges.begin(), edges.end(), layer.out[i]) - edges.begin();
        load.border -= 2 * (edge.bytes + layers_[degree_][edge.to].sync_in[place]);
    }
    return load;
}

double PiperSearch::time_of(const Load& load, double border, int replicas) const {
    const double share = 4.0 * (replicas - 1) / replicas / instance_.microbatches;
    return load.time / replicas + (border / replicas + share * load.parameters) / instance_.bandwidth;
}

// No choice of ways needs less memory.
double PiperSearch::memory_bound(const Load& load, int in_flight) {
    const auto known = std::min<std::size_t>(in_flight, load.least_with.size());
    return std::max(load.least_with[known - 1], load.least_memory_each * in_flight + load.least_memory);
}

bool PiperSearch::can_be(const Load& load, int replicas) const {
    const int in_flight = (reached_.front().replicas + replicas + replicas - 1) / replicas;
    const double memory = memory_bound(load, in_flight);
    if (goal_ == PiperGoal::Memory)
        return memory < bound_;
    return memory <= instance_.memory * (1 + kRounding) && time_of(load, load.later, replicas) < bound_;
}

bool PiperSearch::may_grow(const Load& load) const {
    return std::any_of(replica_counts_.rbegin(), replica_counts_.rend(),
                       [&](int replicas) { return can_be(load, replicas); });
}

bool PiperSearch::can_finish(int next, int devices, int replicas) const {
    if (next + 1 == sets_.count())
        return true;
    const int left = instance_.devices - devices;
    return left > 0 && replicas < most_replicas_ &&
           (goal_ == PiperGoal::Memory || (work_.back() - work_[next]) * (1 - kRounding) <= left * bound_);
}

bool PiperSearch::is_worth(int next, const Reached& from, int replicas, double cost) const {
    const int devices = from.devices + replicas * degrees_[degree_], sum = from.replicas + replicas;
    const double most = std::max(from.most, cost);
    return devices <= instance_.devices && sum <= most_replicas_ && most < bound_ &&
           most < states_[state(next, devices, sum)].most && can_finish(next, devices, sum);
}

void PiperSearch::reach(int next, const Reached& from, int replicas, double cost) {
    if (!is_worth(next, from, replicas, cost))
        return;
    states_[state(next, from.devices + replicas * degrees_[degree_], from.replicas + replicas)] = {
        std::max(from.most, cost), first_, degrees_[degree_], replicas};
}

// The cost of a stage grows with the micro-batches in flight. It is evaluated only if its lower bound would improve a
// state.
void PiperSearch::offer(int next, const Load& load, int replicas) {
    const double fastest = goal_ == PiperGoal::Memory ? 0 : time_of(load, load.border, replicas);
    std::optional<PiperStage> members;
    double lower = fastest, cost = 0;
    int known = 0, bounded = 0;  // micro-batches in flight of `cost`, and of `lower`
    for (const Reached& from : reached_) {
        const int in_flight = (from.replicas + 2 * replicas - 1) / replicas;
        if (lower >= bound_)
            return;
        if (goal_ != PiperGoal::Memory && memory_bound(load, in_flight) > instance_.memory * (1 + kRounding))
            return;
        if (!is_worth(next, from, replicas, lower * (1 - kRounding)))
            continue;
        const bool fits = load.memory_each * in_flight + load.memory <= instance_.memory;
        if (known != in_flight && fits && same_border_[degree_] && goal_ != PiperGoal::Memory) {
            known = in_flight;
            cost = fastest;
        }
        if (known != in_flight) {
            if (!members)
                members.emplace(stage(first_, next, degrees_[degree_], replicas));
            if (bounded != in_flight && goal_ == PiperGoal::Least) {
                bounded = in_flight;
                lower = members->least(PiperGoal::Part, in_flight, instance_.memory);
                if (!is_worth(next, from, replicas, lower * (1 - kRounding)))
                    continue;
            }
            known = in_flight;
            cost = lower = members->least(goal_, in_flight, instance_.memory);
        }
        reach(next, from, replicas, cost);
    }
}

std::vector<int> PiperSearch::layers_between(int set, int next) const {
    std::vector<int> layers;
    for (int layer = 0; layer < sets_.vertices; ++layer)
        if (sets_.contains(next, layer) && !sets_.contains(set, layer))
            layers.push_back(layer);
    return layers;
}

PiperStage PiperSearch::stage(int set, int next, int degree, int replicas) const {
    const std::vector<int> layers = layers_between(set, next);
    std::vector<bool> own(sets_.vertices);
    for (const int layer : layers)
        own[layer] = true;
    return PiperStage(instance_, layers, own, degree, replicas);
}

PiperSplit PiperSearch::split() const {
    const Reached best = *std::min_element(reached_.begin(), reached_.end(),
                                           [](const Reached& a, const Reached& b) { return a.most < b.most; });
    PiperSplit stages;
    int devices = best.devices, replicas = best.replicas;
    for (int set = sets_.count() - 1; set != 0;) {
        const State last = states_[state(set, devices, replicas)];
        stages.push_back({layers_between(last.from, set), last.degree, last.replicas,
                          (replicas + last.replicas - 1) / last.replicas});
        devices -= last.degree * last.replicas;
        replicas -= last.replicas;
        set = last.from;
    }
    return stages;
}

}  // namespace pw

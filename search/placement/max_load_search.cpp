#include "search/placement/max_load_search.h"

#include "search/partition.h"
#include "workloads/rounding.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace pw {

namespace {

// Work for accelerators. Groups that only a CPU can run have none.
double work_of(const PlacementGroup& group) { return group.on_accelerator ? group.accelerator_time : 0; }

// The most work that CPUs can take away in `time`, if groups could be cut.
double relief(const PlacementGroups& graph, double time) {
    std::vector<std::pair<double, const PlacementGroup*>> order;  // by a group's CPU time per work
    for (const PlacementGroup& group : graph.groups)
        if (work_of(group) > 0)
            order.emplace_back(group.cpu_time / work_of(group), &group);
    std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    double work = 0;
    for (const auto& [price, group] : order) {
        const double share = group->cpu_time <= time ? 1 : time / group->cpu_time;
        work += share * work_of(*group);
        time -= share * group->cpu_time;
    }
    return work;
}

double capacity_of(const PlacementGroups& graph, int cpus, int accelerators, double bound) {
    const double by_cpus = cpus == 0 ? 0 : relief(graph, cpus * bound);
    return accelerators == 0 ? by_cpus : accelerators * bound + by_cpus;
}

}  // namespace

double average_load(const PlacementGroups& graph, const Devices& devices) {
    double work = 0, largest = 0;
    for (const PlacementGroup& group : graph.groups) {
        const double alone = group.on_accelerator && devices.accelerators > 0 ? group.accelerator_time : kNever;
        largest = std::max(largest, devices.cpus > 0 ? std::min(alone, group.cpu_time) : alone);
        work += work_of(group);
    }
    double low = 0, high = devices.accelerators > 0 ? work : 0;
    for (int round = 0; round < 100 && devices.accelerators > 0; ++round) {
        const double middle = (low + high) / 2;
        (capacity_of(graph, devices.cpus, devices.accelerators, middle) < work ? low : high) = middle;
    }
    return std::max(low * (1 - kRounding), largest);
}

double load_of(const PlacementGroups& graph, const std::vector<int>& groups, bool on_cpu) {
    double load = 0;
    std::vector<int> inside(graph.nets.size());
    for (const int group : groups) {
        load += on_cpu ? graph.groups[group].cpu_time : graph.groups[group].accelerator_time;
        for (const int net : graph.groups[group].nets)
            ++inside[net];
    }
    for (std::size_t net = 0; net < inside.size() && !on_cpu; ++net)
        if (inside[net] > 0 && inside[net] < static_cast<int>(graph.nets[net].groups.size()))
            load += graph.nets[net].cost;
    return load;
}

MaxLoadSearch::MaxLoadSearch(const PlacementGroups& graph, const Devices& devices, const Downsets& sets,
                             Deadline& deadline)
    : graph_(graph), devices_(devices), sets_(sets), deadline_(deadline), work_(sets.count()), seen_(sets.count()) {
    for (int set = 0; set < sets_.count(); ++set)
        for (const auto& [group, next] : sets_.steps_of(set))
            work_[next] = work_[set] + work_of(graph_.groups[group]);
}

std::optional<PlacedStages> MaxLoadSearch::below(double bound) {
    start(bound);
    for (int set = 0; set + 1 < sets_.count() && !deadline_.passed(); ++set)
        extend_from(set);
    const auto end = most_.end() - (devices_.cpus + 1) * (devices_.accelerators + 1);
    if (deadline_.passed() || *std::min_element(end, most_.end()) == kNever)
        return {};
    return placement();
}

void MaxLoadSearch::start(double bound) {
    bound_ = bound;
    capacity_.clear();
    for (int cpus = 0; cpus <= devices_.cpus; ++cpus)
        for (int accelerators = 0; accelerators <= devices_.accelerators; ++accelerators)
            capacity_.push_back(capacity_of(graph_, devices_.cpus - cpus, devices_.accelerators - accelerators, bound) *
                                (1 + kRounding));
    most_.assign(capacity_.size() * sets_.count(), kNever);
    via_.assign(most_.size(), -1);
    most_[0] = 0;
    std::fill(seen_.begin(), seen_.end(), -1);
    inside_.assign(graph_.nets.size(), 0);
}

std::size_t MaxLoadSearch::state(int set, int cpus, int accelerators) const {
    return static_cast<std::size_t>(set) * capacity_.size() +
           static_cast<std::size_t>(cpus * (devices_.accelerators + 1) + accelerators);
}

void MaxLoadSearch::extend_from(int set) {
    first_ = set;
    collect(set);
    if (reached_.empty() && last_.empty())
        return;
    count_earlier(set);
    if (!last_.empty())
        finish(set);
    if (!reached_.empty())
        extend(set);
}

// Collects the states of `set` that are worth extending: none reaches it as well with no more devices.
void MaxLoadSearch::collect(int set) {
    reached_.clear();
    last_.clear();
    least_work_ = kNever;
    const double total = work_.back();
    for (int cpus = 0; cpus <= devices_.cpus; ++cpus)
        for (int accelerators = 0; accelerators <= devices_.accelerators; ++accelerators) {
            const int left = devices_.cpus + devices_.accelerators - cpus - accelerators;
            const Reached here{cpus, accelerators, most_[state(set, cpus, accelerators)]};
            const auto beats = [&](const Reached& other) {
                return other.cpus <= cpus && other.accelerators <= accelerators && other.most <= here.most;
            };
            if (here.most == kNever || left == 0 || std::any_of(reached_.begin(), reached_.end(), beats))
                continue;
            (left == 1 ? last_ : reached_).push_back(here);
            if (left == 1)
                continue;
            const auto at = static_cast<std::size_t>(cpus * (devices_.accelerators + 1) + accelerators);
            if (accelerators < devices_.accelerators)
                least_work_ = std::min(least_work_, total - capacity_[at + 1]);
            if (cpus < devices_.cpus)
                least_work_ = std::min(least_work_, total - capacity_[at + devices_.accelerators + 1]);
        }
}

void MaxLoadSearch::count_earlier(int set) {
    before_.assign(graph_.nets.size(), 0);
    for (int group = 0; group < sets_.vertices; ++group)
        if (sets_.contains(set, group))
            for (const int net : graph_.groups[group].nets)
                ++before_[net];
}

// One device is left: it takes the rest.
void MaxLoadSearch::finish(int set) {
    Load load;
    for (int group = 0; group < sets_.vertices; ++group)
        if (!sets_.contains(set, group))
            add(group, load);
    std::fill(inside_.begin(), inside_.end(), 0);
    ++stages_seen_;
    for (const Reached& from : last_) {
        if (from.accelerators < devices_.accelerators && fits(load))
            reach(sets_.count() - 1, from, false, load.accelerator + load.cut);
        if (from.cpus < devices_.cpus)
            reach(sets_.count() - 1, from, true, load.cpu);
    }
}

bool MaxLoadSearch::fits(const Load& load) const { return load.cpu_only == 0 && load.size <= devices_.memory; }

// Visits every downset above `first` whose difference to it may still be a stage, depth first. It does so without
// recursion, since the path is as long as a stage has groups.
void MaxLoadSearch::extend(int first) {
    way_.assign(1, {first, {}, -1});
    while (!way_.empty()) {
        const auto steps = sets_.steps_of(way_.back().set);
        if (way_.back().next == steps.size()) {
            if (way_.back().group >= 0)
                remove(way_.back().group);
            way_.pop_back();
            continue;
        }
        const auto& [group, next] = steps[way_.back().next++];
        if (seen_[next] == first_)
            continue;
        seen_[next] = first_;
        Load bigger = way_.back().load;
        add(group, bigger);
        const bool accelerator = fits(bigger) && bigger.accelerator + bigger.earlier < bound_;
        const bool cpu = devices_.cpus > 0 && bigger.cpu < bound_;
        if ((accelerator || cpu) && work_[next] >= least_work_)
            offer(next, bigger, accelerator, cpu);
        if ((accelerator || cpu) && !deadline_.passed())
            way_.push_back({next, bigger, group});
        else
            remove(group);
    }
}

void MaxLoadSearch::add(int group, Load& load) {
    const PlacementGroup& added = graph_.groups[group];
    load.accelerator += added.accelerator_time;
    load.cpu += added.cpu_time;
    load.size += added.size;
    load.cpu_only += added.on_accelerator ? 0 : 1;
    for (const int at : added.nets) {
        const PlacementNet& net = graph_.nets[at];
        const int inside = ++inside_[at];
        if (inside == 1) {
            load.cut += net.cost;
            if (before_[at] > 0)
                load.earlier += net.cost;
        }
        if (inside == static_cast<int>(net.groups.size()))
            load.cut -= net.cost;
    }
}

void MaxLoadSearch::remove(int group) {
    for (const int net : graph_.groups[group].nets)
        --inside_[net];
}

void MaxLoadSearch::offer(int next, const Load& load, bool accelerator, bool cpu) {
    ++stages_seen_;
    accelerator = accelerator && load.accelerator + load.cut < bound_;
    if (!accelerator && !cpu)
        return;
    for (const Reached& from : reached_) {
        if (accelerator && from.accelerators < devices_.accelerators)
            reach(next, from, false, load.accelerator + load.cut);
        if (cpu && from.cpus < devices_.cpus)
            reach(next, from, true, load.cpu);
    }
}

void MaxLoadSearch::reach(int next, const Reached& from, bool on_cpu, double load) {
    const double most = std::max(from.most, load);
    const int cpus = from.cpus + (on_cpu ? 1 : 0), accelerators = from.accelerators + (on_cpu ? 0 : 1);
    const std::size_t at = state(next, cpus, accelerators);
    if (most >= bound_ || most >= most_[at] || work_.back() - work_[next] > capacity_[at % capacity_.size()])
        return;
    most_[at] = most;
    via_[at] = 2 * first_ + (on_cpu ? 1 : 0);
}

std::vector<int> MaxLoadSearch::groups_between(int smaller, int bigger) const {
    std::vector<int> groups;
    for (int group = 0; group < sets_.vertices; ++group)
        if (sets_.contains(bigger, group) && !sets_.contains(smaller, group))
            groups.push_back(group);
    return groups;
}

PlacedStages MaxLoadSearch::placement() const {
    int set = sets_.count() - 1;
    const auto end = most_.end() - static_cast<std::ptrdiff_t>(capacity_.size());
    auto devices = std::min_element(end, most_.end()) - end;
    PlacedStages stages;
    while (set != 0) {
        const std::int32_t via = via_[static_cast<std::size_t>(set) * capacity_.size() + devices];
        const bool on_cpu = via % 2 == 1;
        const std::vector<int> groups = groups_between(via / 2, set);
        stages.push_back({groups, on_cpu, load_of(graph_, groups, on_cpu)});
        devices -= on_cpu ? devices_.accelerators + 1 : 1;
        set = via / 2;
    }
    std::reverse(stages.begin(), stages.end());
    return stages;
}

}  // namespace pw

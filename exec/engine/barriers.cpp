#include "exec/engine/barriers.h"

#include "schedules/plan/plan_graph.h"
#include "workloads/error.h"
#include "workloads/first_failure.h"

#include <algorithm>
#include <utility>

namespace pw {

Barriers::Barriers(const PlanGraph& graph, const Shape& shape, Ns timeout, ProgressMonitor* monitor, RankMap map,
                   bool shards)
    : graph_(graph),
      timeout_(timeout),
      map_(map),
      monitor_(monitor),
      barriers_(barriers_of(graph, shape)),
      number_(static_cast<std::size_t>(graph.size()), -1),
      begins_(number_.size(), false),
      exchanges_weights_(begins_),
      states_(barriers_.size()) {
    for (std::size_t number = 0; number < barriers_.size(); ++number) {
        for (const int node : barriers_[number].nodes)
            number_[node] = static_cast<int>(number);
        State& state = states_[number];
        for (const int node : barriers_[number].first) {
            begins_[node] = true;
            if (const int rank = map_.rank_of(graph.device_of(node)); rank == map_.own())
                ++state.here;
            else if (std::find(state.others.begin(), state.others.end(), rank) == state.others.end())
                state.others.push_back(rank);
        }
        std::sort(state.others.begin(), state.others.end());
        state.waiting.reserve(state.here);
    }
    if (shards)
        find_weight_exchanges(shape);
}

// Nodes are numbered device by device, and the S of a stage comes before its U.
void Barriers::find_weight_exchanges(const Shape& shape) {
    std::vector<char> is_sharded;  // by stage
    for (int stage = 0; stage < shape.stages; ++stage)
        is_sharded.push_back(shape.devices_of(stage).size() > 1);
    std::vector<int> sum_of(is_sharded.size(), -1);  // by stage of the device: the barrier of its last S so far
    std::vector<int> seen_by(barriers_.size(), -1);  // by barrier: the last device whose first U is found
    for (int node = 0; node < graph_.size(); ++node) {
        const Task& task = graph_.task(node);
        const int device = graph_.device_of(node);
        if (graph_.position_of(node) == 0)
            std::fill(sum_of.begin(), sum_of.end(), -1);
        if (task.op == Op::SumGradients)
            sum_of[task.stage] = number_[node];
        if (task.op != Op::Update)
            continue;
        if (number_[node] < 0)
            number_[node] = sum_of[task.stage];
        if (number_[node] < 0 || std::exchange(seen_by[number_[node]], device) == device)
            continue;
        const std::vector<int>& stages = barriers_[number_[node]].stages;
        exchanges_weights_[node] =
            std::any_of(stages.begin(), stages.end(), [&](int stage) { return is_sharded[stage]; });
    }
}

const Barrier* Barriers::barrier(int node) const { return number_[node] < 0 ? nullptr : &barriers_[number_[node]]; }

void Barriers::arrive(int node, const RankAction& between_ranks, bool monitored) {
    ProgressMonitor* const monitor = monitored ? monitor_ : nullptr;
    const int number = number_[node];
    State& state = states_[number];
    const bool crosses = between_ranks && !state.others.empty();
    if (state.here == 1 && !crosses)
        return;
    std::unique_lock lock(mutex_);
    const std::int64_t round = state.round;
    state.waiting.push_back(node);
    if (!aborted_ && state.waiting.size() == state.here) {
        if (crosses) {
            const WaitingAt waiting(monitor, graph_.device_of(node), node, true);
            lock.unlock();
            between_ranks(barriers_[number], state.others, kFirstTag + 2 * number);
            lock.lock();
        }
        state.waiting.clear();
        ++state.round;
        changed_.notify_all();
        return;
    }
    const auto passed = [&] { return aborted_ || state.round != round; };
    const WaitingAt waiting(monitor, graph_.device_of(node), node, true);
    const Ns start = clock_now();
    if (monitor_ != nullptr)
        changed_.wait(lock, passed);
    else
        changed_.wait_for(lock, timeout_, passed);
    if (state.round == round)
        fail_waiting(node, clock_now() - start);
}

void Barriers::fail_waiting(int node, Ns waited) {
    if (aborted_)
        fail_because_of_others();
    const std::vector<int>& waiting = states_[number_[node]].waiting;
    std::string missing;
    for (const int other : barriers_[number_[node]].first)
        if (map_.is_here(graph_.device_of(other)) && std::none_of(waiting.begin(), waiting.end(), [&](int here) {
                return graph_.device_of(here) == graph_.device_of(other);
            }))
            missing += fmt::format("{}{}", missing.empty() ? "" : ", ", graph_.device_of(other));
    fail_with(ExitCode::PeerSilent, "device {} has waited at {} for device {} for {}", graph_.device_of(node),
              print(graph_.task(node)), missing, print_time(waited));
}

void Barriers::abort() {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    changed_.notify_all();
}

}  // namespace pw

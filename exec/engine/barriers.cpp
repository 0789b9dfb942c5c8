#include "exec/engine/barriers.h"

#include "exec/engine/mailbox.h"
#include "schedules/plan/plan_graph.h"
#include "workloads/error.h"

#include <algorithm>
#include <utility>

namespace pw {

MeetingPoints::MeetingPoints(const PlanGraph& graph, const Shape& shape, Ns timeout, Watch* watch, RankMap map,
                             bool shards)
    : graph_(graph),
      timeout_(timeout),
      map_(map),
      watch_(watch),
      meetings_(meetings_of(graph, shape)),
      number_(static_cast<std::size_t>(graph.size()), -1),
      begins_(number_.size(), false),
      hands_round_(begins_),
      points_(meetings_.size()) {
    for (std::size_t number = 0; number < meetings_.size(); ++number) {
        for (const int node : meetings_[number].nodes)
            number_[node] = static_cast<int>(number);
        Point& point = points_[number];
        for (const int node : meetings_[number].first) {
            begins_[node] = true;
            if (const int rank = map_.rank_of(graph.device_of(node)); rank == map_.own())
                ++point.here;
            else if (std::find(point.others.begin(), point.others.end(), rank) == point.others.end())
                point.others.push_back(rank);
        }
        std::sort(point.others.begin(), point.others.end());
        point.waiting.reserve(point.here);
    }
    if (shards)
        hand_weights_round(shape);
}

// Nodes are numbered device by device, and the S of a stage comes before its U.
void MeetingPoints::hand_weights_round(const Shape& shape) {
    std::vector<char> is_sharded;  // by stage
    for (int stage = 0; stage < shape.stages; ++stage)
        is_sharded.push_back(shape.devices_of(stage).size() > 1);
    std::vector<int> sum_of(is_sharded.size(), -1);  // by stage of the device: the meeting of its latest S
    std::vector<int> seen_by(meetings_.size(), -1);  // by meeting: the last device whose first U is found
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
        const std::vector<int>& stages = meetings_[number_[node]].stages;
        hands_round_[node] = std::any_of(stages.begin(), stages.end(), [&](int stage) { return is_sharded[stage]; });
    }
}

const Meeting* MeetingPoints::meeting(int node) const {
    return number_[node] < 0 ? nullptr : &meetings_[number_[node]];
}

void MeetingPoints::arrive(int node, const Across& across, bool beside) {
    Watch* const watch = beside ? nullptr : watch_;
    const int number = number_[node];
    Point& point = points_[number];
    const bool crosses = across && !point.others.empty();
    if (point.here == 1 && !crosses)
        return;
    std::unique_lock lock(mutex_);
    const std::int64_t round = point.round;
    point.waiting.push_back(node);
    if (!aborted_ && point.waiting.size() == point.here) {
        if (crosses) {
            const WaitingAt waiting(watch, graph_.device_of(node), node, true);
            lock.unlock();
            across(meetings_[number], point.others, kFirstTag + 2 * number);
            lock.lock();
        }
        point.waiting.clear();
        ++point.round;
        changed_.notify_all();
        return;
    }
    const auto passed = [&] { return aborted_ || point.round != round; };
    const WaitingAt waiting(watch, graph_.device_of(node), node, true);
    const Ns start = clock_now();
    if (watch_ != nullptr)
        changed_.wait(lock, passed);
    else
        changed_.wait_for(lock, timeout_, passed);
    if (point.round == round)
        fail_waiting(node, clock_now() - start);
}

void MeetingPoints::fail_waiting(int node, Ns waited) {
    if (aborted_)
        fail_because_of_others();
    const std::vector<int>& waiting = points_[number_[node]].waiting;
    std::string missing;
    for (const int other : meetings_[number_[node]].first)
        if (map_.is_here(graph_.device_of(other)) && std::none_of(waiting.begin(), waiting.end(), [&](int here) {
                return graph_.device_of(here) == graph_.device_of(other);
            }))
            missing += fmt::format("{}{}", missing.empty() ? "" : ", ", graph_.device_of(other));
    fail_with(ExitCode::PeerSilent, "device {} waits at {} for device {} since {}", graph_.device_of(node),
              print(graph_.task(node)), missing, print_time(waited));
}

void MeetingPoints::abort() {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    changed_.notify_all();
}

}  // namespace pw

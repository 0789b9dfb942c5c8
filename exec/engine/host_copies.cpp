#include "exec/engine/host_copies.h"

#include <fmt/format.h>

#include <mutex>
#include <utility>

namespace pw {

HostCopies::HostCopies(const PlanGraph& graph, const std::vector<Task>& order, int device, TransferMode mode)
    : graph_(graph), mode_(mode) {
    for (int position = 0; position < static_cast<int>(order.size()); ++position)
        if (const Op op = order[static_cast<std::size_t>(position)].op; is_copy(op))
            listed_[static_cast<std::size_t>(mode.lane_of_copy(op))].nodes.push_back(graph.node(device, position));
}

void HostCopies::begin_step() {
    posted_.clear();
    for (Listed& lane : listed_)
        lane.begun = 0;
}

void HostCopies::post(int node) {
    posted_.insert(node);
    const int number = mode_.lane_of_copy(graph_.task(node).op);
    Listed& lane = listed_[static_cast<std::size_t>(number)];
    while (lane.begun < lane.nodes.size() && posted_.contains(lane.nodes[lane.begun]))
        begin(lane.nodes[lane.begun++], number);
}

CopyThreads::CopyThreads(const PlanGraph& graph, const std::vector<Task>& order, int device, TransferMode mode,
                         std::function<void(int node)> copy)
    : HostCopies(graph, order, device, mode), copy_(std::move(copy)) {
    for (Lane& lane : lanes_)
        lane.thread = start_thread(fmt::format("the copies of device {}", device), [this, &lane] { work(lane); });
}

CopyThreads::~CopyThreads() {
    {
        const std::lock_guard lock(mutex_);
        over_ = true;
        for (Lane& lane : lanes_)
            lane.changed.notify_all();
    }
    for (Lane& lane : lanes_)
        if (lane.thread.joinable())
            lane.thread.join();
}

void CopyThreads::work(Lane& lane) {
    Condition::Lock lock(mutex_);
    for (;;) {
        lane.changed.wait(lock, [&] { return over_ || !lane.begun.empty(); });
        if (over_)
            return;
        const int node = lane.begun.front();
        lane.begun.pop_front();
        lock.unlock();
        const Ns start = clock_now();
        copy_(node);
        const Ns end = clock_now();
        lock.lock();
        intervals_[node] = {start, end};
        done_.notify_all();
    }
}

void CopyThreads::begin_step() {
    HostCopies::begin_step();
    const std::lock_guard lock(mutex_);
    intervals_.clear();
}

void CopyThreads::begin(int node, int number) {
    const std::lock_guard lock(mutex_);
    Lane& lane = lanes_[static_cast<std::size_t>(number)];
    lane.begun.push_back(node);
    lane.changed.notify_all();
}

void CopyThreads::wait(int node) {
    Condition::Lock lock(mutex_);
    done_.wait(lock, [&] { return intervals_.contains(node); });
}

}  // namespace pw

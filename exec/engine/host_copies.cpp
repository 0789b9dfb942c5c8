#include "exec/engine/host_copies.h"

#include <mutex>
#include <utility>

namespace pw {

CopyThreads::CopyThreads(const PlanGraph& graph, TransferMode mode, const std::string& whose,
                         std::function<void(int node)> copy)
    : graph_(graph), mode_(mode), copy_(std::move(copy)) {
    for (Lane& lane : lanes_)
        lane.thread = start_thread(whose, [this, &lane] { work(lane); });
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
        lane.changed.wait(lock, [&] { return over_ || !lane.posted.empty(); });
        if (over_)
            return;
        const int node = lane.posted.front();
        lane.posted.pop_front();
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
    const std::lock_guard lock(mutex_);
    intervals_.clear();
}

void CopyThreads::post(int node) {
    const std::lock_guard lock(mutex_);
    Lane& lane = lane_of(node);
    lane.posted.push_back(node);
    lane.changed.notify_all();
}

void CopyThreads::wait(int node) {
    Condition::Lock lock(mutex_);
    done_.wait(lock, [&] { return intervals_.contains(node); });
}

}  // namespace pw

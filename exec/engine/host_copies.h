// The copies between a device and the memory of its host, OFFLOAD and RELOAD, which run while the device computes.
#pragma once

#include "exec/engine/mailbox.h"
#include "exec/system/threads.h"
#include "schedules/plan/lanes.h"
#include "schedules/plan/plan_graph.h"

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <string>

namespace pw {

// For the device's thread. The copies of a lane run in the order of their posts.
class HostCopies {
public:
    virtual ~HostCopies() = default;
    virtual void begin_step() {}
    // Lets a copy start: an OFFLOAD when its F has run, a RELOAD when the device has memory for it.
    virtual void post(int node) = 0;
    // Returns when later work of the device may overwrite what an OFFLOAD has copied, or read what a RELOAD has.
    virtual void wait(int node) = 0;
    // Returns when a copy ran, by the host's clock. Called when the step is over.
    virtual Interval interval(int node) const = 0;
};

// Copies on a thread for each lane.
class CopyThreads : public HostCopies {
public:
    // `copy` makes the copy of a node. It does not throw, and is called on a thread of its own.
    CopyThreads(const PlanGraph& graph, TransferMode mode, const std::string& whose,
                std::function<void(int node)> copy);
    ~CopyThreads() override;
    CopyThreads(const CopyThreads&) = delete;
    CopyThreads& operator=(const CopyThreads&) = delete;

    void begin_step() override;
    void post(int node) override;
    void wait(int node) override;
    Interval interval(int node) const override { return intervals_.at(node); }

private:
    struct Lane {
        std::deque<int> posted;
        Condition changed;
        Thread thread;
    };
    Lane& lane_of(int node) { return lanes_[static_cast<std::size_t>(mode_.lane_of_copy(graph_.task(node).op))]; }
    void work(Lane& lane);

    const PlanGraph& graph_;
    const TransferMode mode_;
    const std::function<void(int node)> copy_;
    Mutex mutex_;  // protects everything below
    Condition done_;
    std::map<int, Interval> intervals_;  // of the copies of this step that have ended
    bool over_ = false;
    std::array<Lane, 2> lanes_;
};

}  // namespace pw

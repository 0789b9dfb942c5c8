// The copies between a device and the memory of its host (kCopying), which run while the device computes.
#pragma once

#include "exec/engine/mailbox.h"
#include "exec/system/threads.h"
#include "schedules/plan/lanes.h"
#include "schedules/plan/plan_graph.h"

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <vector>

namespace pw {

// For the device's thread. The copies of a lane run as they are listed.
class HostCopies {
public:
    HostCopies(const PlanGraph& graph, const std::vector<Task>& order, int device, TransferMode mode);
    virtual ~HostCopies() = default;
    HostCopies(const HostCopies&) = delete;
    HostCopies& operator=(const HostCopies&) = delete;

    virtual void begin_step();
    // Lets a copy start after the copies before it: an OFFLOAD when its F has run, a STORE when the step begins, a copy
    // back when the device has memory for it. Before the list has passed a copy, all earlier copies of its lane are
    // posted.
    virtual void post(int node);
    // Returns when later work of the device may overwrite what has left, or read what has returned.
    virtual void wait(int node) = 0;
    // Returns when a copy ran, by the host's clock. Called when the step is over.
    virtual Interval interval(int node) const = 0;

protected:
    virtual void begin(int node, int lane) = 0;  // in the order of the lane
    static constexpr std::size_t kLanes = 2;

private:
    struct Listed {
        std::vector<int> nodes;  // as listed
        std::size_t begun = 0;
    };
    const PlanGraph& graph_;
    const TransferMode mode_;
    std::array<Listed, kLanes> listed_;
    std::set<int> posted_;  // of this step
};

// Copies on a thread for each lane.
class CopyThreads : public HostCopies {
public:
    // `copy` makes the copy of a node. It does not throw, and is called on a thread of its own.
    CopyThreads(const PlanGraph& graph, const std::vector<Task>& order, int device, TransferMode mode,
                std::function<void(int node)> copy);
    ~CopyThreads() override;

    void begin_step() override;
    void wait(int node) override;
    Interval interval(int node) const override { return intervals_.at(node); }

private:
    void begin(int node, int lane) override;
    struct Lane {
        std::deque<int> begun;
        Condition changed;
        Thread thread;
    };
    void work(Lane& lane);

    const std::function<void(int node)> copy_;
    Mutex mutex_;  // protects everything below
    Condition done_;
    std::map<int, Interval> intervals_;  // of the copies of this step that have ended
    bool over_ = false;
    std::array<Lane, kLanes> lanes_;
};

}  // namespace pw

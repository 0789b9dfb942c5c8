// The progress monitor records what every device of a run is doing. It distinguishes a device with a long task from
// a silent device.
#pragma once

#include "exec/ranks/ranks.h"
#include "exec/system/threads.h"
#include "schedules/plan/plan.h"
#include "schedules/plan/plan_graph.h"
#include "workloads/units.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace pw {

class ProgressMonitor {
public:
    // How long a task, the time between two tasks of a device, and a wait of all devices at once may last.
    struct Limits {
        std::vector<Ns> task;  // by node
        Ns idle = 0, no_work = 0;
    };

    ProgressMonitor(const PlanGraph& graph, int devices)
        : graph_(graph), activity_(new Activity[static_cast<std::size_t>(devices)]) {
        seen_.resize(static_cast<std::size_t>(devices));
    }

    // The thread of a device calls these. Each sets the device's state from now on. Between steps the device is away.
    void set_working(int device, int node) { set(device, Doing::Working, node); }
    void set_waiting(int device, int node) { set(device, Doing::Waiting, node); }
    void set_idle(int device) { set(device, Doing::Idle, -1); }
    void finish_task(int device, int node, Ns took);  // afterwards the device is idle
    void set_away(int device) { set(device, Doing::Away, -1); }

    // One thread calls this at intervals. `passed` is the time since the last call. At most two intervals count per
    // call, since the process may have been stopped in between. Throws Error (PeerSilent) that names the silent
    // device.
    void check(const Limits& limits, Ns passed);
    static Ns check_interval(Ns idle);  // the time between two checks
    bool all_away() const;

    // Write and read the state of devices, for the monitor of another rank.
    void write(const std::vector<int>& devices, Message& message) const;
    void read(MessageReader& message);
    std::string describe(const std::vector<int>& devices) const;  // "device 2 was at 2F1"
    // Returns the latest tasks of devices, a line per device, the last task first: "\n  device 2 before that: 2F0
    // in 1.20 ms, ...".
    std::string last_tasks(const std::vector<int>& devices) const;

private:
    enum class Doing { Away, Idle, Working, Waiting };
    static constexpr int kKept = 8, kShown = 6;  // tasks (the oldest may be written while another thread reads)
    struct Done {
        std::atomic<int> node{-1};
        std::atomic<Ns> took{0};
    };
    struct alignas(64) Activity {
        std::atomic<Doing> doing{Doing::Away};
        std::atomic<int> node{-1};
        std::atomic<std::int64_t> changes{0};
        std::atomic<std::int64_t> done{0};  // tasks
        Done last[kKept];                   // a ring: the k-th of all tasks is at k % kKept
    };
    struct Seen {
        std::int64_t changes = -1;
        Ns unchanged = 0;  // the time without a change
    };
    void set(int device, Doing doing, int node);
    std::string waiting() const;

    struct Record {
        int device = 0, doing = 0, node = -1;
        std::int64_t changes = 0, done = 0;
        struct {
            int node = -1;
            Ns took = 0;
        } last[kShown];  // the latest first
    };
    const PlanGraph& graph_;
    std::unique_ptr<Activity[]> activity_;
    Mutex mutex_;  // one check at a time
    std::vector<Seen> seen_;
    Ns no_work_ = 0;
};

// The device counts as waiting at the node during the lifetime of the object. Afterwards it has its earlier state
// again. Without a monitor the object has no effect.
class WaitingAt {
public:
    WaitingAt(ProgressMonitor* monitor, int device, int node, bool working = false)
        : monitor_(monitor), device_(device), node_(node), working_(working) {
        if (monitor_ != nullptr)
            monitor_->set_waiting(device_, node_);
    }
    ~WaitingAt() {
        if (monitor_ != nullptr)
            working_ ? monitor_->set_working(device_, node_) : monitor_->set_idle(device_);
    }
    WaitingAt(const WaitingAt&) = delete;
    WaitingAt& operator=(const WaitingAt&) = delete;

private:
    ProgressMonitor* monitor_;
    int device_, node_;
    bool working_;
};

}  // namespace pw

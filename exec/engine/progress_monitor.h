// A watch knows what every device of a run is doing, so that a device that works long is told from one that is silent.
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

class Watch {
public:
    // The limits say for how long one task, the way from one to the next, and a wait of all devices at once may last.
    struct Limits {
        std::vector<Ns> task;  // by node
        Ns rest = 0, standstill = 0;
    };

    Watch(const PlanGraph& graph, int devices) : graph_(graph), signs_(new Sign[static_cast<std::size_t>(devices)]) {
        seen_.resize(static_cast<std::size_t>(devices));
    }

    // These are called by a device's own thread and say what it does from now on. Between steps it is away.
    void works(int device, int node) { set(device, Doing::Working, node); }
    void waits(int device, int node) { set(device, Doing::Waiting, node); }
    void rests(int device) { set(device, Doing::Resting, -1); }
    void has_done(int device, int node, Ns took);  // and rests
    void is_away(int device) { set(device, Doing::Away, -1); }

    // One thread calls this again and again, `passed` after the last time. It throws Error (PeerSilent) naming the
    // device that does not come back. A process that was stopped, or got no time, sees less pass than the clock does.
    void look(const Limits& limits, Ns passed);
    static Ns slice_of(Ns rest);  // the time between two looks
    bool all_are_away() const;

    // What devices do, for the watch of another rank.
    void tell(const std::vector<int>& devices, Mail& mail) const;
    void hear(MailReader& mail);
    std::string describe(const std::vector<int>& devices) const;  // "device 2 was at 2F1"
    // Returns lines of what devices have done before, the last first: "\n  device 2 before that: 2F0 in 1.20 ms, ...".
    std::string last_tasks(const std::vector<int>& devices) const;

private:
    enum class Doing { Away, Resting, Working, Waiting };
    static constexpr int kKept = 8, kShown = 6;  // tasks; the oldest may be written while another thread reads
    struct Done {
        std::atomic<int> node{-1};
        std::atomic<Ns> took{0};
    };
    struct alignas(64) Sign {
        std::atomic<Doing> doing{Doing::Away};
        std::atomic<int> node{-1};
        std::atomic<std::int64_t> changes{0};
        std::atomic<std::int64_t> done{0};  // tasks
        Done last[kKept];                   // a ring: the k-th task of all is at k % kKept
    };
    struct Seen {
        std::int64_t changes = -1;
        Ns since = 0;
    };
    void set(int device, Doing doing, int node);
    std::string waiting() const;

    struct Told {
        int device = 0, doing = 0, node = -1;
        std::int64_t changes = 0, done = 0;
        struct {
            int node = -1;
            Ns took = 0;
        } last[kShown];  // the last first
    };
    const PlanGraph& graph_;
    std::unique_ptr<Sign[]> signs_;
    Mutex mutex_;  // of one look
    std::vector<Seen> seen_;
    Ns standstill_ = 0;
};

// While the object lives the device waits at the node; then it does again what it did. Without a watch the object does
// nothing.
class WaitingAt {
public:
    WaitingAt(Watch* watch, int device, int node, bool working = false)
        : watch_(watch), device_(device), node_(node), working_(working) {
        if (watch_ != nullptr)
            watch_->waits(device_, node_);
    }
    ~WaitingAt() {
        if (watch_ != nullptr)
            working_ ? watch_->works(device_, node_) : watch_->rests(device_);
    }
    WaitingAt(const WaitingAt&) = delete;
    WaitingAt& operator=(const WaitingAt&) = delete;

private:
    Watch* watch_;
    int device_, node_;
    bool working_;
};

}  // namespace pw

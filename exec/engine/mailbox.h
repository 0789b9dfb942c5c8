// Hand-over between the device threads of a process, and between ranks: transfers travel in the lanes of the plan, and
// whoever needs one waits for it. A mailbox gives up when one device has failed, or when nothing happens for the
// timeout.
#pragma once

#include "exec/engine/phase_barrier.h"
#include "exec/engine/progress_monitor.h"
#include "exec/engine/shared_links.h"
#include "exec/ranks/ranks.h"
#include "exec/system/threads.h"
#include "schedules/plan/lanes.h"
#include "schedules/plan/plan_graph.h"

#include <atomic>
#include <exception>
#include <memory>
#include <queue>
#include <span>
#include <utility>
#include <vector>

namespace pw {

// When a task really ran, in nanoseconds of the run's clock.
struct Interval {
    Ns start = 0, end = 0;
};

// A payload is what moves with a transfer when the sender keeps a copy. Its functions are called once per transfer and
// step.
class Payload {
public:
    virtual ~Payload() = default;
    virtual void leave(int send) = 0;   // afterwards the sender's copy may be overwritten
    virtual void arrive(int recv) = 0;  // afterwards the landing buffer may be read
    // Returns where a message to or from another rank lies: what a SEND's maker wrote, or where a RECV lands.
    virtual std::span<std::byte> message(int transfer) = 0;
    // Where the payload carries messages between ranks itself, they are not given to the ranks: cross() puts one end on
    // its way, for devices with a queue of their own, and returns.
    virtual bool carries_across() const { return false; }
    virtual void cross(int /*transfer*/) {}
};

// An emulated link: a message leaves `occupation` after it started, or later where it shares, and arrives `latency`
// later.
struct LinkTimes {
    std::vector<Ns> occupation, latency;  // by node, of SENDs; empty where no link is emulated
    SharedLinks shared;
};

// Messages between ranks. Without `ranks` all devices are in this process.
struct RankMessages {
    Ranks* ranks = nullptr;
    RankMap map;
    std::vector<int> tag;         // by node, of transfers; equal at both ends; empty where the payload carries them
    std::vector<int> lands_from;  // by node, of RECVs: the position from which their device has the memory for them
};

class Mailbox {
public:
    struct Options {
        TransferMode mode;
        Ns timeout = 30'000'000'000;
        std::vector<char> asks;      // asking_sends()
        bool spin = false;           // waits awake, where devices own their cores
        LinkTimes link;              // where it has times, a thread of its own moves the messages
        RankMessages across;         // a thread of its own looks after them while the devices work
        Payload* payload = nullptr;  // null where tensors are made where they are read
        ProgressMonitor* monitor =
            nullptr;  // is told who waits and says when that is too long; the timeout is then unused
    };
    Mailbox(const PlanGraph& graph, Options options);
    ~Mailbox();

    // Forgets the last step; no device may be inside one.
    void begin_step();
    // The device has the memory of its list's position from here on.
    void reach(int device, int position);
    // Waits while the device's list must not post the transfer yet.
    void wait_to_post(int node);
    void post(int node);
    int earlier_on_edge(int node) const { return lanes_.earlier_on_edge(node); }  // SEND before it; or -1
    // Waits until a SEND has left or a RECV is complete. Throws Error (PeerSilent) naming both ends
    // after the timeout and Error (RunFailed) when another device has failed.
    void wait(int node);
    // Returns when a transfer that wait() has returned for ran, from its start to its end.
    Interval interval(int node) const { return interval_[node]; }
    void abort();
    // Whether whoever waits sleeps, whatever the options say: others can use the cores meanwhile. On any thread.
    void let_sleep(bool sleeps) { sleeps_ = sleeps; }

private:
    using Lock = Condition::Lock;
    struct Event {
        Ns time;
        std::int64_t seq;  // a message leaves before it arrives
        int node;          // a SEND leaves, a RECV's message arrives
        auto operator<=>(const Event&) const = default;
    };
    // What the thread of a device sleeps on.
    struct DeviceWaiter {
        Condition wakes;
        bool waits = false;
    };
    bool is_done(int node) const { return done_[node].load(std::memory_order_acquire); }
    bool spin_until_done(int node, Ns start);
    [[noreturn]] void fail_waiting(int node, Ns start) const;
    void move(Lock& lock);
    int lane_of(int node) const { return lanes_.table().lane_of[node]; }
    int take_free(std::vector<int>& nodes);
    void await(int recv, Lock& lock);
    void hand_on(int recv, Lock& lock);
    void start(int send, Lock& lock);
    void leave_shared(const SharedLinks::Leaving& leaving, Lock& lock);
    void happen_at(Ns time, Ns now, int node, Lock& lock);
    void happen(int node, Lock& lock);
    void complete(int node);
    void run_wire();
    bool has_memory(int recv) const;
    bool polls() const { return options_.across.ranks != nullptr && !options_.payload->carries_across(); }
    void cross(int node, Lock& lock);
    bool poll(Lock& lock);
    void run_ranks();

    const PlanGraph& graph_;
    const Options options_;
    std::vector<Interval> interval_;             // by node
    std::unique_ptr<std::atomic<bool>[]> done_;  // by node
    std::vector<DeviceWaiter> waiters_;          // by device
    std::atomic<bool> aborted_{false}, sleeps_{false};

    mutable Mutex mutex_;  // protects everything below
    Lanes lanes_;
    std::vector<char> copying_;  // by lane: a message that has come in is copied, with the mutex unlocked
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
    std::int64_t seq_ = 0;
    SharedLinks shared_;
    struct Crossing {
        int node;
        Ranks::Ticket ticket;
    };
    std::vector<Crossing> crossings_;  // under way
    std::vector<int> too_early_;       // RECVs that have no memory yet
    std::vector<int> landing_;         // of these, those that have it now
    std::vector<int> reached_;         // by device: the position
    std::exception_ptr lost_;          // what went wrong between ranks while nobody waited
    Condition wire_wakes_;
    bool closing_ = false;
    Thread wire_;
};

}  // namespace pw

// The messages between devices: transfers keep the order of the plan's lanes, movers carry them, and threads wait
// for them here. A wait ends with an error when a device has failed, or when nothing happens within the timeout.
#pragma once

#include "exec/engine/mover.h"
#include "exec/engine/progress_monitor.h"
#include "exec/engine/rank_mover.h"
#include "exec/engine/wire_mover.h"
#include "exec/system/threads.h"
#include "schedules/plan/lanes.h"
#include "schedules/plan/plan_graph.h"

#include <atomic>
#include <memory>
#include <vector>

namespace pw {

// The time in which a task ran, in nanoseconds of the run's clock.
struct Interval {
    Ns start = 0, end = 0;
};

class Mailbox {
public:
    struct Options {
        TransferMode mode;
        Ns timeout = 30'000'000'000;
        std::vector<char> by_rendezvous;     // sends_by_rendezvous()
        bool spin = false;                   // threads spin while they wait: devices own their cores
        LinkTimes link;                      // if it takes time, messages inside the process use emulated links
        RankMessages across;                 // with several ranks (then there is a payload)
        Payload* payload = nullptr;          // null if tensors are written where they are read
        ProgressMonitor* monitor = nullptr;  // checks for silent devices (the timeout is then unused)
    };
    using Lock = Mover::Lock;

    Mailbox(const PlanGraph& graph, Options options);
    ~Mailbox();

    // Resets the transfers for the next step. No device may be inside a transfer.
    void begin_step();
    // To be called when the device has the memory of a position of its list.
    void reach(int device, int position);
    // Waits until the device may post the transfer.
    void wait_to_post(int node);
    void post(int node);
    int earlier_on_edge(int node) const { return lanes_.earlier_on_edge(node); }  // the preceding SEND, or -1
    // Waits until a SEND has left or a RECV is complete. Throws Error (PeerSilent) that names both ends after the
    // timeout, and Error (RunFailed) when another device has failed.
    void wait(int node);
    // Returns when a transfer ran, from its start to its end. Called after wait().
    Interval interval(int node) const { return interval_[node]; }
    void abort();
    // While `sleeps` is true no wait spins, whatever the options are, so that other threads can use the cores. May be
    // called on any thread.
    void let_sleep(bool sleeps) { sleeps_ = sleeps; }

    // The following are for movers, with the mutex locked. A mover calls end() when the SEND has left, or the
    // message of the RECV has arrived. end() may unlock while the payload is copied. advance() then starts the
    // messages that the lanes allow.
    Mutex& mutex() { return mutex_; }
    void begin(int node) { interval_[node].start = clock_now(); }
    void end(int node, Lock& lock);
    void advance(Lock& lock);
    std::size_t devices() const { return waiters_.size(); }
    int device_of(int node) const { return graph_.device_of(node); }
    int partner(int node) const { return lanes_.partner(node); }
    bool receives(int node) const { return is_recv(graph_.task(node).op); }
    bool goes_by_rendezvous(int send) const { return lanes_.goes_by_rendezvous(send); }
    bool is_aborted() const { return aborted_; }

private:
    // The condition on which the thread of a device sleeps.
    struct DeviceWaiter {
        Condition wakes;
        bool waits = false;
    };
    bool is_done(int node) const { return done_[node].load(std::memory_order_acquire); }
    bool is_polled() const { return between_ranks_ != nullptr && between_ranks_->is_polled(); }
    bool spin_until_done(int node, Ns start);
    [[noreturn]] void fail_waiting(int node, Ns start) const;
    int lane_of(int node) const { return lanes_.table().lane_of[node]; }
    int take_idle(std::vector<int>& nodes);
    void receive(int recv, Lock& lock);
    void start(int send, Lock& lock);
    void complete(int node);

    const PlanGraph& graph_;
    const Options options_;
    std::vector<Interval> interval_;             // by node
    std::unique_ptr<std::atomic<bool>[]> done_;  // by node
    std::vector<DeviceWaiter> waiters_;          // by device
    std::atomic<bool> aborted_{false}, sleeps_{false};

    mutable Mutex mutex_;  // protects everything below
    Lanes lanes_;
    std::vector<char> copying_;                      // by lane: a message is being copied, with the mutex unlocked
    std::unique_ptr<Mover> inside_, between_ranks_;  // their threads use all of the above (the second may be null)
};

}  // namespace pw

// Hand-over between device threads of one process: a SEND publishes that its tensors lie in the
// receiver's landing buffer, whoever needs its RECV waits for that. And the gate where all devices
// meet. Both give up when one device has failed, or when nothing happens for the timeout.
#pragma once

#include "exec/backend.h"
#include "schedules/plan.h"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

namespace pw {

Ns clock_now();  // steady, nanoseconds

class Mailbox {
public:
    Mailbox(const PlanGraph& graph, Ns timeout);

    void publish(int send, int step, Interval sent);
    // Waits for the SEND of `step`; throws Error (PeerSilent) naming both ends after the timeout and
    // Error (RunFailed) when another device has failed.
    Interval wait(int send, int step, int waiting_node);
    void abort();

private:
    struct Letter {
        std::atomic<int> step{-1};
        Interval sent;
    };
    bool arrived(int send, int step) const { return letters_[send].step.load(std::memory_order_seq_cst) >= step; }

    const PlanGraph& graph_;
    Ns timeout_;
    std::unique_ptr<Letter[]> letters_;  // by node
    std::atomic<int> sleepers_{0};
    std::atomic<bool> aborted_{false};
    std::mutex mutex_;
    std::condition_variable changed_;
};

// Where a fixed number of threads meet, again and again.
class Gate {
public:
    explicit Gate(int threads) : threads_(threads) {}
    void arrive();  // throws Error (RunFailed) when a thread has failed
    void abort();

private:
    const int threads_;
    int waiting_ = 0;
    std::int64_t round_ = 0;
    bool aborted_ = false;
    std::mutex mutex_;
    std::condition_variable changed_;
};

}  // namespace pw

// The barrier of a run, at which its threads wait for each other between phases.
#pragma once

#include "exec/system/threads.h"
#include "workloads/first_failure.h"
#include "workloads/units.h"

#include <cstdint>
#include <utility>

namespace pw {

// A reusable barrier for a fixed number of threads.
class PhaseBarrier {
public:
    explicit PhaseBarrier(int threads) : threads_(threads) {}
    // Waits until all threads have arrived, all with the same `phase`. Throws Error (RunFailed) when a thread has
    // failed.
    void arrive(int phase = 0);
    // Does the same, and while it waits calls poll(passed) about every `slice`. `passed` is the time since the last
    // call, or since the arrival.
    template <class Poll>
    void arrive(int phase, Ns slice, Poll poll);
    void abort();

private:
    bool is_last(int phase, std::int64_t& round);  // the last thread releases the waiting threads

    const int threads_;
    int waiting_ = 0;
    int phase_ = 0;  // the phase of the waiting threads
    std::int64_t round_ = 0;
    bool aborted_ = false;
    Mutex mutex_;
    Condition changed_;
};

template <class Poll>
void PhaseBarrier::arrive(int phase, Ns slice, Poll poll) {
    std::unique_lock lock(mutex_);
    std::int64_t round = 0;
    if (is_last(phase, round))
        return;
    Ns before = clock_now();
    while (!changed_.wait_for(lock, slice, [&] { return aborted_ || round_ != round; })) {
        const Ns now = clock_now();
        lock.unlock();  // threads may arrive meanwhile
        poll(now - std::exchange(before, now));
        lock.lock();
    }
    if (round_ == round)
        fail_because_of_others();
}

}  // namespace pw

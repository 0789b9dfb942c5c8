#include "exec/engine/phase_barrier.h"

#include <cassert>

namespace pw {

bool PhaseBarrier::is_last(int phase, std::int64_t& round) {
    if (aborted_)
        fail_because_of_others();
    assert(waiting_ == 0 || phase == phase_);
    phase_ = phase;
    round = round_;
    if (++waiting_ < threads_)
        return false;
    waiting_ = 0;
    ++round_;
    changed_.notify_all();
    return true;
}

void PhaseBarrier::arrive(int phase) {
    std::unique_lock lock(mutex_);
    std::int64_t round = 0;
    if (is_last(phase, round))
        return;
    changed_.wait(lock, [&] { return aborted_ || round_ != round; });
    if (round_ == round)
        fail_because_of_others();
}

void PhaseBarrier::abort() {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    changed_.notify_all();
}

}  // namespace pw

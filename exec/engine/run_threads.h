// The threads of a run's devices.
#pragma once

#include "exec/system/threads.h"
#include "workloads/units.h"

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace pw {

class RunThreads {
public:
    explicit RunThreads(std::size_t most) { threads_.reserve(most); }

    // Starts a thread, which destroys `act` when it ends. If the thread may be detached, `act` must keep this object
    // alive.
    void start(const std::string& name, std::function<void()> act);
    // Waits until all threads have ended. Calls `gives_up` about every `slice`. If it returns true, the threads are
    // detached. Returns whether all have ended.
    bool join(Ns slice, const std::function<bool()>& gives_up);

private:
    std::vector<Thread> threads_;
    Mutex mutex_;
    Condition changed_;
    std::size_t ended_ = 0;
};

}  // namespace pw

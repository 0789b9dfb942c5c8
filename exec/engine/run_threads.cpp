#include "exec/engine/run_threads.h"

#include <mutex>
#include <utility>

namespace pw {

void RunThreads::start(const std::string& name, std::function<void()> act) {
    threads_.push_back(start_thread(name, [this, act = std::move(act)] {
        act();
        const std::lock_guard lock(mutex_);
        ++ended_;
        changed_.notify_all();
    }));
}

bool RunThreads::join(Ns slice, const std::function<bool()>& gives_up) {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, slice, [&] { return ended_ == threads_.size(); }))
        if (gives_up()) {
            for (Thread& thread : threads_)
                thread.detach();
            return false;
        }
    lock.unlock();
    for (Thread& thread : threads_)
        thread.join();
    return true;
}

}  // namespace pw

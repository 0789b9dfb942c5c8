#include "exec/training/bucket_thread.h"

#include "workloads/first_failure.h"

#include <limits>
#include <mutex>
#include <utility>

namespace pw {

BucketThread::BucketThread(const std::string& whose, std::function<void()> open, std::function<void(int node)> sum)
    : thread_(start_thread(whose, [this, open = std::move(open), sum = std::move(sum)] { work(open, sum); })) {}

BucketThread::~BucketThread() {
    {
        const std::lock_guard lock(mutex_);
        over_ = true;
        changed_.notify_all();
    }
    thread_.join();
}

void BucketThread::work(const std::function<void()>& open, const std::function<void(int node)>& sum) {
    Condition::Lock lock(mutex_);
    for (bool is_open = false;; is_open = true) {
        changed_.wait(lock, [this] { return over_ || node_ >= 0; });
        if (over_)
            return;
        const int node = node_;
        lock.unlock();
        std::exception_ptr failure;
        try {
            if (!is_open)
                open();
            sum(node);
        } catch (...) {
            failure = std::current_exception();
        }
        lock.lock();
        failure_ = failure;
        node_ = -1;
        changed_.notify_all();
    }
}

void BucketThread::begin(int node) {
    const std::lock_guard lock(mutex_);
    if (std::exchange(begun_, node) == node)
        return;
    node_ = node;
    final_from_ = std::numeric_limits<Bytes>::max();
    last_is_full_ = false;
    changed_.notify_all();
}

void BucketThread::fill(Bytes from) {
    const std::lock_guard lock(mutex_);
    final_from_ = from;
    changed_.notify_all();
}

void BucketThread::wait_for_last() {
    Condition::Lock lock(mutex_);
    changed_.wait(lock, [this] { return last_is_full_ || node_ < 0; });
    if (failure_)
        std::rethrow_exception(failure_);
}

// The next step has the same S again.
void BucketThread::wait_until_done() {
    Condition::Lock lock(mutex_);
    changed_.wait(lock, [this] { return node_ < 0; });
    begun_ = -1;
    if (failure_)
        std::rethrow_exception(failure_);
}

void BucketThread::wait_until_full(Bytes from) {
    Condition::Lock lock(mutex_);
    changed_.wait(lock, [&] { return over_ || final_from_ <= from; });
    if (over_)
        fail_because_of_others();
}

void BucketThread::last_is_full() {
    const std::lock_guard lock(mutex_);
    last_is_full_ = true;
    changed_.notify_all();
}

}  // namespace pw

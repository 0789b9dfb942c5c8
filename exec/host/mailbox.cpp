#include "exec/host/mailbox.h"

#include "workloads/error.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace pw {

namespace {

// Devices own their cores, so waiting awake costs nobody; a core that sleeps comes back cold: naive
// pipelining ran 5 to 9 % slower with it on a virtual machine.
constexpr Ns kSpin = 500'000'000;

[[noreturn]] void fail_because_of_others() { fail_with(ExitCode::RunFailed, "stopped because another device failed"); }

}  // namespace

Ns clock_now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

Mailbox::Mailbox(const PlanGraph& graph, Ns timeout)
    : graph_(graph), timeout_(timeout), letters_(new Letter[static_cast<std::size_t>(graph.size())]) {}

void Mailbox::publish(int send, int step, Interval sent) {
    letters_[send].sent = sent;
    letters_[send].step.store(step, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) {
        const std::lock_guard lock(mutex_);
        changed_.notify_all();
    }
}

Interval Mailbox::wait(int send, int step, int waiting_node) {
    const Ns start = clock_now();
    while (!arrived(send, step)) {
        if (!aborted_ && clock_now() - start < std::min(kSpin, timeout_)) {
            std::this_thread::yield();
            continue;
        }
        std::unique_lock lock(mutex_);
        ++sleepers_;
        changed_.wait_for(lock, std::chrono::nanoseconds(timeout_), [&] { return aborted_ || arrived(send, step); });
        --sleepers_;
        if (arrived(send, step))
            break;
        if (aborted_)
            fail_because_of_others();
        fail_with(ExitCode::PeerSilent, "device {} waits for {} from device {} since {}: {} did not come",
                  graph_.device_of(waiting_node), print(graph_.task(send)), graph_.device_of(send),
                  print_time(clock_now() - start), print(graph_.task(waiting_node)));
    }
    return letters_[send].sent;
}

void Mailbox::abort() {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    changed_.notify_all();
}

void Gate::arrive() {
    std::unique_lock lock(mutex_);
    if (aborted_)
        fail_because_of_others();
    const std::int64_t round = round_;
    if (++waiting_ == threads_) {
        waiting_ = 0;
        ++round_;
        changed_.notify_all();
        return;
    }
    changed_.wait(lock, [&] { return aborted_ || round_ != round; });
    if (round_ == round)
        fail_because_of_others();
}

void Gate::abort() {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    changed_.notify_all();
}

}  // namespace pw

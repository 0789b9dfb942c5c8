#include "exec/engine/progress_monitor.h"

#include "workloads/error.h"

#include <algorithm>

namespace pw {

void ProgressMonitor::set(int device, Doing doing, int node) {
    Activity& activity = activity_[static_cast<std::size_t>(device)];
    activity.doing.store(doing, std::memory_order_relaxed);
    activity.node.store(node, std::memory_order_relaxed);
    activity.changes.fetch_add(1, std::memory_order_release);
}

void ProgressMonitor::finish_task(int device, int node, Ns took) {
    Activity& activity = activity_[static_cast<std::size_t>(device)];
    const std::int64_t number = activity.done.load(std::memory_order_relaxed);
    Done& done = activity.last[number % kKept];
    done.node.store(node, std::memory_order_relaxed);
    done.took.store(took, std::memory_order_relaxed);
    activity.done.store(number + 1, std::memory_order_release);
    set_idle(device);
}

Ns ProgressMonitor::check_interval(Ns idle) {
    constexpr Ns kLeast = 1'000'000, kMost = 250'000'000;
    return std::clamp(idle / 16, kLeast, kMost);
}

bool ProgressMonitor::all_away() const {
    for (std::size_t device = 0; device < seen_.size(); ++device)
        if (activity_[device].doing.load(std::memory_order_relaxed) != Doing::Away)
            return false;
    return true;
}

void ProgressMonitor::write(const std::vector<int>& devices, Message& message) const {
    for (const int device : devices) {
        const Activity& activity = activity_[static_cast<std::size_t>(device)];
        Record record;
        record.device = device;
        record.doing = static_cast<int>(activity.doing.load(std::memory_order_relaxed));
        record.node = activity.node.load(std::memory_order_relaxed);
        record.changes = activity.changes.load(std::memory_order_acquire);
        record.done = activity.done.load(std::memory_order_acquire);
        for (int back = 0; back < std::min<std::int64_t>(kShown, record.done); ++back) {
            const Done& done = activity.last[(record.done - 1 - back) % kKept];
            record.last[back] = {done.node.load(std::memory_order_relaxed), done.took.load(std::memory_order_relaxed)};
        }
        pw::write(message, record);
    }
}

void ProgressMonitor::read(MessageReader& message) {
    while (!message.at_end()) {
        const Record record = message.read<Record>();
        if (record.device < 0 || record.device >= static_cast<int>(seen_.size()) || record.node >= graph_.size())
            fail_with(ExitCode::RunFailed, "another rank reports on device {}, which does not exist", record.device);
        Activity& activity = activity_[static_cast<std::size_t>(record.device)];
        activity.doing.store(static_cast<Doing>(record.doing), std::memory_order_relaxed);
        activity.node.store(record.node, std::memory_order_relaxed);
        for (int back = 0; back < std::min<std::int64_t>(kShown, record.done); ++back) {
            Done& done = activity.last[(record.done - 1 - back) % kKept];
            done.node.store(std::clamp(record.last[back].node, 0, graph_.size() - 1), std::memory_order_relaxed);
            done.took.store(record.last[back].took, std::memory_order_relaxed);
        }
        activity.done.store(record.done, std::memory_order_release);
        activity.changes.store(record.changes, std::memory_order_release);
    }
}

std::string ProgressMonitor::describe(const std::vector<int>& devices) const {
    std::string text;
    for (const int device : devices) {
        const Activity& activity = activity_[static_cast<std::size_t>(device)];
        const int node = activity.node.load(std::memory_order_relaxed);
        text += fmt::format("{}device {}", text.empty() ? "" : ", ", device);
        if (const Doing doing = activity.doing.load(std::memory_order_relaxed);
            node >= 0 && (doing == Doing::Working || doing == Doing::Waiting))
            text += fmt::format(" {} {}", doing == Doing::Working ? "was in" : "waited at", print(graph_.task(node)));
    }
    return text;
}

std::string ProgressMonitor::last_tasks(const std::vector<int>& devices) const {
    std::string text;
    for (const int device : devices) {
        const Activity& activity = activity_[static_cast<std::size_t>(device)];
        const std::int64_t all = activity.done.load(std::memory_order_acquire);
        for (int back = 0; back < std::min<std::int64_t>(kShown, all); ++back) {
            const Done& done = activity.last[(all - 1 - back) % kKept];
            text += back == 0 ? fmt::format("\n  device {} before that: ", device) : ", ";
            text += fmt::format("{} in {}", print(graph_.task(done.node.load(std::memory_order_relaxed))),
                                print_time(done.took.load(std::memory_order_relaxed)));
        }
    }
    return text;
}

void ProgressMonitor::check(const Limits& limits, Ns passed) {
    const std::lock_guard lock(mutex_);
    const Ns counted = std::min(passed, 2 * check_interval(limits.idle));
    bool nothing_changes = true, some_wait = false;
    for (std::size_t device = 0; device < seen_.size(); ++device) {
        const Activity& activity = activity_[device];
        const std::int64_t changes = activity.changes.load(std::memory_order_acquire);
        if (seen_[device].changes != changes) {
            seen_[device] = {changes, 0};
            nothing_changes = false;
            continue;
        }
        const Ns unchanged = seen_[device].unchanged += counted;
        const int node = activity.node.load(std::memory_order_relaxed);
        const Doing doing = activity.doing.load(std::memory_order_relaxed);
        nothing_changes = nothing_changes && doing != Doing::Working;
        some_wait = some_wait || doing == Doing::Waiting;
        if (doing == Doing::Working && node >= 0 && unchanged > limits.task[static_cast<std::size_t>(node)])
            fail_with(ExitCode::PeerSilent, "device {} is silent: {} has not ended for {}{}{}", device,
                      print(graph_.task(node)), print_time(unchanged), waiting(),
                      last_tasks({static_cast<int>(device)}));
        if (doing == Doing::Idle && unchanged > limits.idle)
            fail_with(ExitCode::PeerSilent, "device {} is silent: it has begun nothing for {}{}{}", device,
                      print_time(unchanged), waiting(), last_tasks({static_cast<int>(device)}));
    }
    no_work_ = nothing_changes && some_wait ? no_work_ + counted : 0;
    if (no_work_ > limits.no_work)
        fail_with(ExitCode::PeerSilent, "no device has worked for {}{}", print_time(no_work_), waiting());
}

// Returns the waits of all devices: "; device 0 waits at 0RECV_B1<1".
std::string ProgressMonitor::waiting() const {
    std::string text;
    for (std::size_t device = 0; device < seen_.size(); ++device) {
        const int node = activity_[device].node.load(std::memory_order_relaxed);
        if (activity_[device].doing.load(std::memory_order_relaxed) == Doing::Waiting && node >= 0)
            text += fmt::format("; device {} waits at {}", device, print(graph_.task(node)));
    }
    return text;
}

}  // namespace pw

#include "exec/engine/progress_monitor.h"

#include "workloads/error.h"

#include <algorithm>

namespace pw {

void Watch::set(int device, Doing doing, int node) {
    Sign& sign = signs_[static_cast<std::size_t>(device)];
    sign.doing.store(doing, std::memory_order_relaxed);
    sign.node.store(node, std::memory_order_relaxed);
    sign.changes.fetch_add(1, std::memory_order_release);
}

void Watch::has_done(int device, int node, Ns took) {
    Sign& sign = signs_[static_cast<std::size_t>(device)];
    const std::int64_t number = sign.done.load(std::memory_order_relaxed);
    Done& done = sign.last[number % kKept];
    done.node.store(node, std::memory_order_relaxed);
    done.took.store(took, std::memory_order_relaxed);
    sign.done.store(number + 1, std::memory_order_release);
    rests(device);
}

Ns Watch::slice_of(Ns rest) {
    constexpr Ns kLeast = 1'000'000, kMost = 250'000'000;
    return std::clamp(rest / 16, kLeast, kMost);
}

bool Watch::all_are_away() const {
    for (std::size_t device = 0; device < seen_.size(); ++device)
        if (signs_[device].doing.load(std::memory_order_relaxed) != Doing::Away)
            return false;
    return true;
}

void Watch::tell(const std::vector<int>& devices, Mail& mail) const {
    for (const int device : devices) {
        const Sign& sign = signs_[static_cast<std::size_t>(device)];
        Told told;
        told.device = device;
        told.doing = static_cast<int>(sign.doing.load(std::memory_order_relaxed));
        told.node = sign.node.load(std::memory_order_relaxed);
        told.changes = sign.changes.load(std::memory_order_acquire);
        told.done = sign.done.load(std::memory_order_acquire);
        for (int back = 0; back < std::min<std::int64_t>(kShown, told.done); ++back) {
            const Done& done = sign.last[(told.done - 1 - back) % kKept];
            told.last[back] = {done.node.load(std::memory_order_relaxed), done.took.load(std::memory_order_relaxed)};
        }
        put(mail, told);
    }
}

void Watch::hear(MailReader& mail) {
    while (!mail.at_end()) {
        const Told told = mail.get<Told>();
        if (told.device < 0 || told.device >= static_cast<int>(seen_.size()) || told.node >= graph_.size())
            fail_with(ExitCode::RunFailed, "another rank tells of device {}, which is not there", told.device);
        Sign& sign = signs_[static_cast<std::size_t>(told.device)];
        sign.doing.store(static_cast<Doing>(told.doing), std::memory_order_relaxed);
        sign.node.store(told.node, std::memory_order_relaxed);
        for (int back = 0; back < std::min<std::int64_t>(kShown, told.done); ++back) {
            Done& done = sign.last[(told.done - 1 - back) % kKept];
            done.node.store(std::clamp(told.last[back].node, 0, graph_.size() - 1), std::memory_order_relaxed);
            done.took.store(told.last[back].took, std::memory_order_relaxed);
        }
        sign.done.store(told.done, std::memory_order_release);
        sign.changes.store(told.changes, std::memory_order_release);
    }
}

std::string Watch::describe(const std::vector<int>& devices) const {
    std::string text;
    for (const int device : devices) {
        const Sign& sign = signs_[static_cast<std::size_t>(device)];
        const int node = sign.node.load(std::memory_order_relaxed);
        text += fmt::format("{}device {}", text.empty() ? "" : ", ", device);
        if (const Doing doing = sign.doing.load(std::memory_order_relaxed);
            node >= 0 && (doing == Doing::Working || doing == Doing::Waiting))
            text += fmt::format(" {} {}", doing == Doing::Working ? "was in" : "waited at", print(graph_.task(node)));
    }
    return text;
}

std::string Watch::last_tasks(const std::vector<int>& devices) const {
    std::string text;
    for (const int device : devices) {
        const Sign& sign = signs_[static_cast<std::size_t>(device)];
        const std::int64_t all = sign.done.load(std::memory_order_acquire);
        for (int back = 0; back < std::min<std::int64_t>(kShown, all); ++back) {
            const Done& done = sign.last[(all - 1 - back) % kKept];
            text += back == 0 ? fmt::format("\n  device {} before that: ", device) : ", ";
            text += fmt::format("{} in {}", print(graph_.task(done.node.load(std::memory_order_relaxed))),
                                print_time(done.took.load(std::memory_order_relaxed)));
        }
    }
    return text;
}

void Watch::look(const Limits& limits, Ns passed) {
    const std::lock_guard lock(mutex_);
    const Ns counted = std::min(passed, 2 * slice_of(limits.rest));
    bool stands_still = true, some_wait = false;
    for (std::size_t device = 0; device < seen_.size(); ++device) {
        const Sign& sign = signs_[device];
        const std::int64_t changes = sign.changes.load(std::memory_order_acquire);
        if (seen_[device].changes != changes) {
            seen_[device] = {changes, 0};
            stands_still = false;
            continue;
        }
        const Ns since = seen_[device].since += counted;
        const int node = sign.node.load(std::memory_order_relaxed);
        const Doing doing = sign.doing.load(std::memory_order_relaxed);
        stands_still = stands_still && doing != Doing::Working;
        some_wait = some_wait || doing == Doing::Waiting;
        if (doing == Doing::Working && node >= 0 && since > limits.task[static_cast<std::size_t>(node)])
            fail_with(ExitCode::PeerSilent, "device {} is silent: {} does not end since {}{}{}", device,
                      print(graph_.task(node)), print_time(since), waiting(), last_tasks({static_cast<int>(device)}));
        if (doing == Doing::Resting && since > limits.rest)
            fail_with(ExitCode::PeerSilent, "device {} is silent: it begins nothing since {}{}{}", device,
                      print_time(since), waiting(), last_tasks({static_cast<int>(device)}));
    }
    standstill_ = stands_still && some_wait ? standstill_ + counted : 0;
    if (standstill_ > limits.standstill)
        fail_with(ExitCode::PeerSilent, "no device has worked since {}{}", print_time(standstill_), waiting());
}

// "; device 0 waits at 0RECV_B1<1"
std::string Watch::waiting() const {
    std::string text;
    for (std::size_t device = 0; device < seen_.size(); ++device) {
        const int node = signs_[device].node.load(std::memory_order_relaxed);
        if (signs_[device].doing.load(std::memory_order_relaxed) == Doing::Waiting && node >= 0)
            text += fmt::format("; device {} waits at {}", device, print(graph_.task(node)));
    }
    return text;
}

}  // namespace pw

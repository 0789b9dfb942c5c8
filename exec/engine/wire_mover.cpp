#include "exec/engine/wire_mover.h"

#include "exec/engine/mailbox.h"

#include <algorithm>
#include <mutex>
#include <optional>

namespace pw {

bool LinkTimes::take_time() const {
    const auto take_time = [](const std::vector<Ns>& times) {
        return std::ranges::any_of(times, [](Ns time) { return time > 0; });
    };
    return take_time(occupation) || take_time(latency);
}

WireMover::WireMover(Mailbox& mailbox, const LinkTimes& times)
    : mailbox_(mailbox), times_(times), shared_(times.shared), thread_(start_thread("the link", [this] { run(); })) {}

WireMover::~WireMover() {
    {
        const std::lock_guard lock(mailbox_.mutex());
        closing_ = true;
        changed_.notify_all();
    }
    thread_.join();
}

void WireMover::start(int send, Lock& lock) {
    const Ns now = mailbox_.interval(send).start;
    if (shared_.carry(send) && times_.occupation[send] > 0) {
        shared_.start(send, times_.occupation[send], now);
        changed_.notify_all();
        return;
    }
    const Ns leaves = now + times_.occupation[send];
    end_at(leaves, now, send, lock);
    end_at(leaves + times_.latency[send], now, mailbox_.partner(send), lock);
}

void WireMover::end_at(Ns time, Ns now, int node, Lock& lock) {
    if (time == now)
        return mailbox_.end(node, lock);
    events_.push({time, events_so_far_++, node});
    changed_.notify_all();
}

void WireMover::leave(const SharedLinks::Leaving& leaving, Lock& lock) {
    shared_.leave(leaving);
    events_.push({leaving.time + times_.latency[leaving.send], events_so_far_++, mailbox_.partner(leaving.send)});
    mailbox_.end(leaving.send, lock);
}

void WireMover::run() {
    use_exact_timers();
    Lock lock(mailbox_.mutex());
    while (!closing_) {
        const std::optional<SharedLinks::Leaving> leaving = shared_.next();
        if (events_.empty() && !leaving) {
            changed_.wait(lock);
            continue;
        }
        const bool leaves = leaving && (events_.empty() || leaving->time <= events_.top().time);
        const Ns time = leaves ? leaving->time : events_.top().time;
        if (clock_now() < time) {
            changed_.wait_until(lock, time);
            continue;
        }
        if (leaves) {
            leave(*leaving, lock);
        } else {
            const int node = events_.top().node;
            events_.pop();
            mailbox_.end(node, lock);
        }
        mailbox_.advance(lock);
    }
}

}  // namespace pw

#include "exec/engine/rank_mover.h"

#include "exec/engine/mailbox.h"

#include <mutex>
#include <utility>

namespace pw {

namespace {

constexpr Ns kBetweenPollsOfTransfers = 2'000'000;  // of the thread (a poll takes about 15 us)

}  // namespace

RankMover::RankMover(Mailbox& mailbox, const RankMessages& messages, Payload& payload)
    : mailbox_(mailbox), messages_(messages), payload_(payload) {
    if (is_polled())
        thread_ = start_thread("messages between ranks", [this] { run(); });
}

RankMover::~RankMover() {
    if (!thread_.joinable())
        return;
    {
        const std::lock_guard lock(mailbox_.mutex());
        closing_ = true;
        changed_.notify_all();
    }
    thread_.join();
}

void RankMover::begin_step() {
    too_early_.clear();
    reached_.assign(mailbox_.devices(), -1);
}

// As soon as the RECV is posted, the sender's rank may write the landing buffer: no earlier buffer may be in use in
// that memory.
bool RankMover::has_memory(int recv) const { return reached_[mailbox_.device_of(recv)] >= messages_.lands_from[recv]; }

void RankMover::start(int transfer, Lock& lock) {
    if (mailbox_.receives(transfer) && !has_memory(transfer))
        too_early_.push_back(transfer);
    else
        begin(transfer, lock);
}

void RankMover::reach(int device, int position, Lock& lock) {
    reached_[device] = position;
    std::erase_if(too_early_, [&](int recv) {
        if (has_memory(recv))
            landing_.push_back(recv);
        return has_memory(recv);
    });
    while (!landing_.empty()) {
        const int recv = landing_.front();
        landing_.erase(landing_.begin());
        begin(recv, lock);
    }
}

void RankMover::begin(int node, Lock& lock) {
    mailbox_.begin(node);
    if (!is_polled()) {
        lock.unlock();
        messages_.carrier->enqueue(node);
        lock.lock();
        return mailbox_.end(node, lock);
    }
    const int peer = messages_.map.rank_of(mailbox_.device_of(mailbox_.partner(node)));
    const std::span<std::byte> message = payload_.message(node);
    const int tag = messages_.tag[node];
    pending_.push_back({node, mailbox_.receives(node)
                                  ? messages_.ranks->receive(peer, tag, message)
                                  : messages_.ranks->send(peer, tag, message, mailbox_.goes_by_rendezvous(node))});
    changed_.notify_all();
}

bool RankMover::poll(Lock& lock) {
    if (failure_)
        std::rethrow_exception(failure_);
    bool ended = false;
    for (std::size_t k = 0; k < pending_.size();) {
        const auto [node, ticket] = pending_[k];
        if (!messages_.ranks->done(ticket)) {
            ++k;
            continue;
        }
        pending_[k] = pending_.back();
        pending_.pop_back();
        mailbox_.end(node, lock);
        ended = true;
    }
    mailbox_.advance(lock);
    return ended;
}

void RankMover::run() {
    Lock lock(mailbox_.mutex());
    try {
        while (!closing_) {
            if (pending_.empty() || mailbox_.is_aborted())
                changed_.wait(lock);
            else
                changed_.wait_for(lock, kBetweenPollsOfTransfers);
            if (!mailbox_.is_aborted())
                poll(lock);
        }
    } catch (...) {  // the next wait throws it
        failure_ = std::current_exception();
    }
}

}  // namespace pw

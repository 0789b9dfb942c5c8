#include "exec/ranks/control_connection.h"

#include "exec/system/threads.h"
#include "workloads/first_failure.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace pw {

namespace {

constexpr Ns kPollOfControl = 1'000'000;
constexpr Ns kFlushTime = 1'000'000'000;  // for frames that are not yet sent when a run ends

struct FrameHead {
    std::uint32_t kind = 0;
    std::uint32_t bytes = 0;
};
constexpr std::uint32_t kLargestFrame = 1 << 24;

}  // namespace

ControlConnection::ControlConnection(Ranks& ranks, Ns timeout, Ns slice, Callbacks callbacks)
    : rank_(ranks.rank()),
      timeout_(timeout),
      slice_(slice),
      callbacks_(std::move(callbacks)),
      connections_(connect_ranks(ranks, timeout)) {
    for (const int rank : connections_->ranks())  // rank 0 may first wait for ranks to connect
        peers_.push_back(
            {.connection = static_cast<int>(peers_.size()), .rank = rank, .silent_for = rank == 0 ? -timeout : 0});
    if (rank_ == 0 && static_cast<int>(peers_.size()) < ranks.size() - 1)
        fail_missing(ranks.size());
}

// Sends the reason to the ranks that have connected.
void ControlConnection::fail_missing(int size) {
    std::string missing;
    for (int rank = 1; rank < size; ++rank)
        if (std::ranges::none_of(peers_, [rank](const Peer& peer) { return peer.rank == rank; }))
            missing += fmt::format("{}rank {}", missing.empty() ? "" : ", ", rank);
    std::string text = fmt::format("{} did not call rank 0 over TCP within {}", missing, print_time(timeout_));
    if (const int rejected = connections_->rejected(); rejected > 0)
        text += fmt::format("; {} connections of other programs were closed", rejected);
    send_failure(text, ExitCode::PeerSilent);
    throw Error(ExitCode::PeerSilent, text);
}

void ControlConnection::start() {
    thread_ = start_thread("the control connection", [this] { run(); });
}

ControlConnection::~ControlConnection() {
    {
        const std::lock_guard lock(mutex_);
        closes_ = clock_now() + (failed_ ? 0 : kFlushTime);
    }
    connections_->wake();
    if (thread_.joinable())
        thread_.join();
}

void ControlConnection::run() {
    Ns last_check = clock_now(), last_heartbeat = 0;
    std::vector<Connections::Entry> entries;
    for (;;) {
        bool closing = false;
        {
            const std::lock_guard lock(mutex_);
            closing = closes_ > 0;
            if (closing && (all_sent() || clock_now() > closes_))
                return;
            entries.clear();
            for (const Peer& peer : peers_)
                if (peer.is_open)
                    entries.push_back({.connection = peer.connection, .writes = !peer.out.empty()});
        }
        connections_->wait(entries, closing ? kPollOfControl : slice_ + kPollOfControl);
        try {
            serve(entries);
            const Ns now = clock_now();
            if (now - last_heartbeat >= slice_ && !closing) {
                last_heartbeat = now;
                send_heartbeats();
            }
            if (now - last_check >= slice_ && !closing) {
                const Ns passed = now - std::exchange(last_check, now);
                check_silent(passed);
                if (rank_ == 0)
                    callbacks_.check(passed);
            }
        } catch (...) {
            fail(std::current_exception());
        }
    }
}

// Sends and receives as much as is possible now. If the connection to a peer ends, the remaining peers are still
// served.
void ControlConnection::serve(const std::vector<Connections::Entry>& entries) {
    FirstFailure failure;
    const std::lock_guard lock(mutex_);
    for (const Connections::Entry& entry : entries)
        failure.guard(
            [&] {
                Peer& peer = peers_[static_cast<std::size_t>(entry.connection)];
                if (entry.can_write)
                    flush(peer);
                if (entry.can_read)
                    receive(peer);
            },
            [] {});
    failure.rethrow();
}

void ControlConnection::send_heartbeats() {
    Message activity;
    if (rank_ != 0)
        callbacks_.write_activity(activity);
    const std::lock_guard lock(mutex_);
    for (Peer& peer : peers_)
        if (peer.is_open && peer.out.empty())  // a peer that does not read gets no further heartbeats
            send(peer, Frame::Activity, activity);
}

void ControlConnection::receive(Peer& peer) {
    std::array<std::byte, 1 << 16> buffer;
    const std::optional<std::size_t> got = connections_->receive(peer.connection, buffer);
    if (!got)
        return handle_end(peer);
    if (*got == 0)
        return;
    peer.silent_for = 0;
    peer.in.insert(peer.in.end(), buffer.begin(), buffer.begin() + *got);
    FrameHead head;
    while (peer.in.size() >= sizeof head) {
        std::memcpy(&head, peer.in.data(), sizeof head);
        if (head.bytes > kLargestFrame)
            return handle_end(peer);
        if (peer.in.size() < sizeof head + head.bytes)
            return;
        const auto begin = peer.in.begin() + sizeof head, end = begin + head.bytes;
        const Message content(begin, end);
        peer.in.erase(peer.in.begin(), end);
        handle(peer, static_cast<Frame>(head.kind), content);
    }
}

void ControlConnection::handle(Peer& peer, Frame frame, const Message& content) {
    MessageReader reader(content);
    switch (frame) {
        case Frame::Activity:
            if (rank_ == 0)
                callbacks_.read_activity(reader);
            return;
        case Frame::Leave:
            peer.has_left = true;
            return;
        case Frame::Failure:
            break;
    }
    const auto from = reader.read<std::int32_t>();
    const auto code = static_cast<ExitCode>(reader.read<std::int32_t>());
    const std::string text = reader.read_text();
    for (Peer& other : peers_)  // rank 0 forwards it
        if (&other != &peer && other.is_open)
            send(other, Frame::Failure, content);
    throw StoppedByOthers(code, fmt::format("stopped because rank {} has failed: {}", from, text));
}

// The other ranks end after rank 0.
bool ControlConnection::may_end(const Peer& peer) const { return peer.has_left && (rank_ != 0 || has_left_); }

// If the connection ends too early, the process is gone, or its host.
void ControlConnection::handle_end(Peer& peer) {
    peer.is_open = false;
    connections_->close(peer.connection);
    if (!may_end(peer) && closes_ == 0 && !failed_)
        fail_with(ExitCode::RunFailed, "{} is gone: its connection has ended{}", callbacks_.describe(peer.rank),
                  callbacks_.last_tasks(peer.rank));
}

void ControlConnection::send(Peer& peer, Frame frame, const Message& content) {
    write(peer.out, FrameHead{static_cast<std::uint32_t>(frame), static_cast<std::uint32_t>(content.size())});
    peer.out.insert(peer.out.end(), content.begin(), content.end());
    flush(peer);
}

void ControlConnection::flush(Peer& peer) {
    while (!peer.out.empty()) {
        const std::optional<std::size_t> sent = connections_->send(peer.connection, peer.out);
        if (!sent)
            peer.out.clear();  // bytes that it sent earlier are still read
        if (sent.value_or(0) == 0)
            return;
        peer.out.erase(peer.out.begin(), peer.out.begin() + static_cast<std::ptrdiff_t>(*sent));
    }
}

// At most two intervals count per call: the process may have been stopped in between.
void ControlConnection::check_silent(Ns passed) {
    const std::lock_guard lock(mutex_);
    for (Peer& peer : peers_) {
        if (!peer.is_open)
            continue;
        peer.silent_for += std::min(passed, 2 * slice_);
        if (peer.silent_for > timeout_ && !may_end(peer))
            fail_with(ExitCode::PeerSilent, "{} is silent: it has sent nothing for {}{}",
                      callbacks_.describe(peer.rank), print_time(peer.silent_for), callbacks_.last_tasks(peer.rank));
        if (peer.silent_for > timeout_ && rank_ != 0)
            fail_with(ExitCode::PeerSilent, "rank 0 has ended, and rank {} has not for {}", rank_,
                      print_time(peer.silent_for));
    }
}

bool ControlConnection::all_sent() const {
    return std::ranges::all_of(peers_, [](const Peer& peer) { return !peer.is_open || peer.out.empty(); });
}

void ControlConnection::fail(std::exception_ptr error) {
    {
        const std::lock_guard lock(mutex_);
        if (std::exchange(failed_, true))
            return;
    }
    callbacks_.fail(std::move(error));
}

void ControlConnection::leave() {
    std::unique_lock lock(mutex_);
    has_left_ = true;
    for (Peer& peer : peers_)
        if (!failed_ && peer.is_open)
            send(peer, Frame::Leave, {});
    while (rank_ != 0 && !failed_ && !peers_.front().has_left) {
        lock.unlock();
        sleep_for(kPollOfControl);
        lock.lock();
    }
}

// Calls `passed` with the lock held, every millisecond until it returns true, at most for `most`.
template <class Passed>
void ControlConnection::wait_until(Passed passed, Ns most) {
    for (const Ns start = clock_now(); clock_now() - start < most;) {
        {
            const std::lock_guard lock(mutex_);
            if (passed())
                return;
        }
        sleep_for(kPollOfControl);
    }
}

void ControlConnection::wait_for_others() {
    wait_until([&] { return std::ranges::all_of(peers_, [](const Peer& peer) { return !peer.is_open; }); },
               3 * kFlushTime);
}

void ControlConnection::send_failure(const std::string& text, ExitCode code) {
    Message content;
    write(content, static_cast<std::int32_t>(rank_));
    write(content, static_cast<std::int32_t>(code));
    write_text(content, text);
    {
        const std::lock_guard lock(mutex_);
        failed_ = true;
        for (Peer& peer : peers_)
            if (peer.is_open)
                send(peer, Frame::Failure, content);
    }
    const auto sent = [&] {
        for (Peer& peer : peers_)
            if (peer.is_open)
                flush(peer);
        return all_sent();
    };
    wait_until(sent, kFlushTime);
}

}  // namespace pw

#include "exec/ranks/line.h"

#include "workloads/clock.h"
#include "workloads/first_failure.h"
#include "workloads/start_thread.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <utility>

namespace pw {

namespace {

constexpr Ns kMillisecond = 1'000'000;
constexpr Ns kLastWords = 1'000'000'000;  // what is still to be said when a run ends may take so long

// Closes a socket that nobody has taken.
class Socket {
public:
    explicit Socket(int number) : number_(number) {}
    ~Socket() {
        if (number_ >= 0)
            close(number_);
    }
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;
    int number() const { return number_; }
    int take() { return std::exchange(number_, -1); }

private:
    int number_;
};

struct Hello {
    std::uint64_t token = 0;
    std::int32_t rank = 0;
};

void prepare(int socket) {
    fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
    fcntl(socket, F_SETFD, FD_CLOEXEC);
    const int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool is_ready(int socket, short events, Ns wait) {
    pollfd entry{socket, events, 0};
    return ::poll(&entry, 1, static_cast<int>(wait / kMillisecond)) == 1;
}

// IPv4 addresses of this host, its own loop last: another host would reach itself there.
std::vector<in_addr> own_addresses() {
    std::vector<in_addr> addresses;
    ifaddrs* all = nullptr;
    if (getifaddrs(&all) != 0)
        return {{htonl(INADDR_LOOPBACK)}};
    for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next)
        if (each->ifa_addr != nullptr && each->ifa_addr->sa_family == AF_INET && (each->ifa_flags & IFF_UP) != 0) {
            const in_addr address = reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr;
            if ((each->ifa_flags & IFF_LOOPBACK) != 0)
                addresses.push_back(address);
            else
                addresses.insert(addresses.begin(), address);
        }
    freeifaddrs(all);
    return addresses;
}

std::string print(in_addr address, std::uint16_t port) {
    char text[INET_ADDRSTRLEN] = {};
    inet_ntop(AF_INET, &address, text, sizeof text);
    return fmt::format("{}:{}", text, port);
}

bool send_whole(int socket, const Hello& hello, Ns wait) {
    return is_ready(socket, POLLOUT, wait) &&
           ::send(socket, &hello, sizeof hello, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof hello);
}

bool receive_whole(int socket, Hello& hello, Ns wait) {
    std::size_t got = 0;
    while (got < sizeof hello && is_ready(socket, POLLIN, wait)) {
        const ssize_t more = recv(socket, reinterpret_cast<char*>(&hello) + got, sizeof hello - got, 0);
        if (more <= 0)
            return false;
        got += static_cast<std::size_t>(more);
    }
    return got == sizeof hello;
}

// A socket to rank 0, whose hello has been answered; -1 when nobody there knows the token.
int call(in_addr address, std::uint16_t port, const Hello& hello) {
    constexpr Ns kWait = 2'000'000'000;
    Socket socket(::socket(AF_INET, SOCK_STREAM, 0));
    if (socket.number() < 0)
        return -1;
    prepare(socket.number());
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr = address;
    to.sin_port = htons(port);
    if (connect(socket.number(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0 && errno != EINPROGRESS)
        return -1;
    Hello answer;
    if (!send_whole(socket.number(), hello, kWait) || !receive_whole(socket.number(), answer, kWait) ||
        answer.token != hello.token)
        return -1;
    return socket.take();
}

struct FrameHead {
    std::uint32_t kind = 0;
    std::uint32_t bytes = 0;
};
constexpr std::uint32_t kLargestFrame = 1 << 24;

}  // namespace

Line::Line(Ranks& ranks, Ns timeout, Ns slice, Watcher watcher)
    : rank_(ranks.rank()), timeout_(timeout), slice_(slice), watcher_(std::move(watcher)) {
    open(ranks, timeout);
}

void Line::start() {
    thread_ = start_thread("the line between ranks", [this] { keep(); });
}

Line::~Line() {
    {
        const std::lock_guard lock(mutex_);
        closes_ = clock_now() + (failed_ ? 0 : kLastWords);
    }
    if (thread_.joinable())
        thread_.join();
    for (const Peer& peer : peers_)
        if (peer.socket >= 0)
            close(peer.socket);
}

// Rank 0 listens; the others learn over MPI where.
void Line::open(Ranks& ranks, Ns timeout) {
    Socket listener(rank_ == 0 ? ::socket(AF_INET, SOCK_STREAM, 0) : -1);
    std::uint64_t token = 0;
    Mail where;
    if (rank_ == 0) {
        sockaddr_in own{};
        own.sin_family = AF_INET;
        socklen_t length = sizeof own;
        if (listener.number() < 0 ||
            bind(listener.number(), reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0 ||
            listen(listener.number(), ranks.size()) != 0 ||
            getsockname(listener.number(), reinterpret_cast<sockaddr*>(&own), &length) != 0)
            fail_with(ExitCode::RunFailed, "rank 0 cannot listen for the others: {}", std::strerror(errno));
        prepare(listener.number());
        std::random_device random;
        token = std::uint64_t{random()} << 32 | random();
        put(where, token);
        put(where, ntohs(own.sin_port));
        put_all(where, own_addresses());
    }
    where = broadcast(ranks, where);
    if (rank_ == 0)
        return accept_all(listener.number(), token, static_cast<std::size_t>(ranks.size() - 1), timeout);
    MailReader reader(where);
    token = reader.get<std::uint64_t>();
    const auto port = reader.get<std::uint16_t>();
    std::string tried;
    for (const in_addr& address : reader.get_all<in_addr>()) {
        if (const int socket = call(address, port, {token, rank_}); socket >= 0) {
            peers_.push_back({.socket = socket, .rank = 0});
            return;
        }
        tried += fmt::format("{}{}", tried.empty() ? "" : ", ", print(address, port));
    }
    fail_with(
        ExitCode::RunFailed,
        "rank {} cannot reach rank 0 over TCP at {}\n  help: let the hosts reach each other: failures are told there",
        rank_, tried);
}

void Line::accept_all(int listener, std::uint64_t token, std::size_t others, Ns timeout) {
    const Ns until = clock_now() + timeout;
    while (peers_.size() < others) {
        const Ns left = until - clock_now();
        if (left <= 0 || !is_ready(listener, POLLIN, left))
            fail_with(ExitCode::PeerSilent, "{} of {} ranks have not called rank 0 over TCP within {}",
                      others - peers_.size(), others, print_time(timeout));
        Socket caller(accept(listener, nullptr, nullptr));
        if (caller.number() < 0)
            continue;
        prepare(caller.number());
        Hello hello;
        if (!receive_whole(caller.number(), hello, left) || hello.token != token ||
            !send_whole(caller.number(), {token, 0}, left))
            continue;
        peers_.push_back({.socket = caller.take(), .rank = hello.rank});
    }
}

// The thread of the line.
void Line::keep() {
    Ns looked = clock_now(), beaten = 0;
    std::vector<pollfd> entries;
    for (;;) {
        bool closing = false;
        {
            const std::lock_guard lock(mutex_);
            closing = closes_ > 0;
            if (closing && (is_told() || clock_now() > closes_))
                return;
            entries.clear();
            for (const Peer& peer : peers_)
                entries.push_back({peer.socket, static_cast<short>(POLLIN | (peer.out.empty() ? 0 : POLLOUT)), 0});
        }
        (void)::poll(entries.data(), entries.size(), closing ? 1 : static_cast<int>(slice_ / kMillisecond) + 1);
        try {
            serve(entries);
            const Ns now = clock_now();
            if (now - beaten >= slice_ && !closing) {
                beaten = now;
                beat();
            }
            if (now - looked >= slice_ && !closing) {
                const Ns passed = now - std::exchange(looked, now);
                check_quiet(passed);
                if (rank_ == 0)
                    watcher_.look(passed);
            }
        } catch (...) {
            fail(std::current_exception());
        }
    }
}

// Sends and hears what can be; a peer that is lost keeps no other from being heard.
void Line::serve(const std::vector<pollfd>& entries) {
    FirstFailure failure;
    const std::lock_guard lock(mutex_);
    for (std::size_t k = 0; k < peers_.size(); ++k)
        failure.guard(
            [&] {
                if (peers_[k].socket >= 0 && (entries[k].revents & POLLOUT) != 0)
                    flush(peers_[k]);
                if (peers_[k].socket >= 0 && (entries[k].revents & (POLLIN | POLLHUP | POLLERR)) != 0)
                    hear(peers_[k]);
            },
            [] {});
    failure.rethrow();
}

void Line::beat() {
    Mail signs;
    if (rank_ != 0)
        watcher_.tell_signs(signs);
    const std::lock_guard lock(mutex_);
    for (Peer& peer : peers_)
        if (peer.socket >= 0 && peer.out.empty())  // who takes nothing gets no more
            send(peer, Frame::Signs, signs);
}

void Line::hear(Peer& peer) {
    std::array<std::byte, 1 << 16> buffer;
    const ssize_t got = recv(peer.socket, buffer.data(), buffer.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0)
        return lose(peer);
    peer.quiet = 0;
    peer.in.insert(peer.in.end(), buffer.begin(), buffer.begin() + got);
    FrameHead head;
    while (peer.in.size() >= sizeof head) {
        std::memcpy(&head, peer.in.data(), sizeof head);
        if (head.bytes > kLargestFrame)
            return lose(peer);
        if (peer.in.size() < sizeof head + head.bytes)
            return;
        const auto begin = peer.in.begin() + sizeof head, end = begin + head.bytes;
        const Mail content(begin, end);
        peer.in.erase(peer.in.begin(), end);
        take(peer, static_cast<Frame>(head.kind), content);
    }
}

void Line::take(Peer& peer, Frame frame, const Mail& content) {
    MailReader reader(content);
    switch (frame) {
        case Frame::Signs:
            if (rank_ == 0)
                watcher_.hear_signs(reader);
            return;
        case Frame::Leave:
            peer.has_left = true;
            return;
        case Frame::Failure:
            break;
    }
    const auto from = reader.get<std::int32_t>();
    const auto code = static_cast<ExitCode>(reader.get<std::int32_t>());
    const std::string text = reader.get_text();
    for (Peer& other : peers_)  // rank 0 tells the others
        if (&other != &peer && other.socket >= 0)
            send(other, Frame::Failure, content);
    throw StoppedByOthers(code, fmt::format("stopped since rank {} has failed: {}", from, text));
}

// A connection that ends without leave: the process is gone, or its host.
void Line::lose(Peer& peer) {
    close(std::exchange(peer.socket, -1));
    if (!peer.has_left && closes_ == 0 && !failed_)
        fail_with(ExitCode::RunFailed, "{} is gone: its connection has ended", watcher_.describe(peer.rank));
}

void Line::send(Peer& peer, Frame frame, const Mail& content) {
    put(peer.out, FrameHead{static_cast<std::uint32_t>(frame), static_cast<std::uint32_t>(content.size())});
    peer.out.insert(peer.out.end(), content.begin(), content.end());
    flush(peer);
}

void Line::flush(Peer& peer) {
    while (!peer.out.empty()) {
        const ssize_t sent = ::send(peer.socket, peer.out.data(), peer.out.size(), MSG_NOSIGNAL);
        if (sent < 0 && errno == EPIPE)
            peer.out.clear();  // what it has said before is read first
        if (sent <= 0)
            return;
        peer.out.erase(peer.out.begin(), peer.out.begin() + sent);
    }
}

// A process that was stopped, or got no time, sees less pass than the clock does.
void Line::check_quiet(Ns passed) {
    const std::lock_guard lock(mutex_);
    for (Peer& peer : peers_) {
        if (peer.socket < 0 || peer.has_left)
            continue;
        peer.quiet += std::min(passed, 2 * slice_);
        if (peer.quiet > timeout_)
            fail_with(ExitCode::PeerSilent, "{} is silent: nothing was heard of it since {}",
                      watcher_.describe(peer.rank), print_time(peer.quiet));
    }
}

bool Line::is_told() const {
    return std::ranges::all_of(peers_, [](const Peer& peer) { return peer.socket < 0 || peer.out.empty(); });
}

void Line::fail(std::exception_ptr error) {
    {
        const std::lock_guard lock(mutex_);
        if (std::exchange(failed_, true))
            return;
    }
    watcher_.fail(std::move(error));
}

void Line::leave() {
    std::unique_lock lock(mutex_);
    for (Peer& peer : peers_)
        if (!failed_ && peer.socket >= 0)
            send(peer, Frame::Leave, {});
    while (rank_ != 0 && !failed_ && !peers_.front().has_left) {
        lock.unlock();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        lock.lock();
    }
}

void Line::wait_for_others() {
    constexpr Ns kMost = 3'000'000'000;
    for (const Ns start = clock_now(); clock_now() - start < kMost;) {
        {
            const std::lock_guard lock(mutex_);
            if (std::ranges::all_of(peers_, [](const Peer& peer) { return peer.socket < 0; }))
                return;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

void Line::tell_failure(const std::string& text, ExitCode code) {
    Mail content;
    put(content, static_cast<std::int32_t>(rank_));
    put(content, static_cast<std::int32_t>(code));
    put_text(content, text);
    {
        const std::lock_guard lock(mutex_);
        failed_ = true;
        for (Peer& peer : peers_)
            if (peer.socket >= 0)
                send(peer, Frame::Failure, content);
    }
    for (const Ns start = clock_now(); clock_now() - start < kLastWords;) {
        {
            const std::lock_guard lock(mutex_);
            for (Peer& peer : peers_)
                if (peer.socket >= 0)
                    flush(peer);
            if (is_told())
                return;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

}  // namespace pw

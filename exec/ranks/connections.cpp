#include "exec/ranks/connections.h"

#include "exec/system/threads.h"
#include "workloads/error.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <utility>

namespace pw {

namespace {

constexpr Ns kMillisecond = 1'000'000;

// Closes a socket, or another file, that nobody has taken.
class Socket {
public:
    explicit Socket(int number) : number_(number) {}
    ~Socket() {
        if (number_ >= 0)
            ::close(number_);
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

class TcpConnections : public Connections {
public:
    void add(int socket, int rank) {
        sockets_.push_back(socket);
        ranks_.push_back(rank);
    }
    ~TcpConnections() override {
        for (const int socket : sockets_)
            if (socket >= 0)
                ::close(socket);
    }

    const std::vector<int>& ranks() const override { return ranks_; }

    void wait(std::vector<Entry>& entries, Ns time) override {
        polled_.clear();
        for (const Entry& entry : entries)
            polled_.push_back({sockets_[static_cast<std::size_t>(entry.connection)],
                               static_cast<short>(POLLIN | (entry.writes ? POLLOUT : 0)), 0});
        polled_.push_back({woken_.number(), POLLIN, 0});
        (void)::poll(polled_.data(), polled_.size(), static_cast<int>((time + kMillisecond - 1) / kMillisecond));
        for (std::size_t k = 0; k < entries.size(); ++k) {
            entries[k].can_read = (polled_[k].revents & (POLLIN | POLLHUP | POLLERR)) != 0;
            entries[k].can_write = (polled_[k].revents & POLLOUT) != 0;
        }
        eventfd_t times = 0;
        (void)eventfd_read(woken_.number(), &times);
    }
    void wake() override { (void)eventfd_write(woken_.number(), 1); }

    std::optional<std::size_t> receive(int connection, std::span<std::byte> bytes) override {
        const ssize_t got = recv(sockets_[static_cast<std::size_t>(connection)], bytes.data(), bytes.size(), 0);
        if (got > 0)
            return static_cast<std::size_t>(got);
        return got < 0 && (errno == EAGAIN || errno == EINTR) ? std::optional<std::size_t>(0) : std::nullopt;
    }

    std::optional<std::size_t> send(int connection, std::span<const std::byte> bytes) override {
        const ssize_t sent =
            ::send(sockets_[static_cast<std::size_t>(connection)], bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent >= 0)
            return static_cast<std::size_t>(sent);
        return errno == EPIPE ? std::nullopt : std::optional<std::size_t>(0);
    }

    void close(int connection) override { ::close(std::exchange(sockets_[static_cast<std::size_t>(connection)], -1)); }

private:
    std::vector<int> sockets_, ranks_;                            // by connection
    const Socket woken_{eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};  // where there is none left waits take their time
    std::vector<pollfd> polled_;
};

std::unique_ptr<Connections> accept_all(int listener, std::uint64_t token, std::size_t others, Ns timeout) {
    auto connections = std::make_unique<TcpConnections>();
    const Ns until = clock_now() + timeout;
    while (connections->ranks().size() < others) {
        const Ns left = until - clock_now();
        if (left <= 0 || !is_ready(listener, POLLIN, left))
            break;
        Socket caller(accept(listener, nullptr, nullptr));
        if (caller.number() < 0)
            continue;
        prepare(caller.number());
        Hello hello;
        if (!receive_whole(caller.number(), hello, left) || hello.token != token ||
            !send_whole(caller.number(), {token, 0}, left))
            continue;
        connections->add(caller.take(), hello.rank);
    }
    return connections;
}

}  // namespace

// Rank 0 listens; the others learn over MPI where.
std::unique_ptr<Connections> connect_ranks(Ranks& ranks, Ns timeout) {
    const int rank = ranks.rank();
    Socket listener(rank == 0 ? ::socket(AF_INET, SOCK_STREAM, 0) : -1);
    std::uint64_t token = 0;
    Mail where;
    if (rank == 0) {
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
    if (rank == 0)
        return accept_all(listener.number(), token, static_cast<std::size_t>(ranks.size() - 1), timeout);
    MailReader reader(where);
    token = reader.get<std::uint64_t>();
    const auto port = reader.get<std::uint16_t>();
    std::string tried;
    for (const in_addr& address : reader.get_all<in_addr>()) {
        if (const int socket = call(address, port, {token, rank}); socket >= 0) {
            auto connections = std::make_unique<TcpConnections>();
            connections->add(socket, 0);
            return connections;
        }
        tried += fmt::format("{}{}", tried.empty() ? "" : ", ", print(address, port));
    }
    fail_with(
        ExitCode::RunFailed,
        "rank {} cannot reach rank 0 over TCP at {}\n  help: let the hosts reach each other: failures are told there",
        rank, tried);
}

}  // namespace pw

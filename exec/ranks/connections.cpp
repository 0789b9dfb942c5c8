#include "exec/ranks/connections.h"

#include "exec/ranks/handshake.h"
#include "exec/system/threads.h"
#include "workloads/error.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

namespace pw {

namespace {

constexpr Ns kMillisecond = 1'000'000;

// IPv4 addresses of this host, the loopback last: another host would connect to itself there.
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

class TcpConnections : public Connections {
public:
    explicit TcpConnections(int rejected) : rejected_(rejected) {}
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
    int rejected() const override { return rejected_; }

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
    const int rejected_;
    std::vector<int> sockets_, ranks_;                            // by connection
    const Socket woken_{eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};  // if the system has none left, wake() has no effect
    std::vector<pollfd> polled_;
};

// The host and the network namespace of a process: equal if two ranks reach each other by loopback. Empty if the
// system does not report them.
struct HostNetwork {
    std::array<char, 40> boot = {};  // the kernel's random boot_id
    std::uint64_t device = 0, inode = 0;
    auto operator<=>(const HostNetwork&) const = default;
};

HostNetwork own_network() {
    HostNetwork own;
    std::string boot;
    struct stat state {};
    if (!(std::ifstream("/proc/sys/kernel/random/boot_id") >> boot) || stat("/proc/self/ns/net", &state) != 0)
        return own;
    boot.copy(own.boot.data(), own.boot.size());
    own.device = state.st_dev;
    own.inode = state.st_ino;
    return own;
}

// On rank 0: returns whether all ranks are in its network, or false if a rank has not answered within `time`.
bool share_network(Ranks& ranks, const HostNetwork& own, Ns time) {
    const auto networks = std::make_shared<std::vector<HostNetwork>>(static_cast<std::size_t>(ranks.size() - 1));
    ranks.keep(networks);  // a late answer may still be written into it
    std::vector<Ranks::Ticket> tickets;
    for (std::size_t k = 0; k < networks->size(); ++k)
        tickets.push_back(
            ranks.receive(static_cast<int>(k) + 1, kNetwork, std::as_writable_bytes(std::span(&(*networks)[k], 1))));
    for (const Ns until = clock_now() + time;;) {
        std::erase_if(tickets, [&](Ranks::Ticket ticket) { return ranks.done(ticket); });
        if (tickets.empty())
            return own != HostNetwork() && std::ranges::count(*networks, own) == std::ssize(*networks);
        if (clock_now() >= until)
            return false;
        sleep_for(kMillisecond / 20);
    }
}

Socket listen_on(in_addr address, std::uint16_t& port) {
    Socket listener(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr = address;
    socklen_t length = sizeof own;
    if (!listener.is_open() || bind(listener.number(), reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0 ||
        listen(listener.number(), SOMAXCONN) != 0 ||
        getsockname(listener.number(), reinterpret_cast<sockaddr*>(&own), &length) != 0)
        fail_with(ExitCode::RunFailed, "rank 0 cannot listen for the others: {}", std::strerror(errno));
    port = ntohs(own.sin_port);
    return listener;
}

// Rank 0 listens, on this host only if all ranks are here, and sends the other ranks its addresses over MPI.
std::unique_ptr<Connections> listen_for_ranks(Ranks& ranks, Ns timeout) {
    const bool all_here = share_network(ranks, own_network(), timeout / 4);
    const in_addr loopback{htonl(INADDR_LOOPBACK)}, any{htonl(INADDR_ANY)};
    std::uint16_t port = 0;
    const Socket listener = listen_on(all_here ? loopback : any, port);
    const HandshakeKey key = random_key();
    Message where;
    write(where, key);
    write(where, port);
    write_all(where, all_here ? std::vector<in_addr>{loopback} : own_addresses());
    (void)broadcast(ranks, where);
    AcceptedRanks accepted = accept_ranks(listener.number(), key, ranks.size(), timeout);
    auto connections = std::make_unique<TcpConnections>(accepted.rejected);
    for (std::size_t k = 0; k < accepted.sockets.size(); ++k)
        if (accepted.sockets[k].is_open())
            connections->add(accepted.sockets[k].take(), static_cast<int>(k) + 1);
    return connections;
}

std::unique_ptr<Connections> call_listener(Ranks& ranks, Ns timeout) {
    const HostNetwork own = own_network();
    const Ranks::Ticket sent = ranks.send(0, kNetwork, std::as_bytes(std::span(&own, 1)), false);
    const Message where = broadcast(ranks, {});
    wait_for(ranks, std::span(&sent, 1));
    MessageReader reader(where);
    const auto key = reader.read<HandshakeKey>();
    const auto port = reader.read<std::uint16_t>();
    std::vector<sockaddr_in> addresses;
    std::string tried;
    for (const in_addr& address : reader.read_all<in_addr>()) {
        sockaddr_in& to = addresses.emplace_back();
        to.sin_family = AF_INET;
        to.sin_addr = address;
        to.sin_port = htons(port);
        tried += fmt::format("{}{}", tried.empty() ? "" : ", ", print(address, port));
    }
    Socket socket = call_first_rank(addresses, key, ranks.rank(), timeout);
    if (!socket.is_open())
        fail_with(ExitCode::RunFailed,
                  "rank {} cannot reach rank 0 over TCP at {} within {}\n  help: allow TCP between the hosts: "
                  "ranks report failures over it",
                  ranks.rank(), tried, print_time(timeout));
    auto connections = std::make_unique<TcpConnections>(0);
    connections->add(socket.take(), 0);
    return connections;
}

}  // namespace

std::unique_ptr<Connections> connect_ranks(Ranks& ranks, Ns timeout) {
    return ranks.rank() == 0 ? listen_for_ranks(ranks, timeout) : call_listener(ranks, timeout);
}

}  // namespace pw

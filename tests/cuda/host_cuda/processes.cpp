#include "tests/cuda/host_cuda/processes.h"

#include "tests/cuda/host_cuda/communicators.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

namespace host_cuda {
namespace {

struct Head {
    enum Kind : int { kJoin, kComplete, kRefused, kLost, kIssued, kSent, kCopied } kind;
    int from = 0, to = 0;  // ranks; for kJoin the joining rank and the number of ranks
    std::size_t number = 0, bytes = 0;
};
struct Joining {
    char world[64] = "", gpu[16] = "";
};

bool move_all(int socket, void* memory, std::size_t bytes, bool sends) {
    for (std::size_t done = 0; done < bytes;) {
        char* const at = static_cast<char*>(memory) + done;
        const ssize_t moved =
            sends ? ::send(socket, at, bytes - done, MSG_NOSIGNAL) : recv(socket, at, bytes - done, 0);
        if (moved <= 0 && errno != EINTR)
            return false;
        done += moved > 0 ? static_cast<std::size_t>(moved) : 0;
        if (moved == 0)
            return false;
    }
    return true;
}

class Socket : public Connection {
public:
    explicit Socket(int socket) : socket_(socket) {}
    ~Socket() override { ::close(socket_); }

    void report_sent(int from, int to, std::size_t number, const void* data, std::size_t bytes) override {
        send({Head::kSent, from, to, number, bytes}, data);
    }
    void report_issued(int from, int to, int end) override {
        send({Head::kIssued, from, to, static_cast<std::size_t>(end), 0});
    }
    void report_copied(int from, int to, std::size_t number) override { send({Head::kCopied, from, to, number, 0}); }
    void report_complete(bool is_refused) override { send({is_refused ? Head::kRefused : Head::kComplete}); }
    void report_lost() override { send({Head::kLost}); }

    void send(Head head, const void* content = nullptr) {
        const std::lock_guard lock(sending_);
        if (move_all(socket_, &head, sizeof head, true))  // otherwise the reading thread detects the end
            (void)move_all(socket_, const_cast<void*>(content), head.bytes, true);
    }
    bool receive(Head& head, std::vector<char>& content) {
        if (!move_all(socket_, &head, sizeof head, false))
            return false;
        content.resize(head.bytes);
        return move_all(socket_, content.data(), head.bytes, false);
    }

private:
    const int socket_;
    std::mutex sending_;
};

sockaddr_un address_of(int process, socklen_t& length) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;  // a name that begins with zero is in no folder, and disappears with the process
    const int written =
        std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "pipewright host_cuda %d", process);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(written));
    return address;
}

int maker_of(const std::string& world_name) {
    int process = 0;
    return std::sscanf(world_name.c_str(), "host_cuda %d", &process) == 1 ? process : 0;
}

// Delivers messages to the ranks in this process, and forwards those between two other processes.
void take(World& world, const Head& head, std::vector<char>& content) {
    const int end = head.kind == Head::kIssued ? static_cast<int>(head.number) : 0;
    const int receiver = head.kind == Head::kSent || end == Pair::kSender ? head.to : head.from;
    if (const auto& way = world.way[receiver]) {
        if (head.kind == Head::kIssued)
            way->report_issued(head.from, head.to, end);
        else if (head.kind == Head::kSent)
            way->report_sent(head.from, head.to, head.number, content.data(), content.size());
        else
            way->report_copied(head.from, head.to, head.number);
        return;
    }
    if (end != 0) {
        world.pair(head.from, head.to).ends |= end;
        return;
    }
    Message& message = world.pair(head.from, head.to).message(head.number);
    if (head.kind == Head::kSent) {
        message.came = std::move(content);
        message.from = message.came.data();
        message.bytes = message.came.size();
        message.state.store(Message::kSent, std::memory_order_release);
    } else {
        message.state.store(Message::kCopied, std::memory_order_release);
    }
    world.ring();
}

// The thread of a connection, in a process that has joined a world or in the one that made it.
void read(const std::shared_ptr<Socket>& socket, std::shared_ptr<World> world) {
    Head head{};
    std::vector<char> content;
    while (socket->receive(head, content))
        switch (head.kind) {
            case Head::kJoin: {
                Joining joining;
                std::memcpy(&joining, content.data(), std::min(content.size(), sizeof joining));
                world = join_from_afar(joining.world, head.to, head.from, joining.gpu, socket);
                break;
            }
            case Head::kComplete:
            case Head::kRefused:
                complete(*world, head.kind == Head::kRefused);
                break;
            case Head::kLost:
                lose(*world);
                break;
            case Head::kIssued:
            case Head::kSent:
            case Head::kCopied:
                take(*world, head, content);
                break;
        }
    if (world)
        lose(*world);
}

void start_reading(const std::shared_ptr<Socket>& socket, const std::shared_ptr<World>& world) {
    std::thread([socket, world] { read(socket, world); }).detach();
}

void listen_here() {
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t length = 0;
    const sockaddr_un own = address_of(getpid(), length);
    if (listener < 0 || bind(listener, reinterpret_cast<const sockaddr*>(&own), length) != 0 ||
        listen(listener, 128) != 0) {
        std::perror("host_cuda: a socket for other processes");
        std::abort();
    }
    std::thread([listener] {
        for (;;)
            if (const int caller = accept(listener, nullptr, nullptr); caller >= 0)
                start_reading(std::make_shared<Socket>(caller), nullptr);
    }).detach();
}

}  // namespace

std::string new_world_name() {
    [[maybe_unused]] static const bool listens = (listen_here(), true);
    static std::atomic<int> names{0};
    return "host_cuda " + std::to_string(getpid()) + " " + std::to_string(++names);
}

bool is_made_here(const std::string& world_name) { return maker_of(world_name) == getpid(); }

std::shared_ptr<Connection> join_far(const std::shared_ptr<World>& world, const std::string& world_name, int rank,
                                     const std::string& gpu) {
    std::shared_ptr<Socket> connection;
    for (const auto& way : world->way)  // another rank of this process is already connected
        if (way)
            connection = std::static_pointer_cast<Socket>(way);
    if (!connection) {
        const int caller = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        socklen_t length = 0;
        const sockaddr_un maker = address_of(maker_of(world_name), length);
        if (caller < 0 || connect(caller, reinterpret_cast<const sockaddr*>(&maker), length) != 0)
            return nullptr;
        connection = std::make_shared<Socket>(caller);
        start_reading(connection, world);
    }
    Joining joining;
    std::snprintf(joining.world, sizeof joining.world, "%s", world_name.c_str());
    std::snprintf(joining.gpu, sizeof joining.gpu, "%s", gpu.c_str());
    connection->send({Head::kJoin, rank, world->ranks, 0, sizeof joining}, &joining);
    return connection;
}

}  // namespace host_cuda

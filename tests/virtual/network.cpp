#include "tests/virtual/network.h"

#include "exec/system/threads.h"
#include "workloads/error.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

namespace pw {

namespace {
constexpr std::size_t kWindow = 4096;  // bytes of a connection that may be under way
}

class VirtualRanks : public Ranks {
public:
    VirtualRanks(Network& network, int rank) : network_(network), rank_(rank) {}

    int rank() const override { return rank_; }
    int size() const override { return network_.size_; }
    int largest_tag() const override { return 32767; }
    const std::string& version() const override { return version_; }

    Ticket send(int to, int tag, std::span<const std::byte> bytes, bool waits) override {
        enter();
        auto send = std::make_shared<Network::Operation>();
        *send = {.rank = rank_, .peer = to, .tag = tag, .sends = true, .waits = waits, .from = bytes};
        send->as_given.assign(bytes.begin(), bytes.end());
        network_.send(send);
        return keep_operation(std::move(send));
    }
    Ticket receive(int from, int tag, std::span<std::byte> bytes) override {
        enter();
        auto receive = std::make_shared<Network::Operation>();
        *receive = {.rank = rank_, .peer = from, .tag = tag, .bytes = bytes};
        std::ranges::fill(bytes, std::byte{0xa5});  // nobody may read it before it is done
        network_.receive(receive);
        return keep_operation(std::move(receive));
    }
    bool done(Ticket ticket) override {
        enter();
        const std::shared_ptr<Network::Operation> operation = operations_.at(static_cast<std::size_t>(ticket));
        if (operation == nullptr)
            network_.world_.wrong.push_back(fmt::format("rank {} asks for a ticket that is spent", rank_));
        if (!operation->done) {
            if (network_.calls_fail && network_.gone_.contains(operation->peer))
                throw Unreachable(fmt::format("rank {} and rank {} cannot reach each other", rank_, operation->peer));
            return false;
        }
        operations_[static_cast<std::size_t>(ticket)] = nullptr;
        if (operation->sends && !std::ranges::equal(operation->from, operation->as_given))
            network_.world_.wrong.push_back(
                fmt::format("rank {} changed a message of tag {} before it was sent", rank_, operation->tag));
        if (!operation->sends && operation->came != operation->bytes.size())
            fail_with(ExitCode::RunFailed, "rank {} sent {} bytes where rank {} expects {}", operation->peer,
                      operation->came, rank_, operation->bytes.size());
        return true;
    }
    void get_on() override {
        if (!network_.given_up_.contains(rank_))
            network_.get_on(rank_);
    }
    void give_up() override { network_.given_up_.insert(rank_); }

private:
    void enter() const {
        network_.world_.maybe_others();
        network_.get_on(rank_);
        if (network_.given_up_.contains(rank_))
            throw Unreachable("stopped because another device failed");
    }
    Ticket keep_operation(std::shared_ptr<Network::Operation> operation) {
        operations_.push_back(std::move(operation));
        return static_cast<Ticket>(operations_.size()) - 1;
    }

    Network& network_;
    const int rank_;
    const std::string version_ = "a virtual MPI";
    std::vector<std::shared_ptr<Network::Operation>> operations_;  // by ticket; null: spent
};

class VirtualConnections : public Connections {
public:
    VirtualConnections(Network& network, int rank, const std::vector<int>& others)
        : network_(network), rank_(rank), ranks_(others) {}
    ~VirtualConnections() override {
        for (const int other : ranks_)
            network_.end_pipe(rank_, other, true);
    }
    const std::vector<int>& ranks() const override { return ranks_; }

    void wait(std::vector<Entry>& entries, Ns time) override {
        const Ns until = clock_now() + time;
        for (;;) {
            bool found = false;
            for (Entry& entry : entries) {
                const Network::Pipe& in = pipe_from(entry.connection);
                entry.can_read = !in.bytes.empty() || in.ended;
                entry.can_write = entry.writes && pipe_to(entry.connection).under_way < kWindow;
                found = found || entry.can_read || entry.can_write;
            }
            if (std::exchange(woken_, false) || found || clock_now() >= until)
                return;
            network_.world_.wait(network_.place_of(rank_), until);
        }
    }
    void wake() override {
        woken_ = true;
        network_.world_.wake(network_.place_of(rank_));
    }
    std::optional<std::size_t> receive(int connection, std::span<std::byte> bytes) override {
        Network::Pipe& in = pipe_from(connection);
        if (in.bytes.empty())
            return in.ended ? std::nullopt : std::optional<std::size_t>(0);
        const std::size_t most = std::min(in.bytes.size(), bytes.size());
        const auto count = static_cast<std::size_t>(1 + network_.world_.dice.up_to(static_cast<Ns>(most) - 1));
        std::copy_n(in.bytes.begin(), count, bytes.begin());
        in.bytes.erase(in.bytes.begin(), in.bytes.begin() + static_cast<std::ptrdiff_t>(count));
        in.under_way -= count;
        network_.world_.wake(network_.place_of(other(connection)));
        return count;
    }
    std::optional<std::size_t> send(int connection, std::span<const std::byte> bytes) override {
        const std::size_t room = kWindow - std::min(kWindow, pipe_to(connection).under_way);
        if (pipe_from(connection).ended)
            return std::nullopt;
        const std::size_t most = std::min(room, bytes.size());
        if (most == 0)
            return 0;
        const auto count = static_cast<std::size_t>(1 + network_.world_.dice.up_to(static_cast<Ns>(most) - 1));
        network_.send_piece(rank_, other(connection), bytes.first(count));
        return count;
    }
    void close(int connection) override { network_.end_pipe(rank_, other(connection), true); }

private:
    int other(int connection) const { return ranks_[static_cast<std::size_t>(connection)]; }
    Network::Pipe& pipe_from(int connection) { return network_.pipes_[{other(connection), rank_}]; }
    Network::Pipe& pipe_to(int connection) { return network_.pipes_[{rank_, other(connection)}]; }

    Network& network_;
    const int rank_;
    const std::vector<int> ranks_;
    bool woken_ = false;
};

Network::Network(World& world, int size, Delays delays)
    : world_(world), size_(size), delays_(delays), places_(static_cast<std::size_t>(size)) {
    for (int rank = 0; rank < size; ++rank)
        ranks_.push_back(new VirtualRanks(*this, rank));
}

// A run that failed is kept by its ranks, and threads of it may be in the middle of something: both are left as they
// are, as by a process that ends.
Network::~Network() = default;

Ranks& Network::ranks_of(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }

std::unique_ptr<Connections> Network::connect(int rank, const std::vector<int>& others) {
    return std::make_unique<VirtualConnections>(*this, rank, others);
}

void Network::end(int rank, bool orderly) {
    gone_.insert(rank);
    for (int other = 0; other < size_; ++other)
        if (other != rank && (rank == 0 || other == 0))
            end_pipe(rank, other, orderly);
}

Ns Network::delay(Ns most) {
    const Ns drawn = world_.dice.up_to(most);
    return world_.dice.one_of(delays_.slow_one_of) ? 10 * drawn : drawn;
}

// The bytes are read at some time before they arrive. Messages between two ranks do not overtake each other.
void Network::send(const std::shared_ptr<Operation>& send) {
    if (lost_.contains({send->rank, send->peer})) {
        has_lost_ = true;
        return;
    }
    Ns& last = last_message_[{send->rank, send->peer}];
    const Ns arrives = last = std::max(last + 1, world_.now + delay(delays_.message));
    const Ns read = world_.now + world_.dice.up_to(arrives - world_.now);
    auto message = std::make_shared<Message>(Message{send, {}});
    world_.at(read, [this, message] {
        const Operation& given = *message->send;
        if (!uses_memory(given.rank))
            return;
        message->bytes.assign(given.from.begin(), given.from.end());
        if (!given.waits)
            finish(message->send);
    });
    world_.at(arrives, [this, message] { arrive(message); });
}

void Network::arrive(const std::shared_ptr<Message>& message) {
    const Operation& given = *message->send;
    if (message->bytes.size() != given.from.size())
        return;  // its sender was gone before it was read
    std::deque<std::shared_ptr<Message>>& waiting = held_[{given.rank, given.peer}];
    if (lazy) {
        waiting.push_back(message);
        return;
    }
    queues_[{given.rank, given.peer, given.tag}].arrived.push_back(*message);
    match(given.rank, given.peer, given.tag);
}

// A rank calls MPI: what it has sent gets on.
void Network::get_on(int rank) {
    for (auto& [ends, waiting] : held_)
        for (; ends.first == rank && !waiting.empty(); waiting.pop_front()) {
            const Operation& given = *waiting.front()->send;
            queues_[{given.rank, given.peer, given.tag}].arrived.push_back(*waiting.front());
            match(given.rank, given.peer, given.tag);
        }
}

void Network::receive(const std::shared_ptr<Operation>& receive) {
    queues_[{receive->peer, receive->rank, receive->tag}].receives.push_back(receive);
    match(receive->peer, receive->rank, receive->tag);
}

void Network::match(int from, int to, int tag) {
    Queue& queue = queues_[{from, to, tag}];
    while (!queue.receives.empty() && !queue.arrived.empty()) {
        const std::shared_ptr<Operation> receive = queue.receives.front();
        const Message message = std::move(queue.arrived.front());
        queue.receives.pop_front();
        queue.arrived.pop_front();
        world_.at(world_.now + world_.dice.up_to(delays_.message / 4), [this, receive, message] {
            if (!uses_memory(receive->rank))
                return;
            receive->came = message.bytes.size();
            std::copy_n(message.bytes.begin(), std::min(message.bytes.size(), receive->bytes.size()),
                        receive->bytes.begin());
            finish(receive);
            if (message.send->waits)
                world_.at(world_.now + world_.dice.up_to(delays_.message),
                          [this, send = message.send] { finish(send); });
        });
    }
}

void Network::finish(const std::shared_ptr<Operation>& operation) { operation->done = true; }

void Network::send_piece(int from, int to, std::span<const std::byte> bytes) {
    Pipe& pipe = pipes_[{from, to}];
    pipe.under_way += bytes.size();
    if (mute_.contains(from) || mute_.contains(to))
        return;
    pipe.last = std::max(pipe.last + 1, world_.now + delay(delays_.line));
    world_.at(pipe.last, [this, from, to, piece = std::vector<std::byte>(bytes.begin(), bytes.end())] {
        Pipe& arrived = pipes_[{from, to}];
        if (arrived.ended)
            return;
        arrived.bytes.insert(arrived.bytes.end(), piece.begin(), piece.end());
        world_.wake(place_of(to));
    });
}

// What is under way may get lost when a process does not end its connections itself.
void Network::end_pipe(int from, int to, bool orderly) {
    if (mute_.contains(from) || mute_.contains(to))
        return;
    Pipe& pipe = pipes_[{from, to}];
    const Ns ends = world_.now + delay(delays_.line);
    pipe.last = orderly ? std::max(pipe.last + 1, ends) : ends;
    world_.at(pipe.last, [this, from, to] {
        pipes_[{from, to}].ended = true;
        world_.wake(place_of(to));
    });
}

}  // namespace pw

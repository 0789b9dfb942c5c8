// What the ranks of a virtual world reach each other by: messages, as MPI's, and connections, as TCP's. They are late,
// come in pieces, get lost or end as a seed has drawn it. It stands in for exec/ranks/mpi_ranks.cpp and
// connections.cpp.
#pragma once

#include "exec/ranks/connections.h"
#include "exec/ranks/ranks.h"
#include "tests/virtual/world.h"

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace pw {

// How long things take, at most; each time is drawn.
struct Delays {
    Ns message = 0, line = 0;
    int slow_one_of = 1'000'000;  // messages that take ten times as long
};

class Network {
public:
    Network(World& world, int size, Delays delays);
    ~Network();

    Ranks& ranks_of(int rank);
    std::unique_ptr<Connections> connect(int rank, const std::vector<int>& others);
    void end(int rank, bool orderly);  // its process has ended

    // What goes wrong from now on.
    void lose_messages(int from, int to) { lost_.insert({from, to}); }
    void lose_line(int rank) { mute_.insert(rank); }
    bool has_lost() const { return has_lost_; }
    bool calls_fail = false;  // of MPI, with ranks that are gone; else they wait for ever
    bool lazy = false;        // messages get on only when their sender calls MPI again

private:
    friend class VirtualRanks;
    friend class VirtualConnections;

    struct Operation {
        int rank = 0, peer = 0, tag = 0;
        bool sends = false, waits = false, done = false;
        std::span<std::byte> bytes = {};       // of a receive
        std::span<const std::byte> from = {};  // of a send
        std::vector<std::byte> as_given = {};  // when it was sent
        std::size_t came = 0;
    };
    struct Message {
        std::shared_ptr<Operation> send;
        std::vector<std::byte> bytes;
    };
    struct Queue {  // of one tag between two ranks
        std::deque<std::shared_ptr<Operation>> receives;
        std::deque<Message> arrived;
    };
    // One direction of a connection.
    struct Pipe {
        std::deque<std::byte> bytes;
        std::size_t under_way = 0;  // with those that have arrived
        Ns last = 0;                // something arrives then
        bool ended = false;
    };
    bool uses_memory(int rank) const { return world_.is_alive(rank) && !given_up_.contains(rank); }
    Ns delay(Ns most);
    void send(const std::shared_ptr<Operation>& send);
    void receive(const std::shared_ptr<Operation>& receive);
    void arrive(const std::shared_ptr<Message>& message);
    void get_on(int rank);
    void match(int from, int to, int tag);
    void finish(const std::shared_ptr<Operation>& operation);
    void send_piece(int from, int to, std::span<const std::byte> bytes);
    void end_pipe(int from, int to, bool orderly);
    const void* place_of(int rank) const { return &places_[static_cast<std::size_t>(rank)]; }

    World& world_;
    const int size_;
    const Delays delays_;
    std::map<std::pair<int, int>, Ns> last_message_;     // by (from, to)
    std::map<std::tuple<int, int, int>, Queue> queues_;  // by (from, to, tag)
    std::map<std::pair<int, int>, Pipe> pipes_;          // by (from, to)
    std::set<std::pair<int, int>> lost_;
    std::set<int> mute_, gone_, given_up_;
    bool has_lost_ = false;
    std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>> held_;  // by (from, to): not got on yet
    std::vector<char> places_;                                                  // where the lines of the ranks wait
    std::vector<Ranks*> ranks_;
};

}  // namespace pw

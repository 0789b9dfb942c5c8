// The lanes that transfers travel in: who must wait for whom. The transfer pass, the deadlock proof,
// the simulator and the executor all move their transfers through this one rule.
#pragma once

#include "schedules/plan/plan.h"
#include "schedules/plan/plan_graph.h"
#include "workloads/text/choice.h"
#include "workloads/units.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace pw {

struct TransferMode {
    // A lane keeps the order of the lists. With Edge there is one per directed device pair and direction, apart at both
    // ends; with Direction, one per device and kind of traffic (activations, gradients); with One, a single one per
    // device. Sends and receives share the latter two.
    enum class Communicator : std::uint8_t { Edge, Direction, One } communicator = Communicator::Edge;
    // With Early, receives wait in their lanes from the beginning; with Deferred, they are posted when the list reaches
    // them.
    enum class Receive : std::uint8_t { Early, Deferred } receive = Receive::Early;
    // The protocol says when a SEND at the head of its lane may leave: with Eager, at once; with OneSlot, when the RECV
    // of the lane's previous message has been posted; with Rendezvous, when its own RECV has been.
    enum class Protocol : std::uint8_t { Eager, OneSlot, Rendezvous } protocol = Protocol::Eager;
    // The sender keeps one copy per edge and direction: its list waits at a SEND until the earlier
    // one has left.
    bool sent_copies = true;
    // What a list says between two tasks that compute is an exchange. With Overlapped, a task waits for what it reads;
    // with Blocking, for the whole exchange before it, as Megatron-LM's pipelines wait for each batch of sends and
    // receives.
    enum class Exchange : std::uint8_t { Overlapped, Blocking } exchange = Exchange::Overlapped;

    // With Rendezvous: messages of at most so many bytes leave at once, as MPI sends them (its eager limit).
    Bytes eager_limit = 0;

    bool early_receive() const { return receive == Receive::Early; }
    bool blocks() const { return exchange == Exchange::Blocking; }
    bool operator==(const TransferMode&) const = default;
};

template <>
inline constexpr Choice<TransferMode::Communicator> kChoices<TransferMode::Communicator>[] = {
    {"edge", TransferMode::Communicator::Edge},
    {"direction", TransferMode::Communicator::Direction},
    {"one", TransferMode::Communicator::One}};
template <>
inline constexpr Choice<TransferMode::Receive> kChoices<TransferMode::Receive>[] = {
    {"early", TransferMode::Receive::Early}, {"deferred", TransferMode::Receive::Deferred}};
// OneSlot is for proofs: no backend has such lanes.
template <>
inline constexpr Choice<TransferMode::Protocol> kChoices<TransferMode::Protocol>[] = {
    {"eager", TransferMode::Protocol::Eager}, {"rendezvous", TransferMode::Protocol::Rendezvous}};
template <>
inline constexpr Choice<TransferMode::Exchange> kChoices<TransferMode::Exchange>[] = {
    {"overlapped", TransferMode::Exchange::Overlapped}, {"blocking", TransferMode::Exchange::Blocking}};

// Returns by node, of SENDs, whether it waits until its RECV has been posted, by how many bytes each transfer moves;
// empty where the size decides nothing.
std::vector<char> asking_sends(const TransferMode& mode, const std::vector<Bytes>& moved);

std::string print(const TransferMode& mode);  // "communicator edge, receive early, rendezvous"

// Which transfers share a lane, by node; -1 where there is none.
struct LaneTable {
    LaneTable(const PlanGraph& graph, TransferMode::Communicator communicator);

    std::vector<int> lane_of;          // numbered from 0
    std::vector<int> partner;          // the other end of a SEND or RECV
    std::vector<int> earlier_on_edge;  // of a SEND: the one before it of the device on its edge and direction
    int lanes = 0;
};

class Lanes {
public:
    // `here` says by device whether its ends are moved here; when empty, all are. The other end of a transfer between
    // here and elsewhere is taken to be ready: whoever carries the message waits for it. `asks` is asking_sends().
    Lanes(const PlanGraph& graph, TransferMode mode, std::vector<char> here = {}, std::vector<char> asks = {});

    // Goes back to the beginning, where early receives are posted.
    void reset();
    void set_asking(std::vector<char> asks) { asks_ = std::move(asks); }  // before reset()

    // Returns false while the device's list must wait before it posts this SEND.
    bool may_post(int node) const;
    // Notes that the list has reached the transfer (a SEND's tensor is made).
    void post(int node);
    // These note that the link is free again after this SEND, and that its message has reached the other end.
    void leave(int send);
    void arrive(int recv);
    // Posts a RECV ahead of its turn, at the head of its lane. Returns the transfer that it goes before, itself when it
    // headed the lane already, or -1 when it was posted there.
    int hoist(int recv);

    // These lists hold what the calls above have set off; the caller takes and clears them.
    std::vector<int> starting;  // SENDs that start now: leave() and arrive() are due
    std::vector<int> received;  // RECVs that are complete
    std::vector<int> awaited;   // RECVs from elsewhere that head their lanes and are posted: arrive() is due

    bool has_left(int send) const { return state_[send].left; }
    bool is_received(int recv) const { return state_[recv].received; }
    // Returns, for a transfer that is not complete, in a state where nothing moves, the node it waits for; -1 when the
    // list of its device has not posted it.
    int waits_for(int node) const;
    // Returns the SENDs that are posted and head their lanes, ascending.
    std::vector<int> waiting_sends() const;
    const LaneTable& table() const { return table_; }
    int partner(int node) const { return table_.partner[node]; }
    // Tells whether the SEND waits until its RECV has been posted.
    bool asks(int send) const {
        return mode_.protocol == TransferMode::Protocol::Rendezvous &&
               (asks_.empty() || asks_[static_cast<std::size_t>(send)] != 0);
    }
    // Tells whether one end of the transfer is here and the other is not.
    bool crosses(int node) const { return !is_here(node) || !is_here(partner(node)); }
    int earlier_on_edge(int send) const { return table_.earlier_on_edge[send]; }

private:
    struct Lane {
        std::vector<int> nodes;  // in list order
        std::size_t head = 0;
        bool busy = false;   // its head has started
        int last_sent = -1;  // the SEND whose message may still be in the slot
    };
    struct State {
        bool posted = false, active = false, left = false, arrived = false, received = false;
    };
    bool is_here(int node) const {
        return here_.empty() || here_[static_cast<std::size_t>(graph_.device_of(node))] != 0;
    }
    bool may_start(int send) const;
    void serve(int lane);
    bool serve_head(int lane);
    void pass_head(int lane);

    const PlanGraph& graph_;
    TransferMode mode_;
    LaneTable table_;
    std::vector<char> here_;  // by device
    std::vector<char> asks_;  // by node
    std::vector<Lane> lanes_;
    std::vector<State> state_;
};

// A walk runs the lists without time until all is done or nothing moves.
class Walk {
public:
    Walk(const Plan& plan, const PlanGraph& graph, TransferMode mode, std::vector<char> asks = {});  // asking_sends()

    void go_on();
    bool finished() const;
    Lanes& lanes() { return lanes_; }
    int next_node(int device) const { return graph_.node(device, next_[device]); }
    bool at_end(int device) const { return next_[device] == lengths_[device]; }

    // Returns, after go_on() without finished(), nodes of which each waits for the next, the last for the first.
    std::vector<int> circle() const;
    // reached[device] holds the nodes in the order in which the list reached them.
    std::vector<std::vector<int>> reached;

private:
    bool advance(int device);
    bool settle();
    bool is_done(int node) const;
    int open_exchange(int node) const;
    int waits_for(int node) const;

    const PlanGraph& graph_;
    bool blocks_;
    Lanes lanes_;
    std::vector<int> next_, lengths_;
    std::vector<std::size_t> inputs_done_;  // of each device's next node, how many first inputs are done: they stay so
    std::vector<bool> done_;
};

}  // namespace pw

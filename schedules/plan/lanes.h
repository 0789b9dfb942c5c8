// The lanes of transfers: which transfers wait for which. The transfer pass, the deadlock proof, the simulator and the
// executor all use this rule.
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
    // A lane keeps the order of the lists. Edge: a lane per directed pair of devices and kind of traffic (activations,
    // gradients), separate for sends and receives. Direction: a lane per device and kind of traffic. One: a single lane
    // per device. Sends and receives share the lanes of the latter two.
    enum class Communicator : std::uint8_t { Edge, Direction, One } communicator = Communicator::Edge;
    // Early: receives wait in their lanes from the beginning. Deferred: they are posted when the list reaches them.
    enum class Receive : std::uint8_t { Early, Deferred } receive = Receive::Early;
    // When a SEND at the head of its lane may leave. Eager: at once. OneSlot: when the RECV of the lane's previous
    // message has been posted. Rendezvous: when its own RECV has been posted.
    enum class Protocol : std::uint8_t { Eager, OneSlot, Rendezvous } protocol = Protocol::Eager;
    // The sender keeps a copy per edge and direction: its list waits at a SEND until the previous message has left.
    bool sent_copies = true;
    // The transfers in a list between two tasks that compute are an exchange. Overlapped: a task waits for what it
    // reads. Blocking: it waits for the whole exchange ahead of it, as Megatron-LM's pipelines wait for each batch of
    // sends and receives.
    enum class Exchange : std::uint8_t { Overlapped, Blocking } exchange = Exchange::Overlapped;

    // The copies between a device and its host. InTurn: one at a time, in the order of the list. BothWays: a copy
    // to the host and a copy back may run at the same time.
    enum class Copies : std::uint8_t { InTurn, BothWays } copies = Copies::InTurn;

    // Under Rendezvous, messages of at most this many bytes leave at once: MPI's eager limit.
    Bytes eager_limit = 0;

    bool early_receive() const { return receive == Receive::Early; }
    bool blocks() const { return exchange == Exchange::Blocking; }
    // Returns the number of the lane of a device's copies: 0 or 1.
    int lane_of_copy(Op op) const { return copies == Copies::BothWays && returns_to_device(op) ? 1 : 0; }
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

template <>
inline constexpr Choice<TransferMode::Copies> kChoices<TransferMode::Copies>[] = {
    {"in turn", TransferMode::Copies::InTurn}, {"both ways", TransferMode::Copies::BothWays}};

// Returns by node whether a SEND waits until its RECV has been posted, given the bytes that each transfer moves. Empty
// if the size makes no difference.
std::vector<char> sends_by_rendezvous(const TransferMode& mode, const std::vector<Bytes>& moved);

std::string print(const TransferMode& mode);  // "communicator edge, receive early, rendezvous"

// Which transfers share a lane, by node. A node without a lane has -1.
struct LaneTable {
    LaneTable(const PlanGraph& graph, TransferMode::Communicator communicator);

    std::vector<int> lane_of;          // numbered from 0
    std::vector<int> partner;          // the other end of a SEND or RECV
    std::vector<int> earlier_on_edge;  // of a SEND: the device's previous SEND on its edge and direction
    int lanes = 0;
};

class Lanes {
public:
    // `here` says by device whether this process moves its transfers. Empty means all devices. If only one end of a
    // transfer is here, the other end counts as ready, and the code that carries the message waits for it.
    // `by_rendezvous` is sends_by_rendezvous().
    Lanes(const PlanGraph& graph, TransferMode mode, std::vector<char> here = {}, std::vector<char> by_rendezvous = {});

    // Goes back to the beginning and posts early receives.
    void reset();
    void set_by_rendezvous(std::vector<char> by_rendezvous) {
        by_rendezvous_ = std::move(by_rendezvous);
    }  // before reset()

    // Returns false while the device's list must wait before it posts this SEND.
    bool may_post(int node) const;
    // The list has reached the transfer. For a SEND, its tensor is made.
    void post(int node);
    // leave: the link is free again after this SEND. arrive: the message has reached the other end.
    void leave(int send);
    void arrive(int recv);
    // Posts a RECV early, at the head of its lane. Returns the transfer that headed the lane until now, the RECV itself
    // if it already did, or -1 if it was posted there.
    int hoist(int recv);

    // Results of the calls above. The caller takes and clears them.
    std::vector<int> starting;  // SENDs that start now: the caller calls leave() and arrive() for them
    std::vector<int> received;  // RECVs that are complete
    std::vector<int> awaited;   // posted RECVs from elsewhere at the heads of their lanes: arrive() is due

    bool has_left(int send) const { return state_[send].left; }
    bool is_received(int recv) const { return state_[recv].received; }
    // Returns the node that an incomplete transfer waits for when nothing moves. Returns -1 if its device's list has
    // not posted the transfer.
    int waits_for(int node) const;
    // Returns the SENDs that are posted and head their lanes, ascending.
    std::vector<int> waiting_sends() const;
    const LaneTable& table() const { return table_; }
    int partner(int node) const { return table_.partner[node]; }
    // Returns whether the SEND waits until its RECV has been posted.
    bool goes_by_rendezvous(int send) const {
        return mode_.protocol == TransferMode::Protocol::Rendezvous &&
               (by_rendezvous_.empty() || by_rendezvous_[static_cast<std::size_t>(send)] != 0);
    }
    // Returns whether only one end of the transfer is here.
    bool crosses(int node) const { return !is_here(node) || !is_here(partner(node)); }
    int earlier_on_edge(int send) const { return table_.earlier_on_edge[send]; }

private:
    struct Lane {
        std::vector<int> nodes;  // in list order
        std::size_t head = 0;
        bool busy = false;   // its head has started
        int last_sent = -1;  // the SEND whose message may still occupy the slot
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
    std::vector<char> here_;           // by device
    std::vector<char> by_rendezvous_;  // by node
    std::vector<Lane> lanes_;
    std::vector<State> state_;
};

// Runs the lists without time until all tasks are done or nothing moves.
class Walk {
public:
    Walk(const Plan& plan, const PlanGraph& graph, TransferMode mode,
         std::vector<char> by_rendezvous = {});  // sends_by_rendezvous()

    void run();
    bool finished() const;
    Lanes& lanes() { return lanes_; }
    int next_node(int device) const { return graph_.node(device, next_[device]); }
    bool at_end(int device) const { return next_[device] == lengths_[device]; }

    // After run(), if not finished(): nodes of which each waits for the next, and the last for the first.
    std::vector<int> cycle() const;
    // The nodes by device, in the order in which its list reached them.
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
    std::vector<std::size_t> inputs_done_;  // of each device's next node: the number of leading inputs that are done
    std::vector<bool> done_;
};

}  // namespace pw

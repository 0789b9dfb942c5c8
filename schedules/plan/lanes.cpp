#include "schedules/plan/lanes.h"

#include <fmt/format.h>
#include "schedules/plan/plan_graph.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

namespace pw {

using Communicator = TransferMode::Communicator;
using Protocol = TransferMode::Protocol;

std::string print(const TransferMode& mode) {
    return fmt::format("communicator {}, receive {}, {}{}{}", name_of(mode.communicator), name_of(mode.receive),
                       mode.protocol == Protocol::OneSlot ? "one slot" : name_of(mode.protocol),
                       mode.eager_limit > 0 ? fmt::format(" above {}", exact_bytes(mode.eager_limit)) : std::string(),
                       mode.blocks() ? ", exchange blocking" : "");
}

std::vector<char> sends_by_rendezvous(const TransferMode& mode, const std::vector<Bytes>& moved) {
    std::vector<char> by_rendezvous;
    if (mode.protocol == Protocol::Rendezvous && mode.eager_limit > 0)
        for (const Bytes bytes : moved)
            by_rendezvous.push_back(bytes > mode.eager_limit ? 1 : 0);
    return by_rendezvous;
}

namespace {

// Device, partner device, end and kind of traffic in a single number: equal for transfers that share a lane.
std::uint64_t lane_key(const PlanGraph& graph, int node, int partner, Communicator communicator) {
    const auto device = static_cast<std::uint64_t>(graph.device_of(node));
    const Op op = graph.task(node).op;
    const unsigned kind = carries_gradients(op) ? 1 : 0, end = is_send(op) ? 1 : 0;
    switch (communicator) {
        case Communicator::One:
            return device << 32;
        case Communicator::Direction:
            return device << 32 | kind;
        case Communicator::Edge:
            break;
    }
    return device << 33 | static_cast<std::uint64_t>(graph.device_of(partner)) << 2 | end << 1 | kind;
}

}  // namespace

LaneTable::LaneTable(const PlanGraph& graph, TransferMode::Communicator communicator)
    : lane_of(static_cast<std::size_t>(graph.size()), -1), partner(lane_of), earlier_on_edge(lane_of) {
    for (int node = 0; node < graph.size(); ++node)
        if (is_recv(graph.task(node).op)) {
            partner[node] = graph.inputs(node).front();
            partner[partner[node]] = node;
        }
    std::unordered_map<std::uint64_t, int> lane_numbers;
    // The last SEND of the device so far by [edge], for activations and for gradients.
    std::array<std::vector<int>, 2> last_on_edge;
    for (std::vector<int>& last : last_on_edge)
        last.assign(static_cast<std::size_t>(graph.index().edges()), -1);
    struct Known {
        std::uint64_t key = ~std::uint64_t{0};
        int lane = -1;
    };
    std::array<Known, kOps> last_lane;  // of each operation: most transfers of a device share a lane
    for (int node = 0; node < graph.size(); ++node) {
        const Task& task = graph.task(node);
        if (!is_transfer(task.op) || partner[node] < 0)
            continue;
        Known& known = last_lane[static_cast<std::size_t>(task.op)];
        if (const std::uint64_t key = lane_key(graph, node, partner[node], communicator); key != known.key) {
            const auto [found, fresh] = lane_numbers.try_emplace(key, lanes);
            known = {key, found->second};
            lanes += fresh ? 1 : 0;
        }
        lane_of[node] = known.lane;
        if (!is_send(task.op))
            continue;
        const int edge = graph.index().edge(edge_of(task).from, edge_of(task).to);
        if (edge < 0)
            continue;  // only in plans that check() refuses
        const int earlier = std::exchange(last_on_edge[carries_gradients(task.op) ? 1 : 0][edge], node);
        if (earlier >= 0 && graph.device_of(earlier) == graph.device_of(node))
            earlier_on_edge[node] = earlier;
    }
}

Lanes::Lanes(const PlanGraph& graph, TransferMode mode, std::vector<char> here, std::vector<char> by_rendezvous)
    : graph_(graph),
      mode_(mode),
      table_(graph, mode.communicator),
      here_(std::move(here)),
      by_rendezvous_(std::move(by_rendezvous)),
      lanes_(static_cast<std::size_t>(table_.lanes)) {
    for (int node = 0; node < graph.size(); ++node)
        if (const int lane = table_.lane_of[node]; lane >= 0 && is_here(node))
            lanes_[lane].nodes.push_back(node);
    reset();
}

void Lanes::reset() {
    state_.assign(static_cast<std::size_t>(graph_.size()), {});
    starting.clear();
    received.clear();
    awaited.clear();
    for (Lane& lane : lanes_) {
        lane.head = 0;
        lane.busy = false;
        lane.last_sent = -1;
    }
    if (mode_.early_receive())
        for (int node = 0; node < graph_.size(); ++node)
            state_[node].posted = is_recv(graph_.task(node).op);
    for (int lane = 0; lane < static_cast<int>(lanes_.size()); ++lane)
        serve(lane);
}

bool Lanes::may_post(int node) const {
    const int earlier = table_.earlier_on_edge[node];
    return !mode_.sent_copies || earlier < 0 || state_[earlier].left;
}

void Lanes::post(int node) {
    state_[node].posted = true;
    serve(table_.lane_of[node]);
}

void Lanes::leave(int send) {
    state_[send].left = true;
    pass_head(table_.lane_of[send]);
    serve(table_.lane_of[send]);
}

void Lanes::arrive(int recv) {
    state_[recv].arrived = true;
    serve(table_.lane_of[recv]);
}

int Lanes::hoist(int recv) {
    Lane& lane = lanes_[table_.lane_of[recv]];
    const auto head = lane.nodes.begin() + static_cast<std::ptrdiff_t>(lane.head);
    const auto at = std::find(head, lane.nodes.end(), recv);
    const int before = *head;
    if (before == recv && state_[recv].posted)
        return -1;
    std::rotate(head, at, at + 1);
    state_[before].active = false;  // it waits for the RECV again
    post(recv);
    return before;
}

bool Lanes::may_start(int send) const {
    if (!state_[send].posted)
        return false;
    if (crosses(send))
        return true;
    if (mode_.protocol == Protocol::OneSlot) {
        const int last = lanes_[table_.lane_of[send]].last_sent;
        return last < 0 || state_[table_.partner[last]].active;
    }
    return !goes_by_rendezvous(send) || state_[table_.partner[send]].active;
}

void Lanes::pass_head(int lane) {
    ++lanes_[lane].head;
    lanes_[lane].busy = false;
}

// A loop instead of recursion, since a lane may hold as many arrived messages as the plan has tasks. It serves the lane
// at the other end from within, which recurses no further: every RECV there that could be passed has been passed.
void Lanes::serve(int number) {
    while (serve_head(number)) {
    }
}

// Starts or completes the head of a lane as far as the protocol allows. Returns whether another transfer heads it now.
bool Lanes::serve_head(int number) {
    Lane& lane = lanes_[number];
    if (lane.busy || lane.head == lane.nodes.size())
        return false;
    const int node = lane.nodes[lane.head];
    State& state = state_[node];
    if (is_send(graph_.task(node).op)) {
        if (!may_start(node))
            return false;
        lane.busy = true;
        lane.last_sent = node;
        starting.push_back(node);
        return false;
    }
    if (!state.posted)
        return false;
    if (!std::exchange(state.active, true)) {
        if (crosses(node))
            awaited.push_back(node);
        else
            serve(table_.lane_of[table_.partner[node]]);
    }
    if (!state.arrived || std::exchange(state.received, true))
        return false;
    received.push_back(node);
    pass_head(number);
    return true;
}

int Lanes::waits_for(int node) const {
    const Lane& lane = lanes_[table_.lane_of[node]];
    if (lane.nodes[lane.head] != node)
        return lane.nodes[lane.head];
    if (!state_[node].posted)
        return -1;
    if (is_recv(graph_.task(node).op) || mode_.protocol == Protocol::Rendezvous)
        return table_.partner[node];
    return table_.partner[lane.last_sent];
}

std::vector<int> Lanes::waiting_sends() const {
    std::vector<int> sends;
    for (const Lane& lane : lanes_)
        if (lane.head < lane.nodes.size() && !lane.busy)
            if (const int node = lane.nodes[lane.head]; is_send(graph_.task(node).op) && state_[node].posted)
                sends.push_back(node);
    std::sort(sends.begin(), sends.end());
    return sends;
}

Walk::Walk(const Plan& plan, const PlanGraph& graph, TransferMode mode, std::vector<char> by_rendezvous)
    : reached(plan.order.size()),
      graph_(graph),
      blocks_(mode.blocks()),
      lanes_(graph, mode, {}, std::move(by_rendezvous)),
      next_(plan.order.size(), 0),
      inputs_done_(plan.order.size(), 0),
      done_(static_cast<std::size_t>(graph.size()), false) {
    for (const std::vector<Task>& order : plan.order)
        lengths_.push_back(static_cast<int>(order.size()));
}

void Walk::run() {
    for (bool moved = true; moved;) {
        moved = false;
        for (int device = 0; device < static_cast<int>(next_.size()); ++device)
            while (advance(device))
                moved = true;
        moved |= settle();
    }
}

bool Walk::finished() const {
    for (int device = 0; device < static_cast<int>(next_.size()); ++device)
        if (!at_end(device))
            return false;
    for (int node = 0; node < graph_.size(); ++node)
        if (!is_done(node))
            return false;
    return true;
}

// Transfers take no time here: a message arrives as soon as it starts.
bool Walk::settle() {
    bool moved = false;
    while (!lanes_.starting.empty()) {
        const int send = lanes_.starting.back();
        lanes_.starting.pop_back();
        lanes_.leave(send);
        lanes_.arrive(lanes_.partner(send));
        lanes_.received.clear();
        moved = true;
    }
    return moved;
}

bool Walk::is_done(int node) const {
    const Op op = graph_.task(node).op;
    return is_send(op) ? lanes_.has_left(node) : is_recv(op) ? lanes_.is_received(node) : done_[node];
}

// Where exchanges block: an incomplete transfer between a task and the previous task that computes, else -1.
int Walk::open_exchange(int node) const {
    if (!blocks_ || moves_data(graph_.task(node).op))
        return -1;
    for (int before = node - 1, first = node - graph_.position_of(node); before >= first; --before)
        if (!moves_data(graph_.task(before).op))
            return -1;
        else if (!is_done(before))
            return before;
    return -1;
}

bool Walk::advance(int device) {
    if (at_end(device))
        return false;
    const int node = next_node(device);
    const Op op = graph_.task(node).op;
    if (is_transfer(op)) {
        if (!lanes_.may_post(node))
            return false;
        lanes_.post(node);
        lanes_.received.clear();
    } else {
        const std::span<const int> inputs = graph_.inputs(node);
        std::size_t& input = inputs_done_[device];
        while (input < inputs.size() && is_done(inputs[input]))
            ++input;
        if (input < inputs.size() || open_exchange(node) >= 0)
            return false;
        input = 0;
        done_[node] = true;
    }
    reached[device].push_back(node);
    ++next_[device];
    return true;
}

// Returns the node that `node` waits for when nothing moves.
int Walk::waits_for(int node) const {
    const int device = graph_.device_of(node);
    const bool is_later = !at_end(device) && node > next_node(device);
    if (is_transfer(graph_.task(node).op)) {
        if (const int other = lanes_.waits_for(node); other >= 0)
            return other;
        if (!is_later)  // its list waits for the previous SEND of the edge
            return lanes_.earlier_on_edge(node);
    }
    if (is_later)
        return next_node(device);
    for (const int input : graph_.inputs(node))
        if (!is_done(input))
            return input;
    return open_exchange(node);
}

std::vector<int> Walk::cycle() const {
    int node = -1;
    for (int candidate = 0; candidate < graph_.size() && node < 0; ++candidate)
        if (!is_done(candidate))
            node = candidate;
    std::vector<int> path;
    while (node >= 0) {
        const auto seen = std::find(path.begin(), path.end(), node);
        if (seen != path.end())
            return {seen, path.end()};
        path.push_back(node);
        node = waits_for(node);
    }
    return path;
}

}  // namespace pw

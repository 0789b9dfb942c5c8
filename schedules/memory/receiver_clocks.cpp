#include "schedules/memory/receiver_clocks.h"

#include "schedules/memory/limits.h"

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/biconnected_components.hpp>

#include <algorithm>
#include <cassert>
#include <utility>

namespace pw {

namespace {

using EdgeIndex = boost::property<boost::edge_index_t, std::size_t>;
using Devices = boost::adjacency_list<boost::vecS, boost::vecS, boost::undirectedS, boost::no_property, EdgeIndex>;

// Returns the graph of devices that wait for each other, with each pair once.
Devices devices_of(const PlanGraph& graph, const std::vector<char>& leads, int count) {
    std::vector<std::vector<int>> waits_for(static_cast<std::size_t>(count));
    std::vector<int> last_asker(static_cast<std::size_t>(count), -1);
    for (int node = 0; node < graph.size(); ++node) {
        const int device = graph.device_of(node);
        if (!leads[node] && !is_recv(graph.task(node).op))
            continue;
        for (const int input : graph.inputs(node))
            if (const int other = graph.device_of(input); other != device && last_asker[other] != device) {
                last_asker[other] = device;
                waits_for[device].push_back(other);
            }
    }
    Devices devices(static_cast<std::size_t>(count));
    std::size_t edges = 0;
    for (int device = 0; device < count; ++device) {
        std::sort(waits_for[device].begin(), waits_for[device].end());
        for (const int other : waits_for[device]) {
            const std::vector<int>& back = waits_for[other];
            // if both wait for each other, the lower device adds the pair. Its row is sorted already
            if (other > device || !std::binary_search(back.begin(), back.end(), device))
                boost::add_edge(static_cast<std::size_t>(device), static_cast<std::size_t>(other), edges++, devices);
        }
    }
    return devices;
}

struct Block {
    std::vector<int> devices;                // ascending
    std::vector<std::pair<int, int>> pairs;  // pairs of devices with a wait between them
};

std::vector<Block> blocks_of(const Devices& devices) {
    std::vector<std::size_t> block_of(boost::num_edges(devices));
    const auto index = boost::get(boost::edge_index, devices);
    std::vector<Block> blocks(
        boost::biconnected_components(devices, boost::make_iterator_property_map(block_of.begin(), index)));
    for (const auto& edge : boost::make_iterator_range(boost::edges(devices))) {
        Block& block = blocks[block_of[boost::get(index, edge)]];
        const auto one = static_cast<int>(boost::source(edge, devices));
        const auto other = static_cast<int>(boost::target(edge, devices));
        block.pairs.emplace_back(one, other);
        block.devices.insert(block.devices.end(), {one, other});
    }
    for (Block& block : blocks) {
        std::vector<int>& all = block.devices;
        std::sort(all.begin(), all.end());
        all.erase(std::unique(all.begin(), all.end()), all.end());
    }
    return blocks;
}

}  // namespace

ReceiverClocks::ReceiverClocks(const PlanGraph& graph, const Shape& shape, const std::vector<int>& order)
    : graph_(graph), message_(static_cast<std::size_t>(graph.size()), -1) {
    assert(static_cast<int>(order.size()) == graph.size());
    find_readers(order, shape.devices);
    find_neighbours(shape);
    for (const int node : order) {
        const Op op = graph.task(node).op;
        if (is_send(op))
            send(node);
        else if (is_recv(op))
            receive(node);
        else if (leads_[node] && !is_copy(op))
            run(node);
    }
    at_send_ = std::move(message_);  // where receive() has stored it
    leads_ = {};
    readers_ = {};
}

// The RECV of a SEND is always a reader, whatever depends on it.
void ReceiverClocks::find_readers(const std::vector<int>& order, int devices) {
    leads_.assign(order.size(), 1);
    readers_.assign(order.size(), 0);
    const auto comes = [&](int node, int input) {
        return is_transfer(graph_.task(node).op) || graph_.device_of(input) != graph_.device_of(node) ||
               is_recv(graph_.task(input).op);
    };
    bool meets = false;
    for (int node = 0; node < graph_.size(); ++node)
        for (const int input : graph_.inputs(node)) {
            readers_[input] += comes(node, input) ? 1 : 0;
            meets |= !is_transfer(graph_.task(node).op) && graph_.device_of(input) != graph_.device_of(node);
        }
    if (!meets)
        return;
    // The last sums and updates of a plan delay no SEND, and there devices wait for many devices.
    leads_.assign(order.size(), 0);
    // whether later computing tasks of the list lead to a SEND
    std::vector<char> list_leads(static_cast<std::size_t>(devices), 0);
    for (std::size_t at = order.size(); at-- > 0;) {
        const int node = order[at];
        const Op op = graph_.task(node).op;
        if (is_send(op))
            leads_[node] = 1;
        else if (!is_recv(op))
            leads_[node] = list_leads[graph_.device_of(node)] |= leads_[node];
        for (const int input : graph_.inputs(node)) {
            leads_[input] |= leads_[node];
            readers_[input] -= comes(node, input) && !leads_[node] && !is_recv(op) ? 1 : 0;
        }
    }
}

void ReceiverClocks::find_neighbours(const Shape& shape) {
    const std::vector<Block> blocks = blocks_of(devices_of(graph_, leads_, shape.devices));
    double cells = 0;
    for (const Block& block : blocks)
        cells += static_cast<double>(block.devices.size()) * static_cast<double>(block.devices.size());
    refuse_large_table(sizeof(int) * cells, shape);
    neighbours_.resize(static_cast<std::size_t>(shape.devices));
    own_.resize(neighbours_.size());
    now_.resize(neighbours_.size());
    for (const Block& block : blocks) {
        const auto size = static_cast<int>(block.devices.size());
        const auto place_of = [&](int device) {
            const auto at = std::lower_bound(block.devices.begin(), block.devices.end(), device);
            return static_cast<int>(at - block.devices.begin());
        };
        const auto begin_of = [&](int device) { return static_cast<int>(now_[device].size()); };
        for (const auto& [one, other] : block.pairs) {
            neighbours_[one].push_back({other, begin_of(one), begin_of(other), size, place_of(other)});
            neighbours_[other].push_back({one, begin_of(other), begin_of(one), size, place_of(one)});
        }
        for (const int device : block.devices) {
            own_[device].push_back(begin_of(device) + place_of(device));
            now_[device].resize(now_[device].size() + block.devices.size(), -1);
        }
    }
    for (std::vector<Neighbour>& row : neighbours_)
        std::sort(row.begin(), row.end(), [](const Neighbour& a, const Neighbour& b) { return a.device < b.device; });
}

const ReceiverClocks::Neighbour& ReceiverClocks::neighbour(int device, int other) const {
    const std::vector<Neighbour>& row = neighbours_[device];
    return *std::lower_bound(row.begin(), row.end(), other,
                             [](const Neighbour& one, int number) { return one.device < number; });
}

void ReceiverClocks::run(int node) {
    const int device = graph_.device_of(node);
    Clock& clock = now_[device];
    for (const int input : graph_.inputs(node))
        if (graph_.device_of(input) != device || is_recv(graph_.task(input).op)) {
            const Message& message = messages_[message_[input]];
            const Neighbour& from = neighbour(device, message.device);
            for (int k = 0; k < from.size; ++k)
                clock[from.here + k] = std::max(clock[from.here + k], message.clock[from.there + k]);
            release(message_[input]);
        }
    for (const int own : own_[device])
        clock[own] = graph_.position_of(node);
    if (readers_[node] > 0)
        keep(node, clock);
}

// The message of the task that makes a SEND's tensor goes to its RECV, and from there to the readers of the RECV.
void ReceiverClocks::send(int node) {
    const int message = message_[graph_.inputs(node).front()];
    message_[node] = message;
    messages_[message].readers += readers_[node];
    release(message);
}

void ReceiverClocks::receive(int node) {
    const int send = graph_.inputs(node).front(), message = message_[send];
    const Neighbour& receiver = neighbour(graph_.device_of(send), graph_.device_of(node));
    message_[send] = messages_[message].clock[receiver.here + receiver.place];  // the last use of its message number
    message_[node] = message;
    messages_[message].readers += readers_[node];
    release(message);
}

void ReceiverClocks::keep(int node, const Clock& clock) {
    if (free_.empty()) {
        free_.push_back(static_cast<int>(messages_.size()));
        messages_.emplace_back();
    }
    message_[node] = free_.back();
    free_.pop_back();
    Message& message = messages_[message_[node]];
    message.clock = clock;
    message.device = graph_.device_of(node);
    message.readers = readers_[node];
}

void ReceiverClocks::release(int message) {
    if (--messages_[message].readers == 0)
        free_.push_back(message);
}

}  // namespace pw

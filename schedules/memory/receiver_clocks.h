// How far receivers have surely got when a message can first arrive: landing buffers are free until then.
#pragma once

#include "schedules/plan/plan_graph.h"

#include <vector>

namespace pw {

// For every SEND, the position of the latest task that computes on its receiver and must be done before what it sends
// is made. A RECV in the list keeps nobody but its reader waiting.
//
// Devices keep a clock each of what the others have done. News of a device reaches its neighbour by itself, or around
// within one block (biconnected component) of the graph of devices that wait for each other: a way that leaves the
// block comes back through the device where it left. So a device knows the devices of its blocks and no others, which
// are two in a chain, however long. What no later SEND depends on does not count.
class ReceiverClocks {
public:
    // The plan runs through and has its transfers. In `order` its nodes come after their inputs, and those that compute
    // as in their lists. Throws Error (BadInput) when the clocks alone take more than memory_for_plans().
    ReceiverClocks(const PlanGraph& graph, const Shape& shape, const std::vector<int>& order);

    int at(int send) const { return at_send_[static_cast<std::size_t>(send)]; }  // -1 for none

private:
    using Clock = std::vector<int>;  // of the devices of one's blocks, block by block: the position of the latest done

    // What two devices know of their block, of which both are.
    struct Neighbour {
        int device;
        int here, there;  // where the block begins in one's own clock and in the neighbour's
        int size;
        int place;  // of the neighbour in the block
    };
    // What other devices wait for.
    struct Message {
        Clock clock;
        int device = -1;  // that made it
        int readers = 0;  // who have not read it yet
    };

    void find_neighbours(const Shape& shape);
    const Neighbour& neighbour(int device, int other) const;
    void find_readers(const std::vector<int>& order, int devices);
    void run(int node);
    void send(int node);
    void receive(int node);
    void keep(int node, const Clock& clock);
    void release(int message);

    const PlanGraph& graph_;
    std::vector<char> leads_;                         // [node]: whether a later SEND depends on it
    std::vector<int> readers_;                        // [node]: who read its message
    std::vector<std::vector<Neighbour>> neighbours_;  // [device], by device
    std::vector<std::vector<int>> own_;               // [device]: where it stands in its own clock, once per block
    std::vector<Clock> now_;                          // [device]: of what it has done so far
    std::vector<Message> messages_;
    std::vector<int> free_;     // of these
    std::vector<int> message_;  // [node]: which of them; -1 when no other device reads it
    std::vector<int> at_send_;  // [node]
};

}  // namespace pw

// How far receivers have certainly progressed when a message can first arrive: landing buffers are free until then.
#pragma once

#include "schedules/plan/plan_graph.h"

#include <vector>

namespace pw {

// For every SEND, the position of the latest task that computes on its receiver and must be done before the tensor is
// made. A RECV in the list delays only its reader.
//
// Every device has a vector clock of the progress of devices. Progress of a device reaches its neighbour directly, or
// around within a block (biconnected component) of the graph of devices that wait for each other: a path that leaves
// the block returns through the device where it left. So a clock contains only the devices of a device's blocks. In a
// chain of any length, a device has at most two blocks. Tasks that no later SEND depends on are left out.
class ReceiverClocks {
public:
    // The plan completes and has its transfers. In `order` its nodes come after their inputs, and tasks that compute in
    // the order of their lists. Throws Error (BadInput) if the clocks alone take more than memory_for_plans().
    ReceiverClocks(const PlanGraph& graph, const Shape& shape, const std::vector<int>& order);

    int at(int send) const { return at_send_[static_cast<std::size_t>(send)]; }  // -1 for none

private:
    // of the devices in the device's blocks, block by block: the position of the latest task done
    using Clock = std::vector<int>;

    // A neighbour of a device, and the block that both are in.
    struct Neighbour {
        int device;
        int here, there;  // where the block begins in the device's own clock and in the neighbour's
        int size;
        int place;  // of the neighbour in the block
    };
    // A clock that neighbours wait for.
    struct Message {
        Clock clock;
        int device = -1;  // the device that sent it
        int readers = 0;  // readers that have not read it yet
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
    std::vector<int> readers_;                        // [node]: the number of readers of its message
    std::vector<std::vector<Neighbour>> neighbours_;  // [device], by device
    std::vector<std::vector<int>> own_;               // [device]: its own positions in its clock, one per block
    std::vector<Clock> now_;                          // [device]: its clock now
    std::vector<Message> messages_;
    std::vector<int> free_;     // indices of unused messages
    std::vector<int> message_;  // [node]: the index of its message; -1 if no other device reads it
    std::vector<int> at_send_;  // [node]
};

}  // namespace pw

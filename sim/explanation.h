// Why a step takes its time: the critical path, and what devices wait for.
#pragma once

#include "workloads/units.h"

#include <vector>

namespace pw {

// The idle time of a device, that is the makespan without its F B I W R, by cause.
struct IdleCauses {
    Ns warm_up = 0;      // before its first task
    Ns cool_down = 0;    // after its last
    Ns updates = 0;      // in S and U: sums of gradients and updates
    Ns dependency = 0;   // until another device has computed an input, as long as with equal stages
    Ns imbalance = 0;    // the rest of that wait
    Ns lane = 0;         // while an input could be sent or taken in, but a lane or the receiver is not free
    Ns data = 0;         // while an input is under way
    Ns host_copy = 0;    // until a copy to or from the host has ended
    Ns exchange = 0;     // for the rest of an exchange that blocks
    Ns dispatcher = 0;   // while their host's dispatcher issues calls of other devices
    Ns send_memory = 0;  // until the copy of an earlier tensor has left
    Ns total() const {
        return warm_up + cool_down + updates + dependency + imbalance + lane + data + host_copy + exchange +
               dispatcher + send_memory;
    }
};

// A part of a device's idle time. A null cause: no cause of a simulation.
struct IdlePart {
    int device = 0;
    Ns from = 0, to = 0;  // from the first start of all
    Ns IdleCauses::*cause = nullptr;
    int node = -1;              // the task after it, or -1
    int waits_for = -1;         // the node that the device waits for meanwhile, or -1
    Ns with_equal_stages = -1;  // how long a dependency lasts with equal stages, or -1 if not known
};

// A critical path goes from the last end back to the first start, from each task to a task that it waited for. A step
// gets shorter only if a task on the path does. If several paths are equally long, one of them is taken.
struct Explanation {
    struct LinkShare {
        int from, to;  // devices; the same for copies to and from its host
        Ns time;       // occupied, and latency
    };
    std::vector<IdleCauses> idle;        // by device
    std::vector<Ns> critical;            // by device: the time of its tasks on the critical path
    std::vector<Ns> critical_of_stages;  // the same by stage
    std::vector<LinkShare> links;        // on that path, the largest first. All together are the makespan
    std::vector<IdlePart> parts;         // of the idle time, by device, then time. Imbalance is in the dependencies
    std::vector<int> path;               // the nodes of the critical path, from the first to the last
    std::vector<Ns> latencies;           // by node, of a SEND: from its end until its message arrives
    std::vector<int> last_inputs;        // by node: the input that comes last, or -1
    std::vector<Ns> slack;               // by node: how much later it could end without a later end of the last task
    Ns makespan = 0;
    Ns balanced = 0;  // the makespan with equal stages, as explain() levels them
};

}  // namespace pw

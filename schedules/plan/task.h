// One step of one device. Plain data: comparable, printable, cheap to copy. A task does not say how long it takes
// (workloads/costs/costs.h) or when it ran (schedules/trace/trace.h).
#pragma once

#include "schedules/plan/op.h"

#include <compare>
#include <cstdint>
#include <string>
#include <tuple>

namespace pw {

struct Task {
    Task() = default;
    Task(Op does, int on_stage, int of_microbatch, int of_slice = 0, int with_peer = -1, bool overlapped = false)
        : stage(on_stage),
          microbatch(of_microbatch),
          peer(with_peer),
          slice(static_cast<std::uint16_t>(of_slice)),
          op(does),
          with_next(overlapped) {}

    int stage = 0;  // a device may hold several
    int microbatch = 0;
    int peer = -1;            // transfers: the stage at the other end
    std::uint16_t slice = 0;  // of the sequence, if the schedule cuts it
    Op op = Op::Forward;
    // The first of a pair: the next task of the list runs overlapped with it, as one launch. It starts when the inputs
    // of both are there, and the outputs of both are there when it ends. Not part of its identity.
    bool with_next = false;

    auto key() const { return std::tuple(op, stage, microbatch, slice, peer); }
    bool operator==(const Task& other) const { return key() == other.key(); }
    auto operator<=>(const Task& other) const { return key() <=> other.key(); }
};

static_assert(sizeof(Task) == 16);  // a plan has millions

// "3F7": stage 3, forward, micro-batch 7. Transfers name the other end: "3SEND_F7>4", "4RECV_F7<3".
std::string print(const Task& task);
void append(std::string& text, const Task& task);  // the same

// Returns the transfer at the other end of a SEND or RECV.
Task other_end(const Task& transfer);

}  // namespace pw

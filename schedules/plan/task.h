// A step of a device. Plain data: comparable, printable, cheap to copy. A task does not say how long it takes
// (workloads/costs/costs.h) or when it ran (schedules/trace/trace.h).
#pragma once

#include "schedules/plan/op.h"

#include <compare>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

namespace pw {

inline constexpr int kMostSlices = 65'535;  // of a micro-batch

struct Task {
    Task() = default;
    Task(Op does, int on_stage, int of_microbatch, int in_slices = 0, int with_peer = -1, bool overlapped = false)
        : stage(on_stage),
          microbatch(of_microbatch),
          peer(with_peer),
          slices(static_cast<std::uint16_t>(in_slices)),
          op(does),
          with_next(overlapped) {}

    int stage = 0;       // a device may hold several
    int microbatch = 0;  // with slices, the number of the slice: micro-batch * slices + place in the sequence
    int peer = -1;       // transfers: the stage at the other end
    // The slices that the sequences of each micro-batch are cut into (Shape::slices), or 0 for whole sequences. The
    // number determines what a task is called, not its identity.
    std::uint16_t slices = 0;
    Op op = Op::Forward;
    // The first of a pair: the next task of the list runs overlapped with it, as a single launch. The launch starts
    // when the inputs of both are there, and the outputs of both are there when it ends. Not part of its identity.
    bool with_next = false;

    bool is_sliced() const { return slices > 1; }
    int whole() const { return is_sliced() ? microbatch / slices : microbatch; }  // the number of its micro-batch
    int slice() const { return is_sliced() ? microbatch % slices : 0; }

    auto key() const { return std::tuple(op, stage, microbatch, peer); }
    bool operator==(const Task& other) const { return key() == other.key(); }
    auto operator<=>(const Task& other) const { return key() <=> other.key(); }
};

static_assert(sizeof(Task) == 16);  // a plan has millions
using Tasks = std::vector<Task>;

// "3F7": stage 3, forward, micro-batch 7. "3F7.1": its slice 1. Transfers name the peer stage: "3SEND_F7>4",
// "4RECV_F7<3".
std::string print(const Task& task);
void append(std::string& text, const Task& task);  // the same
std::string number_of(const Task& task);           // of the micro-batch, with its slice: "7", "7.1"

// Returns the transfer at the other end of a SEND or RECV.
Task other_end(const Task& transfer);

}  // namespace pw

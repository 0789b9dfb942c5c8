// One step of one device. Plain data: comparable, printable, cheap to copy. A task says what to do,
// never how long it takes (workloads/costs/costs.h) or when it ran (schedules/trace/trace.h).
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

namespace pw {

// The operations stand in this order: what computes, what a stage does once per update, transfers. Lists of tasks that
// are sorted, and the numbers in pages and files, follow it.
enum class Op : std::uint8_t {
    Forward,
    Backward,       // input and weight gradients in one go
    BackwardInput,  // the zero-bubble papers' B
    BackwardWeight,
    Recompute,
    Update,
    SumGradients,
    SendForward,
    RecvForward,
    SendBackward,
    RecvBackward,
};

inline constexpr int kOps = static_cast<int>(Op::RecvBackward) + 1;

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
    std::uint16_t slice = 0;  // slice of the sequence, where a schedule cuts it
    Op op = Op::Forward;
    bool with_next = false;  // runs overlapped with the next task; not part of its identity

    auto key() const { return std::tuple(op, stage, microbatch, slice, peer); }
    bool operator==(const Task& other) const { return key() == other.key(); }
    auto operator<=>(const Task& other) const { return key() <=> other.key(); }
};

static_assert(sizeof(Task) == 16);  // a plan has millions

std::string_view letters_of(Op op);  // F B I W R U S SEND_F RECV_F SEND_B RECV_B
std::optional<Op> op_from(std::string_view letters);

// "3F7": stage 3, forward, micro-batch 7. Transfers name the other end: "3SEND_F7>4", "4RECV_F7<3".
std::string print(const Task& task);
void append(std::string& text, const Task& task);  // the same

// Returns the transfer at the other end of a SEND or RECV.
Task other_end(const Task& transfer);

constexpr bool makes_input_gradient(Op op) { return op == Op::Backward || op == Op::BackwardInput; }
constexpr bool makes_weight_gradient(Op op) { return op == Op::Backward || op == Op::BackwardWeight; }
constexpr bool is_backward(Op op) { return makes_input_gradient(op) || makes_weight_gradient(op); }
constexpr bool is_transfer(Op op) { return op >= Op::SendForward; }
constexpr bool is_send(Op op) { return op == Op::SendForward || op == Op::SendBackward; }
constexpr bool is_recv(Op op) { return op == Op::RecvForward || op == Op::RecvBackward; }
// Tells the operations F B I W R, which ideal, busy and span count.
constexpr bool is_compute(Op op) { return op <= Op::Recompute; }

}  // namespace pw

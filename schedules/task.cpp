#include "schedules/task.h"

#include <fmt/format.h>

namespace pw {

namespace {
constexpr std::string_view kLetters[] = {"F", "B", "I", "W", "R", "U", "S", "SEND_F", "RECV_F", "SEND_B", "RECV_B"};
}  // namespace

std::string_view letters_of(Op op) { return kLetters[static_cast<int>(op)]; }

std::optional<Op> op_from(std::string_view letters) {
    for (int op = 0; op < static_cast<int>(std::size(kLetters)); ++op)
        if (kLetters[op] == letters)
            return static_cast<Op>(op);
    return std::nullopt;
}

std::string print(const Task& task) {
    std::string text = fmt::format("{}{}{}", task.stage, letters_of(task.op), task.microbatch);
    if (task.slice > 0)
        text += fmt::format(".{}", task.slice);
    if (is_transfer(task.op))
        text += fmt::format("{}{}", is_send(task.op) ? '>' : '<', task.peer);
    return text;
}

Task other_end(const Task& transfer) {
    constexpr Op kOther[] = {Op::RecvForward, Op::SendForward, Op::RecvBackward, Op::SendBackward};
    const int which = static_cast<int>(transfer.op) - static_cast<int>(Op::SendForward);
    return {kOther[which], transfer.peer, transfer.microbatch, transfer.slice, transfer.stage};
}

}  // namespace pw

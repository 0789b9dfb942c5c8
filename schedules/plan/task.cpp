#include "schedules/plan/task.h"

#include <charconv>
#include <iterator>

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

void append(std::string& text, const Task& task) {
    const auto append_number = [&](int number) {
        char digits[12];
        text.append(digits, std::to_chars(digits, std::end(digits), number).ptr);
    };
    append_number(task.stage);
    text += letters_of(task.op);
    append_number(task.microbatch);
    if (task.slice > 0) {
        text += '.';
        append_number(task.slice);
    }
    if (is_transfer(task.op)) {
        text += is_send(task.op) ? '>' : '<';
        append_number(task.peer);
    }
}

std::string print(const Task& task) {
    std::string text;
    append(text, task);
    return text;
}

Task other_end(const Task& transfer) {
    constexpr Op kOther[] = {Op::RecvForward, Op::SendForward, Op::RecvBackward, Op::SendBackward};
    const int which = static_cast<int>(transfer.op) - static_cast<int>(Op::SendForward);
    return {kOther[which], transfer.peer, transfer.microbatch, transfer.slice, transfer.stage};
}

}  // namespace pw

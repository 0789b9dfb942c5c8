#include "schedules/task.h"

#include <algorithm>
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
    char buffer[64];  // four numbers of eleven characters, and letters
    char* end = buffer;
    const auto append_number = [&](int number) { end = std::to_chars(end, std::end(buffer), number).ptr; };
    append_number(task.stage);
    const std::string_view letters = letters_of(task.op);
    end = std::copy(letters.begin(), letters.end(), end);
    append_number(task.microbatch);
    if (task.slice > 0) {
        *end++ = '.';
        append_number(task.slice);
    }
    if (is_transfer(task.op)) {
        *end++ = is_send(task.op) ? '>' : '<';
        append_number(task.peer);
    }
    text.append(buffer, end);
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

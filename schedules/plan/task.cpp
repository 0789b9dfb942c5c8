#include "schedules/plan/task.h"

#include <charconv>
#include <iterator>

namespace pw {

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
    return {*facts_of(transfer.op).other_end, transfer.peer, transfer.microbatch, transfer.slice, transfer.stage};
}

}  // namespace pw

#include "schedules/plan/task.h"

#include <fmt/format.h>

#include <charconv>
#include <iterator>

namespace pw {

namespace {

// Tasks that run once per update are of whole mini-batches.
bool has_slice(const Task& task) { return task.is_sliced() && !runs_once_per_update(task.op); }

}  // namespace

void append(std::string& text, const Task& task) {
    const auto append_number = [&](int number) {
        char digits[12];
        text.append(digits, std::to_chars(digits, std::end(digits), number).ptr);
    };
    append_number(task.stage);
    text += letters_of(task.op);
    append_number(task.whole());
    if (has_slice(task)) {
        text += '.';
        append_number(task.slice());
    }
    if (is_transfer(task.op)) {
        text += is_send(task.op) ? '>' : '<';
        append_number(task.peer);
    }
}

std::string number_of(const Task& task) {
    return has_slice(task) ? fmt::format("{}.{}", task.whole(), task.slice()) : std::to_string(task.whole());
}

std::string print(const Task& task) {
    std::string text;
    append(text, task);
    return text;
}

Task other_end(const Task& transfer) {
    return {*facts_of(transfer.op).other_end, transfer.peer, transfer.microbatch, transfer.slices, transfer.stage};
}

}  // namespace pw

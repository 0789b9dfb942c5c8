// The three standard streams: results on stdout, all else on stderr.
#pragma once

#include "workloads/first_failure.h"
#include "workloads/text/printable.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace pw {

// Keeps the standard streams; call it before anything is opened. A stream that the caller closed stays unusable, and no
// file takes its number.
void keep_standard_streams();

// Writes the text as it is. It throws Error (RunFailed) when stdout does not take it.
void write_result(std::string_view text);
// Writes for people: what a terminal would act on is escaped.
template <class... Args>
void print_result(fmt::format_string<Args...> text, Args&&... args) {
    write_result(escaped_controls(fmt::format(text, std::forward<Args>(args)...)));
}
// Makes sure that all results have left the program. It throws as write_result() does.
void finish_results();

// The outputs of one command: each is tried, whatever becomes of the others, and the first failure is thrown at the
// end. A full disk takes no results along.
class Outputs {
public:
    template <class Act>
    void attempt(Act act) {
        failure_.guard(act, [] {});
    }
    void done() const { failure_.rethrow(); }

private:
    FirstFailure failure_;
};

// Says a line on stderr, escaped as results are and never too long to read. A stream that takes nothing is no failure:
// there is nobody to tell.
void say(std::string_view text);

}  // namespace pw

// The three standard streams: results on stdout, all else on stderr.
#pragma once

#include "report/json.h"
#include "workloads/first_failure.h"
#include "workloads/text/printable.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
void print_json(const Json& json);
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

// Of several ranks the first speaks for all.
void print_note(const std::string& text);                 // "note: ..." on stderr
void print_notes(const std::vector<std::string>& notes);  // each as print_note()
void print_warning(const std::string& text);              // "warning: ..." on stderr
void print_warnings(const std::vector<std::string>& warnings);

// One line on stderr that is rewritten in place; it shows nothing when stderr is no terminal.
class ProgressLine {
public:
    ProgressLine();
    ~ProgressLine();
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;
    void show(const std::string& text);
    void hide();

private:
    bool terminal_;
    bool shown_ = false;
};

}  // namespace pw

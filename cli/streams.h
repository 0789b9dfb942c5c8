// The three standard streams: results go to stdout, everything else to stderr.
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

// Protects the standard streams; call it before any file is opened. A stream that the caller closed stays unusable, and
// no file gets its number.
void keep_standard_streams();

// Writes the text as it is. Throws Error (RunFailed) if stdout cannot be written.
void write_result(std::string_view text);
// Writes text for people: characters that control a terminal are escaped.
template <class... Args>
void print_result(fmt::format_string<Args...> text, Args&&... args) {
    write_result(escaped_controls(fmt::format(text, std::forward<Args>(args)...)));
}
void print_json(const Json& json);
// Flushes all results. Throws as write_result() does.
void finish_results();

// The outputs of one command. Each is attempted even if others fail, and done() throws the first failure: a full disk
// does not cost the results on stdout.
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

// Writes a line to stderr, escaped as results are and cut to a readable length. A stderr that cannot be written is not
// an error: it could not be reported.
void write_message(std::string_view text);

// With several ranks, only rank 0 prints notes and warnings.
void print_note(const std::string& text);                 // "note: ..." on stderr
void print_notes(const std::vector<std::string>& notes);  // each as print_note()
void print_warning(const std::string& text);              // "warning: ..." on stderr
void print_warnings(const std::vector<std::string>& warnings);

// One line on stderr that is rewritten in place. It shows nothing if stderr is not a terminal.
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

// The three standard streams: results go to stdout, everything else to stderr.
#pragma once

#include "report/json.h"
#include "workloads/first_failure.h"
#include "workloads/text/printable.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pw {

// Protects the standard streams. Call it before any file is opened. A stream that the caller closed stays unusable, and
// no file gets its number.
void keep_standard_streams();

// Makes tables as narrow as the terminal, if stdout is a terminal. Files and pipes get whole rows.
void fit_tables_to_terminal();

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

// The outputs of a command. Each output is attempted even if other outputs fail, and done() throws the first failure: a
// full disk does not cost the results on stdout.
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

// Sets the words of the command line: write_message() escapes the line breaks in them.
void keep_words(int count, char** words);

// Writes a line to stderr, escaped as results are and cut to a readable length. A stderr that cannot be written is not
// an error: it could not be reported.
void write_message(std::string_view text);

// How much a command says on stderr besides its warnings and errors. Normal: notes, and progress on a terminal.
// Verbose: also details, and progress without a terminal.
enum class Verbosity { Quiet, Normal, Verbose };
void set_verbosity(Verbosity verbosity);  // of the program
Verbosity verbosity();

// With several ranks, only rank 0 prints notes and warnings.
void print_note(const std::string& text);                   // "note: ..." on stderr
void print_details(const std::vector<std::string>& lines);  // "detail: ..." on stderr, if the program is verbose
void print_notes(const std::vector<std::string>& notes);    // each as print_note()
void print_warning(const std::string& text);                // "warning: ..." on stderr
void print_warnings(const std::vector<std::string>& warnings);

// A line on stderr that is rewritten in place. If stderr is not a terminal, nothing is shown. If the program is also
// verbose, a line per second and the last line are shown.
class ProgressLine {
public:
    ProgressLine();
    ~ProgressLine();
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;
    void show(const std::string& text);
    void hide();

private:
    void write_line();

    bool terminal_, lines_;
    bool shown_ = false;
    std::string unwritten_;
    std::optional<std::chrono::steady_clock::time_point> written_;  // the time of the last line
};

}  // namespace pw
